"""Which devices this process may see: checked, or set, before CUDA starts."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from itertools import pairwise

from safedev._index import index_of, is_uuid
from safedev._mask import CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES, Mask, parse_mask, rewriting
from safedev._text import counted, marked, quoted, quoted_number
from safedev.errors import MaskError, MaskTooLateError, MaskWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from typing import Literal

    from safedev._mask import MaskDefect
    from safedev._terms import Devices
else:

    def __getattr__(name: str) -> object:
        """Import on demand what only annotations need."""
        if name == "Devices":
            from safedev._terms import Devices

            return Devices
        raise AttributeError(f"module 'safedev.guard' has no attribute {name!r}")


__all__ = ["Devices", "Mask", "guard_visible_devices"]

_ORDERS = ("PCI_BUS_ID", "FASTEST_FIRST")
_MOST_WARNED = 3  # defects of one mask; the first of them are enough to see what is wrong
_MOST = 10**9  # what a number must be below, to be a device at all


def guard_visible_devices(
    devices: Devices = None,
    *,
    order: Literal["PCI_BUS_ID", "FASTEST_FIRST"] | None = None,
    environ: MutableMapping[str, str] | None = None,
) -> Mask:
    """Check the mask, or narrow it, while CUDA has not started.

    For the top of a program, before torch is imported; it also works after, as long as the driver has not started.
    Either all of the change is made, or none. The mask that it knows is ``CUDA_VISIBLE_DEVICES``, which ROCm ignores
    where ``HIP_VISIBLE_DEVICES`` is set, and not empty.

    Args:
        devices: None: the mask in force is read, and kept. Otherwise what this process is left with: an int, text
            (``"0,2"``), a sequence of ints, ``GPU-`` or ``MIG-`` UUIDs; ``[]`` and empty text hide all. Numbers count
            from 0 **in the view that this process has now**: under a mask ``4,5``, 0 is what the mask calls 4. That is
            the view that an earlier call has left: where the script may run again (spawned children and workers import
            it), name devices by UUID, or call this under ``if __name__ == "__main__":``.
        order: Sets ``CUDA_DEVICE_ORDER``: by ``"PCI_BUS_ID"`` ordinals agree with ``nvidia-smi``.
        environ: What to read and write in place of ``os.environ``, as for a child process; no driver is asked then.

    Returns:
        The mask that is in force now. ``entries[n]`` is what ordinal *n* stands for.

    Raises:
        MaskError: The inherited mask does not hold such a device, or the machine is known not to have it; what is named
            is no device, or comes twice, or is of mixed kinds (numbers, ``GPU-``, ``MIG-``); a mask of numbers was
            written under another order; ``os.environ`` is not the environment that the driver reads.
        MaskTooLateError: The driver has started in this process and would not see the change.
        TypeError: *devices* holds what is neither a number nor text.
        ValueError: *order* is no order.

    Warns:
        MaskWarning: The mask has a defect, came after the driver had started, or is not in the environment that the
            driver reads; or no mask is set and a variable is, whose name is nearly that of one.

    Example:
        >>> guard_visible_devices([2, 3], environ={}).entries
        (2, 3)

    Source:
        The driver reads the mask once, when ``cuInit`` runs.
        https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    if order is not None and order not in _ORDERS:
        raise ValueError(f"no order is called {quoted(str(order))}: give {' or '.join(map(repr, _ORDERS))}")
    environ = None if environ is os.environ else environ
    world = os.environ if environ is None else environ
    mask = parse_mask(world.get(CUDA_VISIBLE_DEVICES))
    problem = None
    if environ is None and "ctypes" in sys.modules:  # nearly all that start the driver load it, torch included
        from safedev import _late

        problem = _late.out_of_force(mask, world)
        if devices is None and order is None:
            problem = problem or _late.not_in_force(mask, world) or _late.forked()
    if devices is None:
        _warn(mask, world, problem)
    elif problem:
        raise MaskTooLateError(mask, problem)
    if devices is None and order is None:
        return mask
    from safedev import _late

    if environ is None and (problem := _late.not_in_force(mask, world)):
        raise MaskError(mask, problem)  # what is narrowed here is not what the driver will read
    change = _change(mask, world, devices, order)
    if not change:
        return mask
    if environ is None and (problem := _late.too_late(change)):
        raise MaskTooLateError(mask, problem)
    _late.write(world, change, mask, seen_by_libraries=environ is None)
    return parse_mask(world.get(CUDA_VISIBLE_DEVICES))


