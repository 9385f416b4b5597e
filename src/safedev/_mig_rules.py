"""The reasons that lie in MIG: which instances are visible, and how many."""

from __future__ import annotations

from safedev._diagnosis import Finding
from safedev._mask import CUDA_VISIBLE_DEVICES
from safedev._mask_rules import codes, first, listed_instances, wants_cuda
from safedev._snapshot import visible_devices
from safedev._text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safedev._diagnosis import Diagnosis
    from safedev._snapshot import PhysicalDevice, Snapshot


def mig(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if not wants_cuda(case) or "mask-unknown-device" in codes(found):
        return
    instances = [e for e in snapshot.mask.entries if isinstance(e, str) and e[:4] == "MIG-"]
    devices = [d for d in visible_devices(snapshot) or () if d.mig]
    if len(instances) > 1 and 0 < snapshot.device_count < len(instances):
        recent = _many_instances(snapshot)
        fitting = [uuid for uuid in listed_instances(snapshot) or () if uuid.startswith(instances[0])]
        named = f": {CUDA_VISIBLE_DEVICES}={fitting[0]}" if fitting else ""
        yield Finding(
            code="mask-mig",
            reason=f"the mask lists {len(instances)} MIG instances, and this driver shows {snapshot.device_count} of "
            f"them to one process ({_RULE[recent]})",
            remedy=("update the driver, or " if recent is False else "") + f"give each process one instance{named}",
            suggestion=first(snapshot),
        )
    elif devices and case.device is None:
        device = next((one for one in devices if one.instances), devices[0])
        yield Finding(
            code="mask-mig",
            reason=f"physical device {device.index} is in MIG mode: {_parts(device, snapshot)}",
            remedy=_take_one(device),
        )


_BEFORE, _SINCE = "before driver R570: one at most", "from driver R570 on: one of each GPU instance"
_RULE = {False: _BEFORE, True: _SINCE, None: f"{_BEFORE}; {_SINCE}"}


def divided(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    """Tell both counts where torch counts whole devices, and the driver will show their MIG instances.

    Source:
        https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html, "CUDA Device Enumeration"
    """
    snapshot = case.snapshot
    if not wants_cuda(case) or snapshot.driver_count is not None or snapshot.refusal:
        return
    seen, recent = visible_devices(snapshot) or (), _many_instances(snapshot)
    parted = [device for device in seen if device.mig]
    if not parted or any(device.instances is None for device in parted):
        return  # how many there are is not known
    parts, whole = sum(device.gpu_instances for device in parted), len(seen) - len(parted)
    before, since = min(parts, 1), min(parts + whole, _MOST_SHOWN)
    by_rule = {False: (before, _BEFORE), True: (since, f"{_SINCE}, and whole devices")}
    possible = [*by_rule.values()] if recent is None else [by_rule[recent]]
    if all(number == snapshot.device_count for number, _ in possible):
        return
    told = ", or ".join(f"{number} ({rule})" for number, rule in possible)
    shows = told if parts else f"{whole}, since no instance was made of it"
    yield Finding(
        code="count-disagrees",
        reason=f"torch counts {counted(snapshot.device_count, 'whole device')}, and physical device {parted[0].index} "
        f"is in MIG mode: by NVIDIA's rules the driver, once it has started, shows {shows}",
        remedy=_take_one(next((device for device in parted if device.instances), parted[0])),
    )


_MOST_SHOWN = 64  # of MIG instances and whole devices, to one process


def _many_instances(snapshot: Snapshot) -> bool | None:
    """Whether this driver shows one process several MIG instances, as from R570 on; None: its release is unknown."""
    release = snapshot.driver_release.partition(".")[0]
    return int(release) >= 570 if release.isdecimal() and release.isascii() and len(release) < 9 else None


def _parts(device: PhysicalDevice, snapshot: Snapshot) -> str:
    """What is visible of a device in MIG mode, in a clause."""
    if device.instances is None:
        return "what is visible of it is its instances"
    if not device.instances:
        return "it has no instance, so nothing of it is visible"
    if len(device.instances) == 1:
        return "it has 1 instance, and nothing else of it can be visible"
    recent, shown = _many_instances(snapshot), "how many the driver shows to one process depends on its release"
    if recent is not None:
        shown = f"the driver shows {device.gpu_instances if recent else 1} of them to one process"
    return f"it has {len(device.instances)} instances, and {shown} ({_RULE[recent]})"


def _take_one(device: PhysicalDevice) -> str:
    """What to do with a device in MIG mode."""
    if device.instances is None:
        return f"list instances by UUID (nvidia-smi -L shows them): {CUDA_VISIBLE_DEVICES}=MIG-..."
    if not device.instances:
        return "make instances (nvidia-smi mig -cgi PROFILE -C), or end its MIG mode (nvidia-smi -mig 0)"
    more = "" if len(device.instances) == 1 else f", or another of its {len(device.instances)} (nvidia-smi -L)"
    return f"name an instance by UUID: {CUDA_VISIBLE_DEVICES}={device.instances[0]}{more}"
