"""The reasons that lie in the machine: its driver, its build of torch, and what of it is here."""

from __future__ import annotations

from safedev import _isolation
from safedev._diagnosis import OBSERVATIONS, Finding
from safedev._mask_rules import codes, first, lister, use_one_of, wants_cuda
from safedev._resolve import devices_are_there, too_old
from safedev._text import counted, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safedev._diagnosis import Diagnosis
    from safedev._snapshot import Snapshot


ASIDES = frozenset(
    {"count-disagrees", "launcher-doubt", "mask-misspelled", "no-local-rank", "order-ambiguous", "stale-local-rank"}
)
"""Codes of findings that by themselves keep nobody from a device."""


def old_driver(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if case.device is not None or not wants_cuda(case) or snapshot.device_count or snapshot.refusal or snapshot.forked:
        return
    if snapshot.driver_cuda is not None and too_old(snapshot.driver_cuda, snapshot.cuda_build):
        serves = f"{snapshot.driver_cuda // 1000}.{snapshot.driver_cuda % 1000 // 10}"
        yield Finding(
            code="driver-unusable",
            reason=f"the driver serves CUDA {serves} at most, and this torch was built for CUDA {snapshot.cuda_build}",
            remedy=f"update the driver, or install a build of torch for CUDA {serves.partition('.')[0]}",
            suggestion="cpu",
        )
    elif snapshot.count_evidence and devices_are_there(snapshot) and not snapshot.mask.defects:
        seen, remedy = _absence(snapshot) or (
            "",
            f"run {lister(snapshot)}: if it fails too, the driver, or the access to it, is at fault",
        )
        said = quoted(snapshot.count_evidence, 200)
        yield Finding(
            code="driver-unusable",
            reason=f"torch could not count the devices: {said}" + (f"; {seen}" if seen else ""),
            remedy=remedy,
            suggestion="cpu",
        )


def build_without_cuda(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if wants_cuda(case) and not (snapshot.cuda_build or snapshot.hip_build) and devices_are_there(snapshot):
        there = counted(snapshot.physical_count or 1, "NVIDIA device")
        yield Finding(
            code="torch-without-cuda",
            reason=f"this build of torch has no CUDA, and the machine has {there}",
            remedy="install a build of torch with CUDA: https://pytorch.org/get-started/locally/ has the command",
            suggestion="cpu",
        )


def nothing_there(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    """Speak before the mask does, where there is nothing that it could hide."""
    snapshot = case.snapshot
    none = snapshot.cuda_build is not None and snapshot.physical_count == 0
    if not devices_are_there(snapshot) and (none or not _able(snapshot)):
        yield from nothing_visible(case, found)


def nothing_visible(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if case.device is not None or not wants_cuda(case) or snapshot.device_count or _causes(found):
        return
    if "count-disagrees" in codes(found):
        return  # ROCm shows devices, and torch counts none
    reason, remedy = _absence(snapshot) or _behind(snapshot) or (_NONE, look_further(snapshot))
    if not _able(snapshot):
        reason = "this build of torch has no CUDA"
        remedy = "if this machine has a GPU, install a build with CUDA: https://pytorch.org/get-started/locally/"
    yield Finding(code="no-cuda-device", reason=reason, remedy=remedy, suggestion="cpu")


def _able(snapshot: Snapshot) -> bool:
    """Whether this build of torch drives CUDA devices."""
    return snapshot.cuda_build is not None or snapshot.hip_build is not None


_NONE = "torch finds no CUDA device in this machine or container, and no mask hides one"


def look_further(snapshot: Snapshot) -> str:
    """What to do where nothing shows why there is no device."""
    shows = lister(snapshot)
    return f"run {shows}: if it lists devices, run python -m safedev for what hides them; else use the CPU"


def _behind(snapshot: Snapshot) -> tuple[str, str] | None:
    """What there is to say where a mask names devices, and none of them is visible."""
    mask, lists = snapshot.mask, "rocm-smi" if snapshot.hip_build else "nvidia-smi -L"
    if mask.raw is None or (snapshot.cuda_build and snapshot.physical_count == 0):
        return None
    return (
        f"torch finds no CUDA device, and {mask.variable}={quoted(mask.raw)} may hide those that are there",
        f"see which devices there are ({lists}), and name them in {mask.variable}, or unset it",
    )


def _absence(snapshot: Snapshot) -> tuple[str, str] | None:
    """Why a host with NVIDIA devices shows none here, and what to do."""
    seen = snapshot.isolation if snapshot.cuda_build else None
    return None if seen is None else _isolation.absence(seen)


def out_of_range(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if case.request.kind == "ordinal" and case.device is None and snapshot.device_count and not _causes(found):
        yield Finding(
            code="out-of-range",
            reason=f"ordinals count from 0, so the last one here is {snapshot.device_count - 1}{_elsewhere(snapshot)}",
            remedy=use_one_of(snapshot),
            suggestion=first(snapshot),
        )


def _elsewhere(snapshot: Snapshot) -> str:
    """What shows that the host has more devices than this container or job, in a clause."""
    seen, host = snapshot.isolation, snapshot.variables.get("NVIDIA_VISIBLE_DEVICES")
    if seen is not None and (clause := _isolation.narrowed(seen, snapshot.physical_count)):
        return f"; {clause}"
    if host and host[0].isdecimal() and snapshot.mask.raw is None:
        return f"; NVIDIA_VISIBLE_DEVICES={quoted(host)} counts devices on the host, and inside they count from 0"
    return ""


def _causes(found: Sequence[Finding]) -> set[str]:
    """Codes found so far that explain why a device cannot be had."""
    return codes(found) - OBSERVATIONS - ASIDES
