"""What must not type-check: read by mypy and pyright, never run.

Each line is an error to both, and is marked as such; a mark that is not needed is itself an error.
"""

from __future__ import annotations

import safedev
from safedev import guard, launchers, policies


def no_answer() -> str:
    return "cpu"


def devices() -> None:
    safedev.select_device(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safedev.select_device(["cuda:0"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safedev.select_device(0, "cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    safedev.select_device(fallback="cuda:1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safedev.set_device(fallback="gpu")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safedev.set_device(fallback=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safedev.set_device(fallback=no_answer)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    policies.first_of(no_answer)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def wrapper(preferred: policies.Preferred, fallback: policies.Fallback, devices: guard.Devices) -> None: ...


def wrapped() -> None:
    wrapper(1.5, "cpu", 0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wrapper(0, "gpu", 0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wrapper(0, "cpu", 1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def local_ranks() -> None:
    safedev.resolve_local_rank(0)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    safedev.resolve_local_rank(default="0")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    launchers.register_launcher("pbs")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def masks() -> None:
    safedev.guard_visible_devices(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safedev.guard_visible_devices(order="PCI")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    safedev.guard_visible_devices(environ=frozenset())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mask = safedev.guard_visible_devices()
    mask.raw = "0"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def diagnoses() -> None:
    safedev.diagnose("cuda:0").render(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    safedev.select_devices()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