def _change(mask: Mask, world: Mapping[str, str], devices: Devices, order: str | None) -> dict[str, str]:
    """The variables to write, without those that have that value already."""
    wanted = {}
    if order is not None:
        before = world.get(CUDA_DEVICE_ORDER)
        if (before or "FASTEST_FIRST") != order and any(isinstance(entry, int) for entry in mask.entries):
            state = "unset" if before is None else "empty"
            written = f"for {quoted(before)}" if before else f"while {CUDA_DEVICE_ORDER} was {state}"
            meaning = "" if before else ", which means FASTEST_FIRST"
            raise MaskError(
                mask,
                f"CUDA_DEVICE_ORDER cannot become {order}: the numbers of the inherited mask count in another order\n"
                f"  mask: {mask.variable}={quoted(mask.raw or '')}, written {written}{meaning}\n"
                "  fix: set CUDA_DEVICE_ORDER where the mask is set, or write the mask with UUIDs",
            )
        wanted[CUDA_DEVICE_ORDER] = order
    if devices is not None:
        wanted[CUDA_VISIBLE_DEVICES] = ",".join(_narrowed(mask, _asked(mask, devices))) or "-1"
    return {name: value for name, value in wanted.items() if world.get(name) != value}


def _asked(mask: Mask, devices: Devices) -> list[int | str]:
    """The devices asked for, as ordinals from 0 and UUIDs.

    Raises:
        TypeError: One is neither a number nor text.
        MaskError: One is negative, no device, or asked for twice.
    """
    if isinstance(devices, str):
        asked: list[object] = [part.strip() for part in devices.split(",")] if devices.strip() else []
    elif isinstance(devices, Iterable) and not isinstance(devices, bytes) and index_of(devices) is None:
        asked = list(devices)
    else:
        asked = [devices]
    wanted: dict[int | str, None] = {}
    for one in asked:
        device = _device(one)
        if device is None or (isinstance(device, int) and not 0 <= device < _MOST):
            shown = quoted_number(device) if isinstance(device, int) else quoted(str(one))
            raise MaskError(
                mask, f"{shown} is no device to be left with: give ordinals from 0, or UUIDs (GPU-..., MIG-...)"
            )
        if device in wanted:
            raise MaskError(mask, f"{quoted(str(device))} is asked for twice: a repeated entry would hide every device")
        wanted[device] = None
    return list(wanted)


def _device(one: object) -> int | str | None:
    if isinstance(one, str):
        if one.isascii() and one.isdecimal():
            return int(one) if len(one) < 10 else None
        return one if is_uuid(one) else None
    if (ordinal := index_of(one)) is not None:
        return ordinal
    raise TypeError(f"a value of type {type(one).__name__} cannot be taken: give ordinals from 0, or UUIDs")


def _narrowed(mask: Mask, wanted: list[int | str]) -> list[str]:
    """What to write for the devices *wanted*, which the mask in force must hold.

    Raises:
        MaskError: The mask does not hold one of them, the machine is known not to have it, or the kinds are mixed.
    """
    if not wanted:
        return []
    from safedev import _nvml  # loads ctypes: only where a mask is to be written

    physical = _nvml.inventory() if any(isinstance(one, str) for one in wanted) or mask.entries else None
    number = _nvml.count() if physical is None else len(physical)
    known = None if physical is None else [device.uuid for device in physical]
    held: list[int | str] = [*(range(number) if mask.raw is None and number is not None else mask.entries)]
    if number is not None:
        held = _really_held(held, number, known)
    free = mask.raw is None and number is None
    written: list[str] = []
    for one in wanted:
        if isinstance(one, int):
            if not free and one >= len(held):
                raise MaskError(mask, _not_held(mask, one, len(held)))
            written.append(str(one if free else held[one]))
        else:
            written.append(_held_uuid(mask, one, held, known))
    if len({entry[:4] if entry[:4] in {"GPU-", "MIG-"} else "" for entry in written}) > 1:
        raise MaskError(mask, "numbers, GPU- and MIG- UUIDs cannot stand in one mask: name all devices in one way")
    ordered = sorted(written)
    if any(a == b or (a[:4] == "GPU-" and b.startswith(a)) for a, b in pairwise(ordered)):
        raise MaskError(mask, "two of the devices asked for are the same: a repeated entry would hide every device")
    return written


def _really_held(held: list[int | str], number: int, known: list[str] | None) -> list[int | str]:
    """What the driver makes of *held* on a machine of *number* devices: it ends at the first that is not here."""
    meant: list[object] = []
    for entry in held:
        fits = [uuid for uuid in known or () if uuid.startswith(str(entry))]
        here = entry < number if isinstance(entry, int) else known is None or entry[:4] == "MIG-" or len(fits) == 1
        if not here:
            break
        meant.append(fits[0] if fits else entry)
    return held[: len(meant)] if len(set(meant)) == len(meant) else []  # one device twice hides every device


