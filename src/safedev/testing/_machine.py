"""The machine that the fake pretends: its devices, its driver, and who is current. It knows nothing of torch."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from safedev._mask import CUDA_VISIBLE_DEVICES, parse_mask
from safedev.errors import SafedevError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

Fault = Literal["exclusive", "out-of-memory"]
Driver = Literal["working", "too-old"]
Nvml = Literal["working", "absent"]

# What the runtime says, by its code: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
_REFUSALS: dict[Fault, tuple[int, str]] = {
    "exclusive": (46, "CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    "out-of-memory": (2, "CUDA error: out of memory"),
}


class FakeCudaError(SafedevError, NotImplementedError):
    """The fake was asked for something that it does not fake: tensors, streams, what kernels would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeDevice:
    """One device of the pretended machine.

    Attributes:
        index: Its physical index, from 0.
        name: The model.
        memory: Its memory in bytes; all of it is free.
    """

    index: int
    name: str
    memory: int

    @property
    def uuid(self) -> str:
        """``GPU-`` and 32 hexadecimal digits with dashes; the first eight differ from device to device."""
        return f"GPU-{self.index + 1:08x}-fa4e-4000-8000-{self.index:012x}"

    @property
    def bus(self) -> str:
        """PCI address, as NVML writes it."""
        return f"00000000:{self.index + 1:02X}:00.0"


def _refuse(count: int, faults: dict[int, Fault], driver: Driver, nvml: Nvml) -> None:
    """Refuse a machine that cannot be, by the first argument that is wrong."""
    for index, fault in faults.items():
        if index not in range(count):
            there = f"the last one is {count - 1}" if count else "there is none"
            raise ValueError(f"faults={faults}: there is no device {index!r} on a machine of {count}: {there}")
        if fault not in list(_REFUSALS):
            allowed = " or ".join(map(repr, _REFUSALS))
            raise ValueError(f"faults={faults}: {fault!r} is no fault of a device: give {allowed}")
    for name, state, known in (("driver", driver, ("working", "too-old")), ("nvml", nvml, ("working", "absent"))):
        if state not in known:
            raise ValueError(f"{name}={state!r} is no state: give {' or '.join(map(repr, known))}")


