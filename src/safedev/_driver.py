"""Has the CUDA driver started in this process, asked without starting it?"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

from safedev import _library

NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_NOT_STARTED = {3, 34}  # CUDA_ERROR_NOT_INITIALIZED; CUDA_ERROR_STUB_LIBRARY: there is no driver behind the library

# Asked of a driver that a child process of its own has started: each UUID as 32 hexadecimal digits.
_ASK = """
import ctypes, sys
lib = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
count, device, uuid = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
name = getattr(lib, "cuDeviceGetUuid_v2", None) or lib.cuDeviceGetUuid
ok = lib.cuInit(0) == 0 and lib.cuDeviceGetCount(ctypes.byref(count)) == 0
for ordinal in range(count.value if ok else 0):
    ok = ok and lib.cuDeviceGet(ctypes.byref(device), ordinal) == 0 and name(uuid, device) == 0
    print(bytes(uuid).hex())
sys.exit(0 if ok else 1)
"""


def frozen_count() -> int | None:
    """The number of devices that the driver holds to; None while it has not started in this process.

    ``cuDeviceGetCount`` answers ``CUDA_ERROR_NOT_INITIALIZED`` before ``cuInit``, and starts nothing. The library is
    only asked where it is loaded already. In a process forked after its parent had started the driver the answer is
    None too; see :func:`in_bad_fork`. A driver that answers with another error counts as started, with 0 devices.

    Source:
        https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html
        https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__INITIALIZE.html
    """
    answer = _library.ask(NAME, "cuDeviceGetCount")
    if answer is None or answer[0] in _NOT_STARTED:
        return None
    status, count = answer
    return max(count, 0) if status == 0 else 0


def cuda_version() -> int | None:
    """The highest CUDA that the driver's library serves, as 13000 for 13.0; None where nothing has loaded it.

    It may be more than NVML tells: a forward-compatible library serves more than the driver that it came to.

    Source:
        https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VERSION.html; it needs no ``cuInit``.
        https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    answer = _library.ask(NAME, "cuDriverGetVersion")
    return answer[1] if answer is not None and answer[0] == 0 and answer[1] > 0 else None


def uuids() -> tuple[str, ...] | None:
    """UUIDs of the visible devices by ordinal, as ``GPU-...``, from a driver that has started; None: not to be had."""
    count = frozen_count()
    if count is None:
        return None
    library = ctypes.CDLL(NAME)
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    told = []
    try:
        # Of a MIG instance, the second version tells its own UUID, the first one its parent's.
        ask = library.cuDeviceGetUuid_v2 if hasattr(library, "cuDeviceGetUuid_v2") else library.cuDeviceGetUuid
        for ordinal in range(count):
            if library.cuDeviceGet(ctypes.byref(device), ordinal) or ask(uuid, device):
                return None
            told.append(as_uuid(bytes(uuid).hex()))
    except AttributeError:
        return None
    return tuple(told)


def uuids_from_child(seconds: float = 20.0) -> tuple[str, ...] | None:
    """The same, from a driver started in a short child process; None: it did not answer within *seconds*."""
    import subprocess  # only here: hardly any call needs it

    null = subprocess.DEVNULL
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter, our own text
            [sys.executable, "-I", "-S", "-c", _ASK], stdin=null, stdout=subprocess.PIPE, stderr=null, text=True
        )
    except (OSError, TypeError, ValueError):  # TypeError: sys.executable is None
        return None
    try:
        told = child.communicate(timeout=seconds)[0].split()
    except (ValueError, subprocess.TimeoutExpired):  # ValueError: what it printed is no text
        child.kill()
        with suppress(ValueError, subprocess.TimeoutExpired):  # one that the kernel holds cannot be killed
            child.communicate(timeout=1)
        return None
    sound = child.returncode == 0 and all(len(digits) == 32 for digits in told)
    return tuple(map(as_uuid, told)) if sound else None


def as_uuid(digits: str) -> str:
    """Write 32 hexadecimal digits as ``GPU-8-4-4-4-12``."""
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def in_bad_fork() -> bool:
    """Whether this process was forked after its parent had started CUDA, as far as torch knows.

    Source:
        ``torch/csrc/cuda/Module.cpp``, ``poison_fork``.
        https://docs.pytorch.org/docs/stable/notes/multiprocessing.html
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    asked = getattr(cuda, "_is_in_bad_fork", None)
    return bool(asked is not None and asked())
