"""The reasons that lie in the mask."""

from __future__ import annotations

from safedev._diagnosis import Finding
from safedev._mask import CUDA_VISIBLE_DEVICES, rewriting
from safedev._request import request_for
from safedev._resolve import resolve
from safedev._rocm import HIP_VISIBLE_DEVICES, hip_end
from safedev._snapshot import ANEW, expected_devices, late, overtaken, visible_devices
from safedev._text import counted, quoted, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safedev._diagnosis import Diagnosis
    from safedev._snapshot import Snapshot


_OF_THIS_PROCESS = request_for("cuda")

_BY_ROCM = frozenset({"count-disagrees", "masks-stacked"})  # on a build for HIP: what its own grammar makes of a mask

REFUSALS = frozenset({"device-unusable", "driver-unusable"})
"""Codes of findings about a device that is there, by the right ordinal, and refuses."""


def lister(snapshot: Snapshot) -> str:
    """The command that lists the devices of the machine, of the maker that this build of torch is for."""
    return "rocm-smi" if snapshot.hip_build else "nvidia-smi"


def wants_cuda(case: Diagnosis) -> bool:
    return case.request.kind in {"auto", "cuda", "ordinal", "uuid"}


def first(snapshot: Snapshot) -> str | None:
    """The device to be suggested: that of this process under a launcher, else the first that has not refused.

    All workers of a launch are advised alike, so that no device may be advised to all of them.
    """
    if snapshot.launch is not None or snapshot.launch_error is not None:
        device = resolve(_OF_THIS_PROCESS, snapshot)[0]
        return None if device in snapshot.refused else device
    visible = (f"cuda:{ordinal}" for ordinal in range(snapshot.device_count))
    return next((device for device in visible if device not in snapshot.refused), None)


def use_one_of(snapshot: Snapshot) -> str:
    device, last = first(snapshot), snapshot.device_count - 1
    if snapshot.launch is not None and snapshot.device_count:
        rank = snapshot.launch.local_rank
        if device is not None:
            return f"use {device}, the device of local rank {rank}"
        crowd = max(snapshot.launch.local_world_size or 0, rank + 1) > snapshot.device_count
        most = counted(snapshot.device_count, "worker")
        return f"start at most {most} on this node" if crowd else "give each worker a device of its own"
    if device is None and snapshot.launch_error is not None and snapshot.device_count:
        return "set LOCAL_RANK, by which each worker is told its device"
    if device is None:
        return "use the CPU, or make a device visible"
    while f"cuda:{last}" in snapshot.refused:
        last -= 1
    if device == f"cuda:{last}":
        return f"use {device}"
    return f"use {device} or cuda:1" if last == 1 else f"use one of {device} to cuda:{last}"


def codes(found: Sequence[Finding]) -> set[str]:
    return {finding.code for finding in found}


def rewrite(case: Diagnosis) -> str:
    """What to do about a mask with a defect."""
    mask, machine = case.snapshot.mask, case.snapshot.physical_count
    instead = mask.defects[-1].instead
    if machine and instead and instead.replace(",", "").isdecimal():  # of a range, what this machine has
        here = [number for number in instead.split(",") if int(number) < machine]
        instead = ",".join(here) or None
    return rewriting(mask, instead) + (_and_then(case, instead) if instead else "")


def _and_then(case: Diagnosis, mask: str) -> str:
    """What to ask for besides, where *mask* shows fewer devices than the request needs; empty if one cannot be had."""
    number, asked = len(mask.split(",")), case.request.ordinal
    if asked is None or asked < number or case.snapshot.device_count < number or case.snapshot.refused:
        return ""
    return ", and use cuda:0" if number == 1 else f", and use one of cuda:0 to cuda:{number - 1}"


