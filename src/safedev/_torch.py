"""The only reader of torch."""

from __future__ import annotations

import os
import threading
import warnings

import torch

from safedev import _driver, _library, _nvml
from safedev._mask import CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES, parse_mask
from safedev._quick import changed
from safedev._resolve import too_old
from safedev._rocm import HIP_VISIBLE_DEVICES
from safedev._sharing import read_launch
from safedev._snapshot import snapshot_of, visible_devices
from safedev._text import LIMIT, first_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safedev._mask import Mask
    from safedev._request import Request
    from safedev._snapshot import Snapshot, Variables

# `warnings.catch_warnings` in two threads at once can leave the filters changed for good. One lock for each process: a
# child must not inherit one that another thread of its parent held when it was forked.
_counting: dict[int, threading.RLock] = {}


def take_snapshot(request: Request, environ: Variables) -> Snapshot:
    """Read what decides about *request*, once.

    It starts no driver where torch can count without it, and makes no context.
    """
    mask = _mask(environ)
    driver = _driver.frozen_count()
    forked = driver is None and _driver.in_bad_fork()
    count, evidence, serves = driver or 0, "", None
    if driver is None and not forked:
        count, evidence, serves = _count(mask)
    auto = request.kind == "auto"
    accelerator, there = _accelerator() if request.kind == "accelerator" or (auto and not count) else ("", 0)
    launch, error, sharing = None, None, None
    if (count or there) and request.kind not in {"ordinal", "uuid"}:  # those need no local rank
        launch, error, sharing = read_launch(mask, count or there, environ)
    snapshot = snapshot_of(
        mask=mask,
        device_count=count,
        driver_count=driver,
        count_evidence=evidence,
        forked=forked,
        cuda_build=torch.version.cuda,
        hip_build=torch.version.hip,
        driver_cuda=serves,
        accelerator=accelerator,
        accelerator_count=there,
        launch=launch,
        launch_error=error,
        sharing=sharing,
        physical_count=_nvml.count() if auto and not count and not mask.hides_all else None,
        variables={},
    )
    return complete(request, snapshot, environ) if request.kind == "uuid" else snapshot


def complete(request: Request, snapshot: Snapshot, environ: Mapping[str, str]) -> Snapshot:
    """Add to *snapshot*, which may have been read for another request, what *request* depends on besides."""
    if request.kind == "uuid":
        return changed(snapshot, found=_locate(request.uuid, snapshot, environ))
    if request.kind in {"accelerator", "auto"} and not snapshot.accelerator:
        kind, there = _accelerator()
        return changed(snapshot, accelerator=kind, accelerator_count=there)
    return snapshot


REFUSALS = (RuntimeError, AssertionError, ValueError, torch.cuda.DeferredCudaCallError)
"""What torch raises where a device cannot be made current."""


def refused(snapshot: Snapshot, error: Exception, device: torch.device) -> Snapshot:
    """Note that *device* could not be made current; the driver's own count, if it has started now, is the true one."""
    driver = _driver.frozen_count()
    return changed(
        snapshot,
        refusal=first_line(error)[: 4 * LIMIT],
        refused=(*snapshot.refused, str(device)),
        driver_count=driver,
        device_count=snapshot.device_count if driver is None else driver,
    )


def to_device(text: str) -> torch.device:
    """Turn the text of a device that was found valid into a device."""
    return torch.device(text)


