"""One question to a library of the driver that is loaded already."""

from __future__ import annotations

import ctypes
import os
import sys

if sys.platform != "win32":
    from _ctypes import dlopen, dlsym

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_QUESTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
if sys.platform != "win32":
    # The C library's getenv, which libraries of this process call.
    _getenv = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_char_p)(dlsym(ctypes.pythonapi._handle, "getenv"))  # noqa: SLF001


def ask(name: str, function: str) -> tuple[int, int] | None:
    """Call ``int function(int *answer)`` of the library *name*.

    Returns:
        The status and the answer; None where the library is not loaded, or has no such function.
    """
    handle = loaded(name)
    if handle is None:
        return None
    answer = ctypes.c_int()
    try:
        status: int = _function(handle, function)(ctypes.byref(answer))
    except (AttributeError, OSError):  # a stand-in for the library, without its functions
        return None
    return status, answer.value


def _function(handle: int, name: str) -> Callable[[object], int]:
    """The function *name* of a library; a `CDLL(...)` would make a class for it, at ten times the question's cost."""
    if sys.platform == "win32":
        library = ctypes.CDLL.__new__(ctypes.CDLL)
        library._handle = handle  # noqa: SLF001 - all that a prototype needs of it
        return _QUESTION((name, library))
    return _QUESTION(dlsym(handle, name))


def environment(name: str) -> str | None:
    """The variable *name* as libraries of this process see it; None: unset, or this system does not tell.

    It differs from ``os.environ`` where that was replaced by another mapping, or passed over by ``os.putenv``.
    """
    if sys.platform == "win32":
        return os.environ.get(name)
    value: bytes | None = _getenv(name.encode())
    return None if value is None else os.fsdecode(value)


def unseen(variables: Mapping[str, str | None]) -> str | None:
    """The first of *variables* whose value libraries of this process do not see; None where they see all as they are.

    Args:
        variables: Each name with its value; None: it is unset.
    """
    for name, value in variables.items():
        if environment(name) != value:
            return name
    return None


def inherited(variables: Mapping[str, str | None]) -> bool:
    """Whether this process was started with *variables* as they are now; False where the system does not tell.

    Args:
        variables: Each name with its value; None: it is unset.

    Source:
        https://man7.org/linux/man-pages/man5/proc_pid_environ.5.html
    """
    from pathlib import Path  # only where there is something to explain

    try:
        text = os.fsdecode(Path("/proc/self/environ").read_bytes())
    except OSError:
        return False
    began = {name: value for name, _, value in (entry.partition("=") for entry in text.split("\0"))}
    return all(began.get(name) == value for name, value in variables.items())


def can_load(name: str) -> bool:
    """Whether the library *name* can be had here; it is loaded, if it was not yet, and nothing in it is called."""
    try:
        ctypes.CDLL(name) if sys.platform == "win32" else dlopen(name, os.RTLD_NOW)
    except OSError:
        return False
    return True


def loaded(name: str) -> int | None:
    """Handle of the library *name*, if something in this process has loaded it; it is not loaded for the asking."""
    if sys.platform == "win32":
        find = ctypes.WinDLL("kernel32").GetModuleHandleW
        find.restype = ctypes.c_void_p  # an int would be cut to 32 bits
        return find(name)
    try:
        return dlopen(name, os.RTLD_NOLOAD | os.RTLD_NOW)
    except (OSError, AttributeError):  # AttributeError: a system without RTLD_NOLOAD has no CUDA either
        return None
