"""All that was read for one decision, as data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from safedev._quick import quickly
from safedev._text import counted, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from safedev._isolation import Isolation
    from safedev._mask import Mask
    from safedev._sharing import Sharing
    from safedev._terms import PhysicalIndex
    from safedev.errors import LocalRankError
    from safedev.launchers import Launch


OTHER_MASKS = (
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "ASCEND_RT_VISIBLE_DEVICES",
)
"""What else hides, orders or hands out devices of any maker; shown beside the mask."""


class Variables(Mapping[str, str]):
    """An environment that is read by name, each name once, and that remembers which were set.

    What one call reads can therefore not change under it, and costs the same however large the environment is.
    """

    if not TYPE_CHECKING:
        __slots__ = ("_read", "get")
    else:

        def get(self, name: str, default: str | None = None) -> str | None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, source: Mapping[str, str]) -> None:
        self._read: dict[str, str | None] = {}
        setattr(self, "get", _reader(source, self._read))  # noqa: B010 - a checker takes `get` for the method it acts as

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def read(self) -> dict[str, str]:
        """The variables that were looked at and are set."""
        return {name: value for name, value in self._read.items() if value is not None}


def _reader(source: Mapping[str, str], read: dict[str, str | None]) -> Callable[..., str | None]:
    """The ``get`` of *source*, that keeps in *read* what it has read."""
    ask: Callable[[str], str | None] = source.get
    environ: Any = source
    data = getattr(environ, "_data", None)  # it has no public name, and may be gone in another Python
    if type(environ) is getattr(os, "_Environ", None) and isinstance(data, dict):
        # Its own `get` raises and catches two exceptions for a name that is not set, as nearly all of launchers are.
        encode, decode = environ.encodekey, environ.decodevalue

        def quick(name: str) -> str | None:
            value = data.get(encode(name))
            return None if value is None else decode(value)

        ask = quick

    def get(name: str, default: str | None = None) -> str | None:
        value = read[name] = read[name] if name in read else ask(name)
        return default if value is None else value

    return get


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalDevice:
    """A device of the machine, as NVML lists it.

    Attributes:
        index: Its physical index, from 0.
        uuid: ``GPU-`` and 32 hexadecimal digits with dashes; empty where NVML does not tell.
        name: The model.
        bus: PCI address, as ``0000:01:00.0``.
        mig: Whether it is divided into MIG instances.
        instances: UUIDs of those, ``MIG-...``, in NVML's order; None: it is not divided, or NVML does not tell.
        gpu_instances: In how many GPU instances they lie.
    """

    index: PhysicalIndex
    uuid: str = ""
    name: str = ""
    bus: str = ""
    mig: bool = False
    instances: tuple[str, ...] | None = None
    gpu_instances: int = 0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The world as one call read it.

    Attributes:
        mask: That which torch counts by: ``CUDA_VISIBLE_DEVICES``, or HIP's (``mask.variable`` tells).
        device_count: CUDA devices that can be used: 0 where the driver is known not to serve this process.
        driver_count: The driver's own count, where it has started in this process; None: it has not.
        count_evidence: What ``device_count()`` raised or warned.
        forked: Whether this process was forked after its parent had started CUDA.
        cuda_build: Version of CUDA that this torch was built for, as ``13.0``; None: no CUDA.
        hip_build: Version of HIP that this torch was built for; None: no HIP.
        driver_cuda: The highest CUDA that the driver serves, as 13000 for 13.0, where NVML tells.
        accelerator: Type of another accelerator that this build of torch drives and that is there; empty: none.
        accelerator_count: How many of those are there.
        launch: Who launched this process, and its local rank.
        launch_error: Why the local rank cannot be told.
        sharing: Whether this process has devices of its own, or shares one view with its siblings.
        found: The ordinals whose UUID fits a request by UUID; None: not asked, or nobody could tell.
        physical_count: Devices of the machine, by NVML; None: unknown.
        physical: The same, one by one; None: unknown.
        driver_release: The driver's version, as ``580.65.06``, where MIG plays a part; empty: unknown, or not asked.
        isolation: What the system shows of the host's devices, given to this container or not; None: not looked at.
        uuids: UUIDs of the visible devices by ordinal, from a driver that has started; None: unknown.
        inherited: Whether a mask is set, and this process was started with it and the order as they are now: the driver
            has read them; False: it was not, or that is not known, or nothing depends on it.
        exported: The mask as libraries of this process see it, where that is another than in ``os.environ``.
        misspelled: Names of variables that are nearly that of a mask, while none is set.
        refusal: What the driver said when a device was made current; empty: nothing.
        refused: The devices that were refused, as ``cuda:0``; the last one is what *refusal* is about.
        variables: The variables that were looked at and are set.
    """

    mask: Mask
    device_count: int
    driver_count: int | None = None
    count_evidence: str = ""
    forked: bool = False
    cuda_build: str | None = None
    hip_build: str | None = None
    driver_cuda: int | None = None
    accelerator: str = ""
    accelerator_count: int = 0
    launch: Launch | None = None
    launch_error: LocalRankError | None = None
    sharing: Sharing | None = None
    found: tuple[int, ...] | None = None
    physical_count: int | None = None
    physical: tuple[PhysicalDevice, ...] | None = None
    driver_release: str = ""
    isolation: Isolation | None = None
    uuids: tuple[str, ...] | None = None
    inherited: bool = False
    exported: Mask | None = None
    misspelled: tuple[str, ...] = ()
    refusal: str = ""
    refused: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


