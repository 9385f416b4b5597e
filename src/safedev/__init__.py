"""No PyTorch process lands on a wrong or missing GPU without being told why.

``select_device()`` and ``set_device()`` in place of a hard-coded ``torch.cuda.set_device(n)``,
``resolve_local_rank()`` under any launcher, ``guard_visible_devices()`` before CUDA starts, and ``diagnose()``.
"""

from __future__ import annotations

# A plain name, known to type checkers, for the module `typing` is costly to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from safedev import errors as errors
    from safedev import guard as guard
    from safedev import launchers as launchers
    from safedev import policies as policies
    from safedev import testing as testing
    from safedev._select import diagnose, resolve_local_rank, select_device, set_device
    from safedev.errors import (
        DeviceSpecError,
        FallbackWarning,
        InvalidDeviceError,
        LocalRankError,
        LocalRankWarning,
        MaskError,
        MaskTooLateError,
        MaskWarning,
        SafedevError,
        SafedevWarning,
    )
    from safedev.guard import guard_visible_devices

__all__ = [
    "DeviceSpecError",
    "FallbackWarning",
    "InvalidDeviceError",
    "LocalRankError",
    "LocalRankWarning",
    "MaskError",
    "MaskTooLateError",
    "MaskWarning",
    "SafedevError",
    "SafedevWarning",
    "diagnose",
    "guard_visible_devices",
    "resolve_local_rank",
    "select_device",
    "set_device",
]
__version__ = "0.1.0"

_HOMES = {
    "guard_visible_devices": "guard",
    **dict.fromkeys(("diagnose", "resolve_local_rank", "select_device", "set_device"), "_select"),
}
_MODULES = frozenset({"errors", "guard", "launchers", "policies", "testing"})


if not TYPE_CHECKING:  # a checker would take any misspelled name for something that this finds

    def __getattr__(name: str) -> object:
        """Import on demand: who needs the guard alone, before torch, pays for nothing else."""
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"safedev.{name}")
        if name in __all__:
            found = getattr(import_module(f"safedev.{_HOMES.get(name, 'errors')}"), name)
            globals()[name] = found  # from now on it is found without this function
            return found
        raise AttributeError(f"module 'safedev' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
