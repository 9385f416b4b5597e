"""One set of behaviours, three subjects: the fake answers as torch does over a driver, pretend or real."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

from behaviours import BEHAVIOURS, VERSION, Behaviour
from subjects import on_real_devices, on_the_fake, over_the_pretend_driver

if TYPE_CHECKING:
    from rig import Rig

CASES = [pytest.param(behaviour, id=name) for name, behaviour in BEHAVIOURS.items() if behaviour.since <= VERSION]
ON_REAL = [pytest.param(behaviour, id=name) for name, behaviour in BEHAVIOURS.items() if not behaviour.made]


@pytest.mark.parametrize("behaviour", CASES)
def test_the_fake_behaves_as_torch_does(behaviour: Behaviour) -> None:
    """
    Under fake_cuda, in the process of the test, the outcome is torch's own.
    """
    if "in_child" in behaviour.code and sys.platform == "win32":
        pytest.skip("no fork")

    assert behaviour.outcome == on_the_fake(behaviour)


@pytest.mark.parametrize("behaviour", CASES)
def test_torch_behaves_so_over_a_pretend_driver(behaviour: Behaviour, rig: Rig) -> None:
    """
    A CUDA build of torch, unchanged, has that outcome over a pretend driver.
    """
    outcome: Any = over_the_pretend_driver(rig, behaviour)

    assert behaviour.outcome == outcome


@pytest.mark.gpu
@pytest.mark.parametrize("behaviour", ON_REAL)
def test_torch_behaves_so_over_a_real_driver(behaviour: Behaviour, real_devices: int) -> None:
    """
    A CUDA build of torch has that outcome over a real driver.
    """
    if behaviour.gpus > real_devices or behaviour.since > VERSION:
        pytest.skip(f"the row is for {behaviour.gpus} devices, and torch from {behaviour.since}")
    if behaviour.gpus != real_devices and ("CUDA_VISIBLE_DEVICES" in behaviour.env or "MASK" in behaviour.code):
        pytest.skip("the row sets a mask of its own, for a machine with exactly its devices")

    assert behaviour.outcome == on_real_devices(behaviour)


@pytest.fixture(scope="module")
def real_devices() -> int:
    """
    How many devices a driver finds here, by NVML; skipped where it finds none.
    """
    from safedev import _nvml

    count = _nvml.count() if "PRETEND_GPUS" not in os.environ else 0
    if not count:
        pytest.skip("no real CUDA device")
    return count
