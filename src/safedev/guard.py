"""Which devices this process may see: checked, or set, before CUDA starts."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

from safedev._index import index_of
from safedev._mask import CUDA_VISIBLE_DEVICES, Mask, parse_mask
from safedev._text import counted, marked, quoted, quoted_number
from safedev.errors import MaskError, MaskTooLateError, MaskWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence
    from typing import Literal, SupportsIndex

    Devices = SupportsIndex | str | Sequence[SupportsIndex | str] | None

__all__ = ["Mask", "guard_visible_devices"]

CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
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
            from 0 **in the view that this process has now**: under a mask ``4,5``, 0 is what the mask calls 4.
        order: Sets ``CUDA_DEVICE_ORDER``: by ``"PCI_BUS_ID"`` ordinals agree with ``nvidia-smi``.
        environ: What to read and write in place of ``os.environ``, as for a child process; no driver is asked then.

    Returns:
        The mask that is in force now. ``entries[n]`` is what ordinal *n* stands for.

    Raises:
        MaskError: The inherited mask does not hold such a device, or the machine is known not to have it; what is named
            is no device, or comes twice, or is of mixed kinds (numbers, ``GPU-``, ``MIG-``); a mask of numbers was
            written under another order; ``os.environ`` was replaced, and the driver would not read the change.
        MaskTooLateError: The driver has started in this process and would not see the change.
        TypeError: *devices* holds what is neither a number nor text.
        ValueError: *order* is no order.

    Warns:
        MaskWarning: The mask has a defect, or came after the driver had started; or no mask is set and a variable is,
            whose name is nearly that of one.

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
    overtaken = None
    if environ is None and "ctypes" in sys.modules:  # nearly all that start the driver load it, torch included
        from safedev import _late

        overtaken = _late.out_of_force(mask, world) or (_late.not_in_force(mask) if devices is None else None)
    if devices is None:
        _warn(mask, world, overtaken)
    elif overtaken:
        raise MaskTooLateError(mask, overtaken)
    if devices is None and order is None:
        return mask
    change = _change(mask, world, devices, order)
    if not change:
        return mask
    if environ is None:
        from safedev import _late

        if problem := _late.too_late(change):
            raise MaskTooLateError(mask, problem)
    _write(world, change, mask, seen_by_libraries=environ is None)
    return parse_mask(world.get(CUDA_VISIBLE_DEVICES))


def _change(mask: Mask, world: Mapping[str, str], devices: Devices, order: str | None) -> dict[str, str]:
    """The variables to write, without those that have that value already."""
    wanted = {}
    if order is not None:
        in_force = world.get(CUDA_DEVICE_ORDER) or "FASTEST_FIRST"
        if in_force != order and any(isinstance(entry, int) for entry in mask.entries):
            raise MaskError(
                mask,
                f"CUDA_DEVICE_ORDER cannot become {order}: the numbers of the inherited mask count in another order\n"
                f"  mask: {mask.variable}={quoted(mask.raw or '')}, written for {quoted(in_force)}\n"
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
                mask,
                f"{shown} is no device to be left with: give ordinals from 0, or UUIDs (GPU-..., MIG-...)",
            )
        if device in wanted:
            raise MaskError(mask, f"{quoted(str(device))} is asked for twice: a repeated entry would hide every device")
        wanted[device] = None
    return list(wanted)


def _device(one: object) -> int | str | None:
    if isinstance(one, str):
        if one.isascii() and one.isdecimal():
            return int(one) if len(one) < 10 else None
        return one if re.fullmatch(r"(?:GPU|MIG)-[0-9a-zA-Z/-]{1,120}", one) else None
    if (ordinal := index_of(one)) is not None:
        return ordinal
    raise TypeError(f"a value of type {type(one).__name__} is no device: give ordinals from 0, or UUIDs")


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
            f"{quoted(uuid)} cannot be found behind a mask of numbers\n  mask: {mask.variable}={quoted(mask.raw)}\n"
            "  fix: name the device by its ordinal, or have the mask written with UUIDs",
        )
    raise MaskError(mask, _not_held(mask, uuid, len(held)))


def _not_held(mask: Mask, one: int | str, count: int) -> str:
    shown = one if isinstance(one, int) else quoted(one)
    if mask.raw is None:
        there = counted(count, "device") + (f", 0 to {count - 1}" if count else "")
        return f"{shown} names no device: this machine has {there}"
    there = f"ordinals 0 to {count - 1}" if count > 1 else "ordinal 0 alone"
    hint = ""
    if not count:
        return (
            f"{shown} is not among the devices this process has: the inherited mask hides every device\n"
            f"  mask: {mask.variable}={quoted(mask.raw)}\n"
            f"  fix: unset {mask.variable}, or write it anew, where it is set; here it is narrowed, never widened"
        )
    if one in mask.entries:
        hint = f"\n  why: {shown} stands in the mask; in this process that device is ordinal {mask.entries.index(one)}"
    return (
        f"{shown} is not among the devices this process has: the inherited mask holds {there}\n"
        f"  mask: {mask.variable}={quoted(mask.raw)}{hint}\n"
        "  fix: name an ordinal that the mask holds; a mask is narrowed here, never widened"
    )


def _warn(mask: Mask, world: Mapping[str, str], overtaken: str | None) -> None:
    """Warn of a mask that came too late, of a defect in it, or of a name that is nearly that of one."""
    if overtaken:
        warnings.warn(overtaken, MaskWarning, stacklevel=3)
    for defect in mask.defects[:_MOST_WARNED]:
        shown, carets = marked(mask.raw or "", *defect.span)
        lead = f"  {mask.variable}="
        fix = f"unset {mask.variable}" if defect.instead is None else f"write {mask.variable}={defect.instead}"
        warnings.warn(
            f"{mask.variable} has an entry that does not do what it says\n"
            f"{lead}{shown}\n{' ' * len(lead)}{carets}\n  why: {defect.reason} [{defect.code}]\n  fix: {fix}",
            MaskWarning,
            stacklevel=3,
        )
    if mask.raw is None:
        from safedev._misspelled import misspelled

        for name in misspelled(world)[:1]:
            warnings.warn(
                f"no mask is set, and {quoted(name)} is\n  why: nothing reads that variable [mask-misspelled]\n"
                f"  fix: rename it to {CUDA_VISIBLE_DEVICES}, or unset it",
                MaskWarning,
                stacklevel=3,
            )


def _refuse_unseen(mask: Mask, change: Mapping[str, str]) -> None:
    """Refuse where what was written to ``os.environ`` did not reach the environment that libraries read."""
    from safedev import _library

    unseen = [name for name, value in change.items() if _library.environment(name) != value]
    if unseen:
        raise MaskError(
            mask,
            f"{unseen[0]} cannot be set: os.environ has been replaced, and what is written there reaches no library\n"
            "  fix: change os.environ in place (os.environ.update(...)), never assign to it [mask-not-in-force]",
        )


def _write(world: MutableMapping[str, str], change: Mapping[str, str], mask: Mask, *, seen_by_libraries: bool) -> None:
    """Write all of *change*, or nothing."""
    before = {name: world.get(name) for name in change}
    try:
        for name, value in change.items():
            world[name] = value
        if seen_by_libraries:
            _refuse_unseen(mask, change)
    except BaseException:
        for name, old in before.items():
            with suppress(Exception):  # a mapping that cannot be written at all is as it was
                if old is None:
                    world.pop(name, None)
                else:
                    world[name] = old
        raise
