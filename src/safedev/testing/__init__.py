"""Test what code does with devices, on a machine that has none.

:func:`fake_cuda` makes ``torch.cuda`` answer as on a machine with GPUs; :func:`launched_by` gives the environment that
a launcher makes; :func:`check_launcher` and :func:`check_policy` try what others add to safedev.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safedev.testing._checks import check_launcher, check_policy
    from safedev.testing._fake import fake_cuda
    from safedev.testing._launched import launched_by
    from safedev.testing._machine import FakeCudaError, FakeDevice, FakeMachine
    from safedev.testing._plugin import InstallFakeCuda

__all__ = [
    "FakeCudaError",
    "FakeDevice",
    "FakeMachine",
    "InstallFakeCuda",
    "check_launcher",
    "check_policy",
    "fake_cuda",
    "launched_by",
]

_MODULES = {
    "FakeCudaError": "_machine",
    "FakeDevice": "_machine",
    "FakeMachine": "_machine",
    "InstallFakeCuda": "_plugin",
    "check_launcher": "_checks",
    "check_policy": "_checks",
    "fake_cuda": "_fake",
    "launched_by": "_launched",
}


if not TYPE_CHECKING:  # a checker would take every name that is missing here for an object

    def __getattr__(name: str) -> object:
        """Import what is asked for, and only then: pytest loads the plug-in beside this file in every session."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
