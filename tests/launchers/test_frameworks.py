"""Beside the frameworks that choose a device themselves: safedev agrees with them, and does not disturb them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import Launched, MakeBench, lacking

BESIDE = Path(__file__).with_name("beside.py")
ACCELERATE = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"]


@pytest.fixture
def beside(bench: MakeBench) -> Callable[[str, str], Launched]:
    """Return what runs two processes of a framework on two pretend GPUs."""

    def run(framework: str, first: str) -> Launched:
        if importlib.util.find_spec(framework) is None:
            lacking(f"{framework} is not installed")
        here = bench(2)
        launcher = ACCELERATE if framework == "accelerate" else []
        return here.run(here.on_gpus(sys.executable, *launcher, str(BESIDE), framework, first, str(here.folder)))

    return run


@pytest.mark.parametrize("framework", ["accelerate", "lightning", "ray"])
def test_select_device_gives_the_device_of_the_framework(
    framework: str, beside: Callable[[str, str], Launched]
) -> None:
    """
    Asked after the framework has started, `select_device()` names the device that the framework uses.
    """
    done = beside(framework, "framework")

    assert ["cuda:0", "cuda:1"] == done.column("framework"), done.output
    assert ["cuda:0", "cuda:1"] == done.column("safedev")


@pytest.mark.parametrize("framework", ["accelerate", "lightning", "ray"])
def test_set_device_first_does_not_disturb_the_framework(
    framework: str, beside: Callable[[str, str], Launched]
) -> None:
    """
    A script that calls `set_device()` at its top runs under the framework on the same devices as without.
    """
    done = beside(framework, "safedev")

    assert ["cuda:0", "cuda:1"] == done.column("framework"), done.output
    assert ["cuda:0", "cuda:1"] == done.column("safedev")
    assert [0, 1] == done.column("current")
