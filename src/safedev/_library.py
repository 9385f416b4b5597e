"""One question to a library of the driver that is loaded already."""

from __future__ import annotations

import ctypes
import os
import sys

_QUESTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))


class _Handle:
    """What ctypes needs of a library. ``ctypes.CDLL`` makes a class each time, which costs more than the question."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle


def ask(library: str, function: str) -> tuple[int, int] | None:
    """Call ``int function(int *answer)`` of *library*.

    Returns:
        The status and the answer; None where the library is not loaded, or has no such function.
    """
    handle = loaded(library)
    if handle is None:
        return None
    answer = ctypes.c_int()
    try:
        status = _QUESTION((function, _Handle(handle)))(ctypes.byref(answer))
    except AttributeError:  # a stand-in for the library, without its functions
        return None
    return status, answer.value


def loaded(library: str) -> int | None:
    """Handle of *library*, if something in this process has loaded it; it is not loaded for the asking."""
    if sys.platform == "win32":
        return ctypes.windll.kernel32.GetModuleHandleW(library) or None
    try:
        return ctypes._dlopen(library, os.RTLD_NOLOAD | os.RTLD_NOW)  # noqa: SLF001 - what CDLL itself calls
    except (OSError, AttributeError):  # AttributeError: a system without RTLD_NOLOAD has no CUDA either
        return None