def make_current(device: torch.device) -> None:
    """Make *device* current; nothing for the CPU.

    Raises:
        Exception: Whatever torch raises.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
        if torch.__version__ < "2.8":  # which makes no context where that device is the current one
            torch.cuda.mem_get_info(device)
    elif device.type != "cpu":
        api = getattr(torch, "accelerator", None)
        if api is not None:
            (getattr(api, "set_device_index", None) or api.set_device_idx)(device.index)
        elif set_device := getattr(getattr(torch, device.type), "set_device", None):  # torch before 2.6
            set_device(device)


def versions() -> tuple[str, str | None, str | None]:
    """The versions of torch, of the CUDA and of the HIP that it was built for; None: it was not."""
    return str(torch.__version__), torch.version.cuda, torch.version.hip


def exercise(ordinal: int) -> Iterator[tuple[str, object]]:
    """Use a device a little: make a context, allocate, copy there, run a kernel, copy back. For a child process.

    It yields what it learns as it goes, so that what came before a failure is known. ``intact`` tells whether the copy
    came back as it was sent; the result of the kernel is not looked at.

    Args:
        ordinal: The device, from 0.

    Raises:
        Exception: Whatever torch raises.
    """
    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    yield "driver_count", torch.cuda.device_count()
    if ordinal < torch.cuda.device_count():
        about = torch.cuda.get_device_properties(ordinal)
        yield "name", about.name
        yield "capability", f"{about.major}.{about.minor}"
        yield "memory_total", about.total_memory
        yield "uuid", (_driver.uuids() or {ordinal: ""})[ordinal]
    torch.cuda.set_device(ordinal)
    yield "memory_free", torch.cuda.mem_get_info(ordinal)[0]
    sent = torch.arange(256)  # too small for torch to make threads of its own, which a forked child must not
    there = sent.to(torch.device("cuda", ordinal))
    there.add(1)
    torch.cuda.synchronize(ordinal)
    yield "intact", torch.equal(sent, there.cpu())


def _mask(environ: Variables) -> Mask:
    """The mask that torch counts by: on ROCm HIP's, where it is set.

    Source:
        ``torch/cuda/__init__.py``, ``_parse_visible_devices``, torch 2.5 to 2.14.
    """
    if torch.version.hip and (raw := environ.get(HIP_VISIBLE_DEVICES)) is not None:
        return parse_mask(raw, variable=HIP_VISIBLE_DEVICES)
    return parse_mask(environ.get(CUDA_VISIBLE_DEVICES))


def _count(mask: Mask) -> tuple[int, str, int | None]:
    """Devices by torch's own count, what it raised or warned meanwhile, and the CUDA that the driver serves, if asked.

    The count is 0 where that CUDA is too old for this build.
    """
    build = torch.version.cuda
    silent = mask.hides_all if build else not torch.version.hip  # torch counts 0 before it asks anybody
    serves = _nvml.cuda_version() if build and not silent else None
    count, evidence = 0, ""
    # Where NVML has started, and answers, torch counts by it, and warns only where it looks for UUIDs.
    plain = serves is not None and not (mask.raw or "").startswith(("GPU-", "MIG-"))
    if silent or plain:
        count, evidence = _count_or_error()
    # An NVML that fails after all is taken for one that never came.
    if not count and not (silent or (plain and not evidence and _nvml.count() == 0)):
        count, evidence = _count_and_warnings() if torch.version.hip or may_warn() else _count_or_error()
        serves = _nvml.cuda_version() if build and count else None
    if not count:
        return 0, evidence[: 8 * LIMIT], None
    if too_old(serves, build):  # before devices are refused, the library that torch will use has the last word
        serves = _driver.cuda_version() or serves
    return (0 if too_old(serves, build) else count), evidence[: 8 * LIMIT], serves


def may_warn() -> bool:
    """Whether a CUDA build of torch has anything to warn of while it counts: a library of the driver is there.

    torch loads the same ones for it. Where it finds none, it counts 0 and says nothing. Catching a warning, even none,
    makes Python forget which warnings of the program it has shown already.

    Source:
        ``torch/cuda/__init__.py``, ``_device_count_nvml``; ``c10/cuda/CUDAFunctions.cpp``, ``device_count_impl``, which
        takes a driver that is missing for no device; torch 2.4 to 2.14. CPython's ``Lib/warnings.py``,
        ``_filters_mutated``: the record of what was shown holds until filters change, and a catcher changes them twice.
    """
    return any(map(_library.can_load, (_nvml.NAME, _driver.NAME)))


def _count_or_error() -> tuple[int, str]:
    try:
        return max(torch.cuda.device_count(), 0), ""
    except Exception as error:  # noqa: BLE001 - torch's parser raises ValueError, its C++ RuntimeError, others more
        return 0, f"{type(error).__name__}: {error}"


def _count_and_warnings() -> tuple[int, str]:
    lock = _counting.setdefault(os.getpid(), threading.RLock())
    with lock, warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", module=r"torch(\.|$)")
        count, raised = _count_or_error()
    evidence = [raised] if raised else []
    for warning in caught:
        if warning.filename.startswith(torch.__path__[0] + os.sep):
            evidence.append(str(warning.message))
        else:  # of another thread, and past its filters already
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return count, "; ".join(evidence)


def _accelerator() -> tuple[str, int]:
    """Type and number of the devices of another kind than CUDA that this build of torch drives."""
    api = getattr(torch, "accelerator", None)
    try:
        if api is None:  # torch before 2.6
            if torch.xpu.is_available():
                return "xpu", torch.xpu.device_count()
            return ("mps", 1) if torch.backends.mps.is_available() else ("", 0)
        if torch.__version__ < "2.7" and (torch.version.cuda or torch.version.hip):
            return "", 0  # such a build has no other kind, and 2.6 would start the driver to tell
        current = api.current_accelerator()  # what the build supports; starts nothing
        kind = "cuda" if current is None else current.type
        there = 0 if kind == "cuda" else api.device_count()
    except (RuntimeError, OSError, AttributeError, AssertionError):  # 2.6 raises where there is none; a failure is none
        return "", 0
    return (kind, there) if there else ("", 0)


def _locate(uuid: str, snapshot: Snapshot, environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """The ordinals whose UUID begins with *uuid*; None where nobody can tell."""

    def fitting(known: Iterable[str]) -> tuple[int, ...]:
        # The kind is left out: the driver tells a MIG instance's UUID without it.
        wanted = uuid[4:].lower()
        return tuple(n for n, one in enumerate(known) if one[4:].lower().startswith(wanted))

    order = environ.get(CUDA_DEVICE_ORDER)
    in_force = _library.unseen({snapshot.mask.variable: snapshot.mask.raw, CUDA_DEVICE_ORDER: order}) is None
    entries = snapshot.mask.entries[: snapshot.device_count] if in_force else ()
    if "/" in uuid:  # the older spelling of an instance, which no driver tells
        return tuple(n for n, entry in enumerate(entries) if str(entry).lower() == uuid.lower())
    known = _driver.uuids()  # where NVML is missing, counting has started the driver
    if known is not None or snapshot.driver_count is not None:
        return None if known is None else fitting(known)
    if listed := fitting(entry if isinstance(entry, str) else "" for entry in entries):
        return listed
    if (
        in_force
        and uuid.startswith("GPU-")
        and (physical := _nvml.inventory())
        and not any(device.mig for device in physical)
    ):
        shown = visible_devices(changed(snapshot, physical=physical, variables={CUDA_DEVICE_ORDER: order or ""}))
        if shown is not None and all(device.uuid for device in shown):
            return fitting(device.uuid for device in shown)
    known = _driver.uuids_from_child() if snapshot.device_count else ()
    return None if known is None else fitting(known)