class FakeMachine:
    """The pretended machine, to look at and to break while a test runs.

    Attributes:
        devices: The devices by physical index. Take one out, and the machine has one fewer; a driver that has started
            keeps those that it found.
        faults: What is wrong with a device, by physical index: ``"exclusive"`` (another process holds it for itself) or
            ``"out-of-memory"``. Such a device is counted, and refuses to be made current.
        driver: ``"working"`` or ``"too-old"`` (for this torch).
        nvml: ``"working"`` or ``"absent"``.
        made_current: Ordinals (from 0), in the order in which they were made current, by all threads.
        started_by: The call that started the driver, as ``torch.cuda.is_available``; None: it has not started.
        visible: Physical indices (from 0) that the ordinals stand for in the driver; None: it has not started.
    """

    def __init__(
        self, devices: list[FakeDevice], faults: dict[int, Fault], driver: Driver, nvml: Nvml, error: _MakeError
    ) -> None:
        _refuse(len(devices), faults, driver, nvml)
        self.devices = devices
        self.faults = faults
        self.driver: Driver = driver
        self.nvml: Nvml = nvml
        self.made_current: list[int] = []
        self.started_by: str | None = None
        self.visible: tuple[int, ...] | None = None
        self.thread = threading.get_ident()
        self.over = False
        self.found: tuple[FakeDevice, ...] = ()
        self._counted: int | None = None
        self._started_in: int | None = None
        self._contexts: set[int] = set()
        self._threads = threading.local()
        self._error = error

    def __repr__(self) -> str:
        state = f"started by {self.started_by}" if self.started_by else "not started"
        return f"<FakeMachine with {len(self.devices)} devices, driver {state}>"

    # The driver

    @property
    def awake(self) -> bool:
        """Whether the driver has started, and serves this process: a forked child of one where it has is not served."""
        return self.visible is not None and self._started_in == os.getpid()

    @property
    def in_bad_fork(self) -> bool:
        """Whether a parent of this process had started the driver."""
        return self._started_in not in {None, os.getpid()}

    def start(self) -> bool:
        """Start the driver, which reads the mask now and never again; False: it is too old to start."""
        if self._started_in is None:
            self._started_in = os.getpid()
            self.started_by = _outermost_call()
        if self.visible is None:
            if self.driver == "too-old":
                return False
            self.found = tuple(self._seen_through(os.environ.get(CUDA_VISIBLE_DEVICES)))
            self.visible = tuple(device.index for device in self.found)
        return True

    def _seen_through(self, mask: str | None) -> list[FakeDevice]:
        if mask is None:
            return list(self.devices)
        found: list[FakeDevice] = []
        for entry in parse_mask(mask).entries:
            if isinstance(entry, int):
                fitting = self.devices[entry : entry + 1]
            else:
                fitting = [device for device in self.devices if device.uuid.startswith(entry)]
            if len(fitting) != 1:
                break
            if fitting[0] in found:
                return []  # two beginnings of one UUID
            found += fitting
        return found

    def would_find(self) -> tuple[str, ...]:
        """UUIDs that a driver started now would find, in a process of its own."""
        return tuple(device.uuid for device in self._seen_through(os.environ.get(CUDA_VISIBLE_DEVICES)))

    @property
    def count_is_known(self) -> bool:
        """Whether torch's C++ has counted before."""
        return self._counted is not None

    def counted(self) -> int:
        """How many devices torch's C++ believes in: it asks once, and keeps even a 0."""
        if self._counted is None:
            self._counted = len(self.found) if self.start() else 0
        return self._counted

    def device(self, ordinal: int) -> FakeDevice:
        """The device that an ordinal (from 0) stands for."""
        if not 0 <= ordinal < len(self.found):
            raise self._error(101, "CUDA error: invalid device ordinal")
        return self.found[ordinal]

    # Which device is current, thread by thread: the rules of c10/cuda/CUDAFunctions.cpp. A device that no context was
    # made on yet is only remembered ("aimed at") when a guard goes back to it.

    def current(self) -> int:
        """The ordinal that is current in this thread."""
        aimed_at: int | None = getattr(self._threads, "aimed_at", None)
        return self.held() if aimed_at is None else aimed_at

    def held(self) -> int:
        """The ordinal that the runtime holds for current in this thread; another may be aimed at."""
        ordinal: int = getattr(self._threads, "ordinal", 0)
        return ordinal

    def set(self, ordinal: int) -> None:
        """Make a device current, as ``cudaSetDevice`` does."""
        self._threads.aimed_at = None
        self.make_context(ordinal)
        self._threads.ordinal = ordinal
        self.made_current.append(ordinal)

    def make_context(self, ordinal: int) -> None:
        """Make the context of a device, which a device in need refuses."""
        device = self.device(ordinal)
        fault = self.faults.get(device.index)
        if device.index not in self._contexts and fault is not None:
            raise self._error(*_REFUSALS[fault])
        self._contexts.add(device.index)

    def set_other(self, ordinal: int) -> None:
        """Make a device current, unless it is."""
        self._threads.aimed_at = None
        if ordinal != self.held():
            self.set(ordinal)

    def exchange(self, ordinal: int) -> int:
        """Make a device current; the one that was."""
        aimed_at, before = getattr(self._threads, "aimed_at", None), self.current()
        self._threads.aimed_at = None
        if aimed_at is not None or ordinal != before:
            self.set(ordinal)
        return before

    def go_back(self, ordinal: int) -> int:
        """Make a device current without making its context; the one that was."""
        before = self.held()
        if ordinal != before:
            if self.device(ordinal).index in self._contexts:
                self.set(ordinal)
            else:
                self._threads.aimed_at = ordinal
                self.made_current.append(ordinal)
        return before

    def memory_of(self, ordinal: int) -> tuple[int, int]:
        """Free and total bytes of a device; asking makes its context."""
        before = self.exchange(ordinal) if ordinal != -1 else self.current()
        try:
            self.make_context(self.held())
            memory = self.device(self.held()).memory
        finally:
            self.go_back(before)
        return memory, memory


_TORCH_OR_FAKE = ("torch.", "safedev.testing.")
_MakeError = Callable[[int, str], Exception]


def _outermost_call() -> str:
    """The function of torch that code outside torch has called."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - there is no other way to ask
    name = "torch._C"
    while frame is not None and (module := f"{frame.f_globals.get('__name__')}.").startswith(_TORCH_OR_FAKE):
        if module.startswith("torch."):
            name = module + frame.f_code.co_name
        frame = frame.f_back
    return name
