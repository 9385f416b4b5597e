"""What type-checks, and to what: read by mypy and pyright, never run."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from typing_extensions import assert_type

import safedev
from safedev import errors, guard, launchers, policies
from safedev._diagnosis import Diagnosis


class Ordinals:
    """Anything with `__index__` is an ordinal: a NumPy integer is one."""

    def __index__(self) -> int:
        return 1


class Pbs:
    """A launcher of a third party: a name and a method, with no base class."""

    name = "pbs"

    def detect(self, environ: Mapping[str, str], /) -> launchers.Launch | None:
        return launchers.Launch(launcher=self.name, local_rank=0) if "PBS" in environ else None


def to_the_cpu(diagnosis: object) -> str | None:
    return "cpu"


def the_last_one(diagnosis: Diagnosis, /) -> int | None:
    return None if diagnosis.is_valid else diagnosis.snapshot.device_count - 1


def devices(index: Ordinals) -> None:
    assert_type(safedev.select_device(), torch.device)
    assert_type(safedev.set_device(), torch.device)
    safedev.select_device(None)
    safedev.select_device(3)
    safedev.select_device("cuda:3")
    safedev.select_device(torch.device("cuda", 3))
    safedev.select_device(index)
    safedev.select_device(fallback="cuda:0")
    safedev.set_device(0, fallback="cpu")
    safedev.set_device("GPU-5a6b", fallback="raise")
    safedev.select_device(fallback=to_the_cpu)
    safedev.select_device(fallback=the_last_one)
    safedev.select_device(fallback=policies.share)
    safedev.select_device(fallback=policies.first_of(policies.first_device, policies.cpu, policies.refuse))


def wrapper(preferred: policies.Preferred = None, *, fallback: policies.Fallback = "raise") -> torch.device:
    """A library passes on what it is given."""
    return safedev.set_device(preferred, fallback=fallback) if preferred != "cpu" else safedev.select_device("cpu")


def wrapped(index: Ordinals) -> None:
    wrapper(0, fallback="cpu")
    wrapper(index, fallback="cuda:0")
    wrapper(torch.device("cuda"), fallback=policies.share)
    wrapper("auto", fallback=the_last_one)


def narrowed(devices: guard.Devices = None) -> guard.Mask:
    return safedev.guard_visible_devices(devices)


def local_ranks(default: int | None) -> None:
    assert_type(safedev.resolve_local_rank(), int)
    assert_type(safedev.resolve_local_rank(default=-1), int)
    assert_type(safedev.resolve_local_rank(default=None), int | None)
    assert_type(safedev.resolve_local_rank(default=None, environ={}), int | None)
    assert_type(launchers.detect_launch(), launchers.Launch | None)
    assert_type(launchers.detect_launch(os.environ), launchers.Launch | None)
    launchers.register_launcher(Pbs())
    launchers.register_launcher(
        launchers.EnvLauncher(name="mine", local_rank="MY_LOCAL_RANK", documentation="https://example.invalid")
    )


def masks(environ: dict[str, str]) -> None:
    mask = safedev.guard_visible_devices()
    assert_type(mask, guard.Mask)
    assert_type(mask.raw, str | None)
    assert_type(mask.entries, tuple[int | str, ...])
    safedev.guard_visible_devices(0)
    safedev.guard_visible_devices("0,2")
    safedev.guard_visible_devices([0, 2])
    safedev.guard_visible_devices(("GPU-5a6b", "MIG-7c8d"))
    safedev.guard_visible_devices([])
    narrowed([0, "GPU-5a6b"])
    safedev.guard_visible_devices(order="PCI_BUS_ID")
    safedev.guard_visible_devices(1, order="FASTEST_FIRST", environ=environ)


def diagnoses() -> None:
    diagnosis = safedev.diagnose("cuda:3")
    assert_type(diagnosis.is_valid, bool)
    assert_type(diagnosis.render(), str)
    for finding in diagnosis.findings:
        assert_type(finding.code, str)
        assert_type(finding.suggestion, str | None)


def failures() -> None:
    try:
        safedev.set_device()
    except safedev.InvalidDeviceError as error:
        assert_type(error.diagnosis.is_valid, bool)
    except safedev.LocalRankError as error:
        assert_type(error.variable, str)
        assert_type(error.value, str | None)
    except errors.MaskError as error:
        assert_type(error.mask, guard.Mask)
