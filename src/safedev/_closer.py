"""What explains a decision, read after it was made."""

from __future__ import annotations

from safedev import _driver, _library, _nvml
from safedev._mask import CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES, parse_mask
from safedev._misspelled import misspelled
from safedev._quick import changed
from safedev._sharing import read_launch
from safedev._snapshot import OTHER_MASKS, overtaken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safedev._request import Request
    from safedev._snapshot import PhysicalDevice, Snapshot, Variables

# Read to be shown, whether or not one of them was read before to decide.
SHOWN = (CUDA_VISIBLE_DEVICES, *OTHER_MASKS)


def look_closer(
    request: Request, snapshot: Snapshot, environ: Variables, names: Iterable[str], *, deep: bool
) -> Snapshot:
    """Add what explains, and decides nothing: who launched this process, what the machine has.

    Args:
        request: What was asked for.
        snapshot: What was decided on; its counts are kept.
        environ: The variables, as far as they have been read.
        names: Names of all variables that are set, for misspelled ones.
        deep: Whether the devices of the machine, and those on its bus, are asked for one by one, which takes
            milliseconds, even where nothing that is to be said depends on them.
    """
    from safedev import _isolation  # only where there is something to explain

    number, physical = _machine(request, snapshot, deep=deep)
    for variable in SHOWN:
        environ.get(variable)
    launch, error, sharing = snapshot.launch, snapshot.launch_error, snapshot.sharing
    if sharing is None:
        launch, error, sharing = read_launch(
            snapshot.mask, snapshot.device_count or snapshot.accelerator_count, environ
        )
    exported = _library.environment(snapshot.mask.variable)
    closer = changed(
        snapshot,
        launch=launch,
        launch_error=error,
        sharing=sharing,
        exported=None if exported == snapshot.mask.raw else parse_mask(exported, variable=snapshot.mask.variable),
        physical=physical,
        physical_count=number,
        driver_release=_nvml.vitals()[0] if _is_of_instances(snapshot, physical) else "",
        uuids=_driver.uuids() if snapshot.driver_count and physical else None,
        isolation=_isolation.read() if deep or not snapshot.device_count else None,
        misspelled=misspelled(names) if snapshot.mask.raw is None else (),
        variables=environ.read(),
    )
    if snapshot.driver_count is not None and (physical is not None or overtaken(closer)):
        return changed(closer, inherited=is_inherited(snapshot, environ))
    return closer


def is_inherited(snapshot: Snapshot, environ: Variables) -> bool:
    """Whether a mask is set, and this process was started with it and the order of the devices as they are now.

    One that is not set may have been, when the driver started.
    """
    mask, order = snapshot.mask, environ.get(CUDA_DEVICE_ORDER)
    return mask.raw is not None and _library.inherited({mask.variable: mask.raw, CUDA_DEVICE_ORDER: order})


def _machine(
    request: Request, snapshot: Snapshot, *, deep: bool
) -> tuple[int | None, tuple[PhysicalDevice, ...] | None]:
    """How many devices the machine has, and which; None where that is unknown, or nothing is to be said of it."""
    look, number = deep or _depends_on_devices(request, snapshot), snapshot.physical_count
    if number is None and not look and not _as_masked(snapshot):
        number = _nvml.count()
        look = snapshot.driver_count not in {None, number}
    physical = _nvml.inventory() if look else None
    if snapshot.physical_count is not None:
        return snapshot.physical_count, physical  # what has been decided on stays as it was read
    if physical is not None:
        return len(physical), physical
    return (_nvml.count() if number is None and look and not _as_masked(snapshot) else number), None


def _is_of_instances(snapshot: Snapshot, physical: tuple[PhysicalDevice, ...] | None) -> bool:
    """Whether MIG plays a part, whose rules depend on the driver's release."""
    entries = snapshot.mask.entries
    return any(device.mig for device in physical or ()) or any(str(entry)[:4] == "MIG-" for entry in entries[:2])


def _as_masked(snapshot: Snapshot) -> bool:
    """Whether the count shows nothing that a look at the machine could explain: it is that of the mask, or unmasked."""
    if snapshot.mask.raw is None:
        return snapshot.driver_count is None and snapshot.device_count > 0
    return snapshot.device_count == len(snapshot.mask.entries)


def _depends_on_devices(request: Request, snapshot: Snapshot) -> bool:
    """Whether something is to be said that depends on which devices there are, and not only on how many."""
    entries = snapshot.mask.entries
    uuids = request.kind == "uuid" or any(isinstance(entry, str) for entry in entries)
    if not snapshot.device_count or snapshot.refusal or uuids:
        return True
    if snapshot.driver_count is None or snapshot.mask.raw is None:
        return False
    # The mask may have been changed under the driver. A count that fits does not exclude it, and then nothing may be
    # said of an entry.
    return snapshot.device_count != len(entries) or request.ordinal in entries
