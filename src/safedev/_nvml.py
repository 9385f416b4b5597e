"""The devices of the machine, as NVML tells them; NVML starts no CUDA driver and knows no mask."""

from __future__ import annotations

import ctypes
import sys

from safedev import _library
from safedev._index import is_uuid
from safedev._snapshot import PhysicalDevice
from safedev._terms import PhysicalIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Answer = TypeVar("Answer")

NAME = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"

_MOST = 1024  # devices that are listed: more than any machine has, should NVML tell nonsense

_GIVEN_UP = "safedev-nvml-given-up"

SECONDS = 10.0
"""How long an answer of NVML is waited for: where the driver keeps no state between uses, the first takes seconds."""


def cuda_version() -> int | None:
    """The highest CUDA that the driver serves, as 13000 for 13.0; None where NVML has not been started.

    It asks the NVML that torch has started to count devices, and nothing else: one call, which starts nothing. NVML
    asks ``cuDriverGetVersion``, which opens no device.

    Source:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlSystemQueries.html
    """
    answer = _library.ask(NAME, "nvmlSystemGetCudaDriverVersion_v2")
    return answer[1] if answer is not None and answer[0] == 0 and answer[1] > 0 else None


def count() -> int | None:
    """How many devices the machine has that this process may ask NVML about; None where NVML does not answer."""
    started = _library.ask(NAME, "nvmlDeviceGetCount_v2")  # where torch has counted by it: it does answer
    if started is not None and started[0] == 0:
        return started[1]
    if not _library.can_load(NAME):
        return None  # no thread for what is not there
    return _bounded(lambda: _within_nvml(_count))


def inventory() -> tuple[PhysicalDevice, ...] | None:
    """The devices of the machine by physical index; None without ``nvidia-ml-py``, or where NVML does not answer."""
    return _bounded(_inventory)


def vitals() -> tuple[str, int | None, dict[int, tuple[int, int, str]]]:
    """What the driver is, and how each device stands; needs no ``nvidia-ml-py``.

    Returns:
        The driver's version, empty where NVML does not answer; the highest CUDA it serves, as 13000 for 13.0, or None;
        and by physical index, from 0, free and total memory in bytes and the compute capability, as ``9.0``.

    Source:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlSystemQueries.html
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    return _bounded(lambda: _within_nvml(_vitals)) or ("", None, {})


def _within_nvml(question: Callable[[ctypes.CDLL], Answer]) -> Answer | None:
    """Start NVML, put *question* to it, and end it; None where it is missing, too old, or does not start."""
    try:
        library = ctypes.CDLL(NAME)
        if library.nvmlInit_v2() != 0:
            return None
        try:
            return question(library)
        finally:
            library.nvmlShutdown()
    except (OSError, AttributeError):
        return None


def _count(library: ctypes.CDLL) -> int | None:
    number = ctypes.c_uint()
    return None if library.nvmlDeviceGetCount_v2(ctypes.byref(number)) else number.value


def _vitals(library: ctypes.CDLL) -> tuple[str, int | None, dict[int, tuple[int, int, str]]]:
    text, number, major, minor = ctypes.create_string_buffer(96), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # memory: total, free, used
    version = "" if library.nvmlSystemGetDriverVersion(text, 96) else text.value.decode(errors="replace")
    serves = None if library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) else number.value
    known: dict[int, tuple[int, int, str]] = {}
    for index in range(_count(library) or 0):
        if not (
            library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
            or library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        ):
            known[index] = memory[1], memory[0], f"{major.value}.{minor.value}"
    return version, serves, known


def _inventory() -> tuple[PhysicalDevice, ...] | None:
    try:
        import pynvml  # the extra `nvml`; costly to import, and seldom needed

        pynvml.nvmlInit()
        try:
            number = min(pynvml.nvmlDeviceGetCount(), _MOST)
            return tuple(_device(pynvml, PhysicalIndex(index)) for index in range(number))
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # noqa: BLE001 - not installed, no driver, or another module of that name: unknown in every case
        return None


def _device(nvml: object, index: PhysicalIndex) -> PhysicalDevice:
    """What NVML tells of one device; what it refuses stays empty (a device may be lost, or of another user)."""

    def ask(name: str, *arguments: object) -> object:
        try:
            return getattr(nvml, name)(*arguments)
        except Exception:  # noqa: BLE001 - NVMLError, and what nvidia-ml-py raises on garbage: unknown in every case
            return None

    handle = ask("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return PhysicalDevice(index=index)
    mode = ask("nvmlDeviceGetMigMode", handle)
    mig = bool(mode[0]) if isinstance(mode, (list, tuple)) else False
    instances, gpu_instances = _instances(ask, handle) if mig else (None, 0)
    return PhysicalDevice(
        index=index,
        uuid=_text(ask("nvmlDeviceGetUUID", handle)),
        name=_text(ask("nvmlDeviceGetName", handle)),
        bus=_text(getattr(ask("nvmlDeviceGetPciInfo", handle), "busId", "")),
        mig=mig,
        instances=instances,
        gpu_instances=gpu_instances,
    )


def _instances(ask: Callable[..., object], handle: object) -> tuple[tuple[str, ...] | None, int]:
    """The UUIDs of a device's MIG instances, None where they are not told, and in how many GPU instances they lie.

    Source:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlMultiInstanceGPU.html: the places that it counts need not all
        hold an instance.
    """
    places = ask("nvmlDeviceGetMaxMigDeviceCount", handle)
    if not isinstance(places, int):
        return None, 0
    asked = (ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place) for place in range(min(places, _MOST)))
    found = [(_text(ask("nvmlDeviceGetUUID", one)), one) for one in asked if one is not None]
    # Messages tell the UUID to be written, so nothing else may stand in it.
    sound = [(uuid, one) for uuid, one in found if uuid[:4] == "MIG-" and is_uuid(uuid)]
    known = {uuid: ask("nvmlDeviceGetGpuInstanceId", one) for uuid, one in sound}
    # One that does not tell in which GPU instance it lies is taken to lie in one of its own.
    return tuple(known), len({uuid if owner is None else owner for uuid, owner in known.items()})


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def _bounded(question: Callable[[], Answer | None]) -> Answer | None:
    """Ask in a thread of its own, and wait for the answer for a limited time: a hung driver never answers.

    While one that was given up still waits, no other is asked: it would wait too, and each leaves a thread behind.
    """
    import threading

    if any(thread.name == _GIVEN_UP for thread in threading.enumerate()):
        return None
    answers: list[Answer | None] = []
    asking = threading.Thread(target=lambda: answers.append(question()), daemon=True, name="safedev-nvml")
    try:
        asking.start()
    except RuntimeError:  # no thread can be had
        return None
    asking.join(SECONDS)
    if not answers:
        asking.name = _GIVEN_UP
    return answers[0] if answers else None