def mask_defects(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    if not wants_cuda(case) or "mask-too-late" in codes(found):
        return  # whatever is wrong with it, it is not what hides a device here
    mask = case.snapshot.mask
    if case.snapshot.hip_build and (codes(found) & _BY_ROCM or hip_end(mask.raw or "") is None):
        return  # the words are of CUDA's grammar, and HIP's differs
    for defect in mask.defects[-1:]:
        start, end = defect.span
        entry = quoted((mask.raw or "")[start:end])
        reason = f"in {mask.variable}, {entry}: {defect.reason}"
        yield Finding(code=defect.code, reason=reason, remedy=rewrite(case), span=defect.span)


def too_late(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if snapshot.driver_count is None or snapshot.refusal or not wants_cuda(case) or not overtaken(snapshot):
        return  # after a refusal the driver has only just started, under the mask as it is
    yield Finding(
        code="mask-too-late",
        reason=late(snapshot),
        remedy=f"{ANEW}; here, {use_one_of(snapshot)}",
        suggestion=first(snapshot),
    )


def not_in_force(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    mask, exported = case.snapshot.mask, case.snapshot.exported
    if exported is not None and wants_cuda(case):
        yield Finding(
            code="mask-not-in-force",
            reason=f"{mask.variable} is {state(mask.raw)} in os.environ, and {state(exported.raw)} in the environment "
            "that the driver reads",
            remedy="change os.environ in place, never assign to it, and leave os.putenv alone",
        )


def unknown_entry(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    mask, machine = snapshot.mask, snapshot.physical_count
    if not mask.entries or not machine or not wants_cuda(case) or codes(found) & {"mask-too-late", "driver-unusable"}:
        return

    def known(entry: int | str) -> bool:
        if isinstance(entry, int):
            return entry < machine
        return snapshot.physical is None or (instance(entry) if entry[:4] == "MIG-" else fitting(entry) == 1)

    def instance(uuid: str) -> bool:
        # The driver's word goes before NVML's; `MIG-GPU-<uuid>/1/0` is another spelling, which NVML does not know.
        shown = uuid in mask.entries[: snapshot.device_count] or "/" in uuid
        return shown or instances is None or any(one.startswith(uuid) for one in instances)

    def fitting(entry: int | str) -> int:
        return sum(device.uuid.startswith(str(entry)) for device in snapshot.physical or ())

    instances = listed_instances(snapshot)
    for place, entry in enumerate(mask.entries):
        if not known(entry):
            kept = ",".join(str(one) for one in mask.entries[: place + 64] if known(one))
            here = _what_is_here(entry, machine, fitting(entry), instances)
            yield Finding(
                code="mask-unknown-device",
                reason=f"{mask.variable} names {quoted(str(entry))}, and {here}: it and all that follow are hidden",
                remedy=f"write {mask.variable}={kept}{_and_then(case, kept)}"
                if kept
                else f"unset {mask.variable}, or name what is here",
                suggestion=first(snapshot),
                span=mask.span_of(place),
            )
            return


def one_device_twice(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    """Tell that two UUIDs of the mask, cut differently short, are one device's.

    Source:
        ``torch/cuda/__init__.py``, ``_transform_uuid_to_ordinals``.
    """
    if not wants_cuda(case) or "mask-too-late" in codes(found):
        return
    mask = case.snapshot.mask
    named: list[str] = []
    for entry in mask.entries:
        fitting = [device.uuid for device in case.snapshot.physical or () if device.uuid.startswith(str(entry))]
        if len(fitting) != 1:
            break  # the list ends here, or holds no UUIDs
        named += fitting
    again = next((place for place, uuid in enumerate(named) if uuid in named[:place]), None)
    if again is not None:
        yield Finding(
            code="mask-repeated",
            reason=f"in {mask.variable}, {quoted(str(mask.entries[again]))} is a device that the list holds already: "
            "a repeated entry hides every device",
            remedy=f"name each device once: {mask.variable}={','.join(dict.fromkeys(named))}",
            span=mask.span_of(again),
        )


def listed_instances(snapshot: Snapshot) -> list[str] | None:
    """UUIDs of the machine's MIG instances; None where not all are known."""
    if snapshot.physical is None:
        return None
    divided = [device.instances for device in snapshot.physical if device.mig]
    return None if None in divided else [uuid for told in divided for uuid in told or ()]


def _what_is_here(entry: int | str, machine: int, fits: int, instances: Sequence[str] | None) -> str:
    """What this machine has in place of an entry that names no device, in a clause."""
    if instances is not None and str(entry).startswith("MIG-"):
        shown = f": {instances[0]}" + ", ..." * (len(instances) > 1) if instances else ""
        return f"this machine (or container) has {counted(len(instances), 'MIG instance')}{shown}"
    if isinstance(entry, str):
        what = f"this machine (or container) has {counted(machine, 'device')}"
        return f"{what}, and {fits} of them fit it" if fits else f"{what}, none by that UUID"
    numbers = f", 0 {'and' if machine == 2 else 'to'} {machine - 1}" if machine > 1 else ""
    return f"this machine (or container) has {counted(machine, 'device')}{numbers}"


def hides_all(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    snapshot, mask = case.snapshot, case.snapshot.mask
    if case.device is not None or snapshot.device_count or not mask.hides_all or not wants_cuda(case):
        return
    if "no-cuda-device" in codes(found):
        return  # there is nothing to hide
    by_rocm, remedy = "", f"unset {mask.variable}, or list the devices to use: {mask.variable}=0"
    if snapshot.hip_build and mask.raw == "":
        read = "torch says so; ROCm takes an empty one as unset"
        inner = snapshot.variables.get(CUDA_VISIBLE_DEVICES)
        if mask.variable == HIP_VISIBLE_DEVICES and inner:
            if codes(found) & _BY_ROCM:
                return  # told already, with what ROCm shows
            read += f", and reads {CUDA_VISIBLE_DEVICES}={quoted(inner)} in its place"
            remedy = f"list the devices to use: {mask.variable}=0"
        by_rocm = f" ({read})"
    reason = f"{mask.variable}={quoted(mask.raw or '')} hides every device{by_rocm}"
    yield Finding(code="mask-hides-all", reason=reason, remedy=remedy)


def physical_index(case: Diagnosis, found: Sequence[Finding]) -> Iterator[Finding]:
    asked, mask, count = case.request.ordinal, case.snapshot.mask, case.snapshot.device_count
    elsewhere = {"mask-too-late", "mask-not-in-force", "masks-stacked", *REFUSALS}
    if case.request.kind != "ordinal" or case.device is not None or codes(found) & elsewhere:
        return
    if asked in mask.entries[:count]:
        ordinal = mask.entries.index(asked)
        # Once the driver has started, only the devices themselves can tell that the mask is still the one it read.
        visible = visible_devices(case.snapshot)
        holds = visible is not None and [*visible] == expected_devices(case.snapshot)
        sure = case.snapshot.driver_count is None or case.snapshot.inherited or holds
        unless = "" if sure else ", unless the mask was changed after CUDA had started"
        yield Finding(
            code="physical-index",
            reason=f"{asked} is what the mask calls the device; "
            f"in this process that device is ordinal {ordinal}{unless}",
            remedy=f"use cuda:{ordinal}" if sure else "ask for the device by UUID, which means the same under any mask",
            suggestion=f"cuda:{ordinal}" if sure else None,
            span=mask.span_of(ordinal),
        )


def misspelled(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    for name in case.snapshot.misspelled[:1]:
        if wants_cuda(case):
            yield Finding(
                code="mask-misspelled",
                reason=f"no mask is set, and {quoted(name)} is, which CUDA does not read",
                remedy=f"rename it to {CUDA_VISIBLE_DEVICES} if it is meant as the mask",
            )


def order_ambiguous(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if not snapshot.physical or not wants_cuda(case) or snapshot.variables.get("CUDA_DEVICE_ORDER"):
        return
    models = sorted({device.name for device in snapshot.physical if device.name})  # a lost one has no name
    numbers = snapshot.mask.raw is None or any(isinstance(entry, int) for entry in snapshot.mask.entries)
    if len(models) < 2 or not numbers:
        return
    shown = ", ".join(quoted(model, 40) for model in models[:4])
    yield Finding(
        code="order-ambiguous",
        reason=f"the devices differ ({shown}), and CUDA counts the fastest first: nvidia-smi may count otherwise",
        remedy="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or call guard_visible_devices(order='PCI_BUS_ID') before CUDA starts",
    )