snapshot_of = quickly(Snapshot)


def visible_devices(snapshot: Snapshot) -> tuple[PhysicalDevice, ...] | None:
    """Which device of the machine each ordinal is; None where that cannot be known.

    Numbers in a mask, and ordinals without one, count in CUDA's order, which is NVML's only under
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; where all devices are of one model, the orders are taken to agree. Where NVML
    counts a device that it cannot ask about, nobody tells which numbers the driver gives to the others.

    Source:
        https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    machine = snapshot.physical
    if machine is None:
        return None
    if snapshot.uuids is not None:
        by_uuid = {device.uuid: device for device in machine}
        told = [by_uuid.get(uuid) for uuid in snapshot.uuids]
    elif snapshot.driver_count is not None:
        return None  # the mask may have been changed since the driver read it
    else:
        told = expected_devices(snapshot)
    known = tuple(device for device in told if device is not None)
    return known if len(known) == len(told) == snapshot.device_count else None


def expected_devices(snapshot: Snapshot) -> list[PhysicalDevice | None]:
    """Which device of the machine each ordinal would be, if the driver started now; None: one that cannot be told."""
    machine = snapshot.physical or ()
    numbers = list(range(len(machine))) if snapshot.mask.raw is None else snapshot.mask.entries
    ordered = (
        snapshot.variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({d.name for d in machine if d.name}) <= 1
    )
    certain = ordered and not _lost(machine)
    told: list[PhysicalDevice | None] = []
    for entry in numbers:
        if isinstance(entry, int):
            if entry >= len(machine):
                break
            told.append(machine[entry] if certain else None)
        else:
            fitting = [device for device in machine if device.uuid.startswith(entry)]
            if len(fitting) != 1:
                break
            told.append(fitting[0])
    return told


def _lost(machine: Sequence[PhysicalDevice]) -> int:
    """How many devices NVML counts and cannot ask about, while it can about others: no driver shows those."""
    without = sum(not device.uuid for device in machine)
    return without if without < len(machine) else 0


def overtaken(snapshot: Snapshot) -> bool:  # noqa: PLR0911 - a table of cases
    """Whether the mask, as it is now, is not the one that the driver started under; False where that cannot be told."""
    count, entries, machine = snapshot.driver_count, snapshot.mask.entries, snapshot.physical_count
    if snapshot.inherited or any(defect.instead and defect.code != "mask-repeated" for defect in snapshot.mask.defects):
        return False  # how the driver reads what nearly is a device is not known
    if count and not entries and snapshot.mask.raw is not None:
        return True  # it leaves nothing, and the driver has devices
    if count is not None and any(str(entry).startswith("MIG-") for entry in entries):
        return count > len(entries) or _other_instance(snapshot)
    if count is None or machine is None:
        return False
    if any(device.mig for device in snapshot.physical or ()):
        return False  # what is visible of it is its instances, and how many of them depends on the driver
    if not any(device.uuid for device in snapshot.physical or ()):
        if snapshot.mask.raw is None:
            return False  # fewer may as well be lost, and more be parts of one
        numbers = [entry for entry in entries if isinstance(entry, int)]
        here = next((n for n, entry in enumerate(numbers) if entry >= machine), len(numbers))
        return len(numbers) == len(entries) and here != count
    told = [device.uuid if device is not None else None for device in expected_devices(snapshot)]
    lost = min(told.count(None), _lost(snapshot.physical or ()))  # as many of those that the mask names may be lost
    if not len(told) - lost <= count <= len(told):
        return True
    if len(told) != count:
        return False  # which of them is the lost one cannot be told
    known = snapshot.uuids if snapshot.uuids is not None and len(snapshot.uuids) == count else told
    listed = {device.uuid for device in snapshot.physical or ()}  # another one may be that of a part of a device
    return any(one not in {None, other} and other in listed for one, other in zip(told, known, strict=True))


def _other_instance(snapshot: Snapshot) -> bool:
    """Whether ordinal 0 is surely another instance than the first one of the mask."""
    first = (snapshot.uuids or ("",))[0].lower()
    if not first:
        return False
    for device in snapshot.physical or ():
        if device.uuid.lower() == first:
            return not device.mig  # an older driver tells an instance by the UUID of its device
    entry = str(snapshot.mask.entries[0]).lower()
    return "/" not in entry and not first[4:].startswith(entry[4:])


ANEW = (
    "restart the process (in a notebook, the kernel), and set the mask in the shell, or call guard_visible_devices() "
    "before anything asks CUDA"
)
"""What to do about a mask that came too late."""


def late(snapshot: Snapshot) -> str:
    """Say, in a clause, that the mask was changed after the driver had started, as `overtaken` has found.

    It may be the order of the devices that was changed: that moves devices, and drops none.
    """
    either = snapshot.variables.get("CUDA_DEVICE_ORDER") and len(expected_devices(snapshot)) == snapshot.driver_count
    return (
        f"{snapshot.mask.variable} is {state(snapshot.mask.raw)} now, and CUDA had started before "
        f"{'it, or CUDA_DEVICE_ORDER,' if either else 'it'} was changed: "
        f"it holds to {counted(snapshot.device_count, 'device')}"
    )
