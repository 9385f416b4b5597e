"""Whether a mask comes too late: what a driver that has started in this process holds to; and writing one."""

from __future__ import annotations

from contextlib import suppress

from safedev import _driver, _library, _nvml
from safedev._mask import CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES
from safedev._snapshot import ANEW, Snapshot, late, overtaken
from safedev._text import counted, quoted, state
from safedev.errors import MaskError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from safedev._mask import Mask

_SPAWN = 'start it with the "spawn" or "forkserver" method, or fork before CUDA starts'


def out_of_force(mask: Mask, world: Mapping[str, str]) -> str | None:
    """Say that *mask* is not the one that the driver started under; None where it is, or the driver has not started."""
    count = _driver.frozen_count()
    if count is None:
        return None
    if mask.raw is not None and _library.inherited(_settings(mask, world)):
        return None  # the driver has read it
    physical = _nvml.inventory()
    held = Snapshot(
        mask=mask,
        device_count=count,
        driver_count=count,
        physical=physical,
        physical_count=_nvml.count() if physical is None else len(physical),
        uuids=_driver.uuids(),
        variables={CUDA_DEVICE_ORDER: world.get(CUDA_DEVICE_ORDER, "")},
    )
    if not overtaken(held):
        return None
    return f"{late(held)}\n  why: the driver reads the mask once, when it starts [mask-too-late]\n  fix: {ANEW}"


def _settings(mask: Mask, world: Mapping[str, str]) -> dict[str, str | None]:
    """What decides which devices the driver shows, and in which order."""
    return {CUDA_VISIBLE_DEVICES: mask.raw, CUDA_DEVICE_ORDER: world.get(CUDA_DEVICE_ORDER)}


def forked() -> str | None:
    """Say that CUDA cannot be used in this process, which was forked too late; None where that is not known."""
    if not _driver.in_bad_fork():
        return None
    return (
        "this process was forked after its parent had started CUDA, and cannot use CUDA at all\n"
        "  why: CUDA does not work in a process that was forked after it had started [driver-unusable]\n"
        f"  fix: {_SPAWN}"
    )


def not_in_force(mask: Mask, world: Mapping[str, str]) -> str | None:
    """Say that the mask or the order, as ``os.environ`` has it, is not what libraries see; None where both are."""
    here = _settings(mask, world)
    name = _library.unseen(here)
    if name is None:
        return None
    there = state(_library.environment(name))
    return (
        f"{name} is {state(here[name])} in os.environ, and {there} in the environment that the driver reads\n"
        "  why: os.environ has been replaced, or os.putenv passed it over [mask-not-in-force]\n"
        "  fix: change os.environ in place, never assign to it, and leave os.putenv alone"
    )


def too_late(change: Mapping[str, str]) -> str | None:
    """Say that *change* would come too late; None where it would not."""
    count = _driver.frozen_count()
    wanted = " and ".join(f"{name}={quoted(value)}" for name, value in change.items())
    if count is not None:
        return (
            f"{wanted} comes too late: CUDA has started in this process, and holds to {counted(count, 'device')}\n"
            "  why: the driver reads the mask once, when it starts; torch.cuda.is_available() is enough for that "
            "[mask-too-late]\n"
            f"  fix: {ANEW}"
        )
    if _driver.in_bad_fork():
        return (
            f"{wanted} comes too late: this process was forked after its parent had started CUDA\n"
            "  why: CUDA cannot be used at all in such a process, whatever the mask [driver-unusable]\n"
            f"  fix: {_SPAWN}"
        )
    return None


def _refuse_unseen(mask: Mask, change: Mapping[str, str]) -> None:
    """Refuse where what was written to ``os.environ`` did not reach the environment that libraries read."""
    unseen = _library.unseen(change)
    if unseen is not None:
        raise MaskError(
            mask,
            f"{unseen} cannot be set: what is written to os.environ reaches no library\n"
            "  why: os.environ has been replaced by another mapping [mask-not-in-force]\n"
            "  fix: change os.environ in place (os.environ.update(...)), never assign to it",
        )


def write(world: MutableMapping[str, str], change: Mapping[str, str], mask: Mask, *, seen_by_libraries: bool) -> None:
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