def _held_uuid(mask: Mask, uuid: str, held: list[int | str], known: list[str] | None) -> str:
    """The entry for *uuid* under the mask in force; *known* are the machine's UUIDs by physical index, if known."""
    fits = None if known is None or uuid.startswith("MIG-") else [one for one in known if one.startswith(uuid)]
    if mask.raw is None:
        if fits is not None and len(fits) != 1:
            what = "this machine has no such device" if not fits else f"{len(fits)} devices of this machine fit it"
            raise MaskError(mask, f"{quoted(uuid)} names no device: {what}\n  fix: nvidia-smi -L lists the UUIDs")
        return uuid
    listed = [entry for entry in held if isinstance(entry, str) and entry.startswith(uuid)]
    if not listed and fits != []:  # an abbreviated entry may stand for it, unless the machine has no such device
        listed = [entry for entry in held if isinstance(entry, str) and len(entry) > 4 and uuid.startswith(entry)]
    if len(listed) == 1:
        return listed[0]
    if any(isinstance(entry, int) for entry in held):
        raise MaskError(
            mask,
            f"{quoted(uuid)} cannot be found behind a mask of numbers\n{_shown(mask)}\n"
            "  fix: name the device by its ordinal, or have the mask written with UUIDs",
        )
    raise MaskError(mask, _not_held(mask, uuid, len(held)))


def _not_held(mask: Mask, one: int | str, count: int) -> str:
    shown = one if isinstance(one, int) else quoted(one)
    if mask.raw is None:
        there = counted(count, "device") + (f", 0 to {count - 1}" if count else "")
        return f"{shown} names no device: this machine has {there}"
    there = "hides every device"
    fixes = [f"unset {mask.variable}, or write it anew, where it is set; here it is narrowed, never widened"]
    why = ""
    if count:
        there = f"holds ordinals 0 to {count - 1}" if count > 1 else "holds ordinal 0 alone"
        fixes = ["name an ordinal that the mask holds; a mask is narrowed here, never widened"]
    elif mask.defects and not mask.entries:
        fixes = []  # the defect has one
    if count and one in mask.entries:
        why = f"\n  why: {shown} stands in the mask; in this process that device is ordinal {mask.entries.index(one)}"
        fixes.append(
            "if this program has called guard_visible_devices() before (a spawned child, a cell run again), the mask "
            'is that call\'s own: name devices by UUID, or call it under `if __name__ == "__main__":`'
        )
    said = f"{shown} is not among the devices this process has: the inherited mask {there}\n{_shown(mask)}{why}"
    return "\n  fix: ".join([said, *fixes])


def _shown(mask: Mask) -> str:
    """The mask in a message; where it has a defect, with the entry at fault marked, why, and what to write."""
    if mask.defects:
        return _told(mask, mask.defects[-1], "where the mask is set, ")  # the last one decides
    return f"  mask: {mask.variable}={quoted(mask.raw or '')}"


def _told(mask: Mask, defect: MaskDefect, where: str = "") -> str:
    lead = f"  mask: {mask.variable}="
    shown, carets = marked(mask.raw or "", *defect.span)
    fix = where + rewriting(mask, defect.instead)
    return f"{lead}{shown}\n{' ' * len(lead)}{carets}\n  why: {defect.reason} [{defect.code}]\n  fix: {fix}"


def _warn(mask: Mask, world: Mapping[str, str], problem: str | None) -> None:
    """Warn of a mask that is not what the driver reads, of a defect in it, or of a name that is nearly that of one."""
    if problem:
        warnings.warn(problem, MaskWarning, stacklevel=3)
    for defect in mask.defects[:_MOST_WARNED]:
        left = f"leaves {counted(len(mask.entries), 'device')} at most" if mask.entries else "hides every device"
        warnings.warn(
            f"{mask.variable}={quoted(mask.raw or '')} does not do what it says: it {left}\n{_told(mask, defect)}",
            MaskWarning,
            stacklevel=3,
        )
    if mask.raw is None:
        from safedev._misspelled import misspelled

        for name in misspelled(world)[:1]:
            warnings.warn(
                f"no mask is set: CUDA does not read {quoted(name)}, which is set\n"
                f"  why: that is nearly {CUDA_VISIBLE_DEVICES}, and not the same [mask-misspelled]\n"
                f"  fix: rename it to {CUDA_VISIBLE_DEVICES} if it is meant as the mask",
                MaskWarning,
                stacklevel=3,
            )
