"""The errors and warnings of safedev itself; ``safedev.testing`` has one more.

All errors derive from :class:`SafedevError`, keep their parts as attributes
and survive pickling. All warnings derive from :class:`SafedevWarning`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safedev._diagnosis import Diagnosis
    from safedev._mask import Mask

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
]


class SafedevError(Exception):
    """Base of every error of this library."""


class InvalidDeviceError(SafedevError, RuntimeError):
    """The wanted device cannot be had, and no policy chose another.

    It is a ``RuntimeError`` as well, so that code that caught torch's own error still works.

    Attributes:
        diagnosis: The request, the reading it was judged by, and the findings.
        declined: What became of the fallback, in a clause; empty where none was asked for.
    """

    def __init__(self, diagnosis: Diagnosis, declined: str = "") -> None:
        super().__init__(diagnosis, declined)
        self.diagnosis = diagnosis
        self.declined = declined

    def __str__(self) -> str:
        return self.diagnosis.render() + (f"\n  fallback: {self.declined}" if self.declined else "")


class DeviceSpecError(SafedevError, ValueError):
    """A text that names no device, or a ``torch.device`` that is neither the CPU nor an accelerator.

    Attributes:
        spec: The text as it was given; that of the ``torch.device``.
        problem: What is wrong with it, and which forms are taken.
    """

    def __init__(self, spec: str, problem: str) -> None:
        super().__init__(spec, problem)
        self.spec = spec
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class LocalRankError(SafedevError, RuntimeError):
    """A launcher is there, but the local rank cannot be told.

    Attributes:
        launcher: Name of the launcher, or of both where two disagree.
        variable: Environment variable at fault; where none is set, the first that was looked for.
        value: What it holds; None when it is unset.
        problem: What is wrong, in full.
    """

    def __init__(self, launcher: str, variable: str, value: str | None, problem: str) -> None:
        super().__init__(launcher, variable, value, problem)
        self.launcher = launcher
        self.variable = variable
        self.value = value
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class MaskError(SafedevError, ValueError):
    """The guard cannot set the mask that was asked for; nothing was changed.

    Attributes:
        mask: The mask in force.
        problem: What is wrong, in full.
    """

    def __init__(self, mask: Mask, problem: str) -> None:
        super().__init__(mask, problem)
        self.mask = mask
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class MaskTooLateError(MaskError):
    """The driver has started in this process and would not see the change; nothing was changed.

    Attributes:
        mask: The mask as the environment has it now.
        problem: What is wrong, in full, with the number of devices that the driver holds to.
    """


class SafedevWarning(UserWarning):
    """Base of every warning of this library."""


class FallbackWarning(SafedevWarning):
    """A policy chose another device than the one that was asked for."""


class LocalRankWarning(SafedevWarning):
    """The local rank, or what it means for the device, is in doubt."""


class MaskWarning(SafedevWarning):
    """The mask has a defect, was changed too late, is not the one that the driver reads, or has a misspelled name."""
