# ruff: noqa: N802, SLF001 - the names are those of torch's own bindings
"""What stands in for the functions of ``torch._C``: everything above it is torch's own Python."""

from __future__ import annotations

import uuid
import warnings
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from safedev.testing._machine import FakeDevice, FakeMachine

CAPABILITY = (9, 0)
TOO_OLD = 10020  # CUDA 10.2: no torch that safedev runs with is built for it


class Bindings:
    """The functions, each under its own name in ``torch._C``; those of all versions from 2.4 on.

    Args:
        machine: Whom they answer for.
        torch: The module, whose Python they call back as the real ones do.

    Source:
        ``torch/csrc/cuda/Module.cpp``, ``torch/csrc/DeviceAccelerator.cpp``, ``c10/cuda/CUDAFunctions.cpp``.
    """

    def __init__(self, machine: FakeMachine, torch: ModuleType) -> None:
        self.machine = machine
        self._torch = torch
        self._started = False
        version = tuple(map(int, torch.__version__.split(".")[:2]))
        # Before 2.7 an accelerator is one that is there: pytorch pull request 146443 made it one that the build drives.
        self._asks = version < (2, 7)
        # Up to 2.7 counting them initialises CUDA, in 2.7 also where it finds none: pytorch pull request 149924.
        self._counts = version < (2, 8)
        # Since 2.8, set_device makes the context of a device that is current already: pytorch pull request 155900.
        self._eager = version >= (2, 8)
        # 2.8 makes a context to go back after synchronising, 2.14 does not; those between were not tried.
        self._back = machine.set_other if version <= (2, 8) else machine.go_back

    def table(self) -> dict[str, Callable[..., object]]:
        """The functions by name."""
        return {name: getattr(self, name) for name in vars(Bindings) if name.startswith(("_cuda_", "_accel", "_get_"))}

    def start(self) -> None:
        """Start CUDA by torch's own rules, as C++ does, which keeps a flag of its own."""
        self._torch.cuda._lazy_init()
        self._started = True

    def _cuda_init(self) -> None:
        if not self.machine.start():
            raise RuntimeError(too_old())
        if not self.machine.visible:
            raise RuntimeError("No CUDA GPUs are available")
        self._torch.cuda.default_generators = tuple(self._torch.Generator() for _ in self.machine.visible)

    def _cuda_getDeviceCount(self) -> int:
        known, count = self.machine.count_is_known, self.machine.counted()
        if not known and not self.machine.awake:
            warnings.warn(f"CUDA initialization: {too_old()}", UserWarning, stacklevel=2)
        return count

    def _cuda_isInBadFork(self) -> bool:
        return self.machine.in_bad_fork

    def _cuda_getDevice(self) -> int:
        self.start()
        return self.machine.current()

    def _cuda_setDevice(self, ordinal: object) -> None:
        index = (_integer(ordinal, "setDevice") + 128) % 256 - 128  # an int8 in C++, unchecked
        self.start()
        if index < 0 or not self._eager:
            self._set_other(index)
        else:
            self.machine.set(index)

    def _cuda_exchangeDevice(self, ordinal: object) -> int:
        return self._exchanged(ordinal, self.machine.exchange)

    def _cuda_maybeExchangeDevice(self, ordinal: object) -> int:
        return self._exchanged(ordinal, self.machine.go_back)

    def _exchanged(self, ordinal: object, function: Callable[[int], int]) -> int:
        index = _integer(ordinal, "exchangeDevice")
        if index > 127:
            raise RuntimeError("Overflow when unpacking DeviceIndex")
        if index < 0:
            return -1
        self.start()
        return function(index)

    def _cuda_canDeviceAccessPeer(self, one: int, other: int) -> bool:
        return one != other

    def _cuda_isCurrentStreamCapturing(self) -> bool:
        return False  # optimizers ask

    def _cuda_getArchFlags(self) -> str:
        return "sm_{}{}".format(*CAPABILITY)

    def _cuda_memoryStats(self, ordinal: int) -> dict[str, object]:
        if not 0 <= ordinal < len(self.machine.found):
            raise RuntimeError(f"Invalid device argument {chr(ordinal % 256)}: did you call init?")
        return _no_memory()

    def _cuda_synchronize(self) -> None:
        self.machine.make_context(self.machine.held())

    def _cuda_emptyCache(self) -> None: ...

    def _cuda_ipc_collect(self) -> None: ...

    def _cuda_resetPeakMemoryStats(self, ordinal: int) -> None:
        self._cuda_memoryStats(ordinal)

    def _cuda_resetAccumulatedMemoryStats(self, ordinal: int) -> None:
        self._cuda_memoryStats(ordinal)

    def _get_accelerator(self, _check: bool = False) -> object:  # noqa: FBT001, FBT002 - the binding's own signature
        return self._torch.device("cuda")

    def _accelerator_getAccelerator(self) -> object:
        if self._asks and not self._cuda_getDeviceCount():
            raise RuntimeError("Cannot access accelerator device when none is available.")
        return self._torch.device("cuda")

    def _accelerator_deviceCount(self) -> int:
        count = self._cuda_getDeviceCount()
        if self._counts and (count or not self._asks):
            self.start()
        return count

    def _accelerator_getDeviceIndex(self) -> int:
        return self._cuda_getDevice()

    def _accelerator_setDeviceIndex(self, ordinal: int) -> None:
        if ordinal >= 0:
            self.start()
            self._set_other(ordinal)

    def _set_other(self, ordinal: int) -> None:
        if ordinal < 0:
            raise RuntimeError(f"device id must be non-negative!{ordinal}")
        self.machine.set_other(ordinal)

    def _accelerator_exchangeDevice(self, ordinal: int) -> int:
        self.start()
        return self.machine.exchange(ordinal)

    def _accelerator_maybeExchangeDevice(self, ordinal: int) -> int:
        self.start()
        return self.machine.go_back(ordinal)

    def _accelerator_synchronizeDevice(self, ordinal: int) -> None:
        if self._started:
            before = self.machine.current()
            self._set_other(ordinal)
            self._cuda_synchronize()
            self._back(before)

    def _accelerator_getStream(self, ordinal: int) -> object:
        self.start()
        return IdleStream(self._torch.device("cuda", ordinal))

    def _accelerator_getMemoryInfo(self, ordinal: int) -> tuple[int, int]:
        self.start()
        return self.machine.memory_of(ordinal)

    def _accelerator_isAllocatorInitialized(self) -> bool:
        return False

    def _accelerator_getDeviceStats(self, _ordinal: int) -> dict[str, int]:
        return {}

    def _accelerator_emptyCache(self) -> None: ...

    def _accelerator_resetPeakStats(self, _ordinal: int) -> None: ...

    def _accelerator_resetAccumulatedStats(self, _ordinal: int) -> None: ...


class IdleStream:
    """What torch's optimizers ask before each step, whatever their tensors are on: whether a graph is captured."""

    def __init__(self, device: object) -> None:
        self.device = device

    def is_capturing(self) -> bool:
        return False


def too_old() -> str:
    """What torch says of a driver that is too old; one line."""
    return (
        f"The NVIDIA driver on your system is too old (found version {TOO_OLD}). Please update your GPU driver by "
        "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
        "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your "
        "version of the CUDA driver."
    )


def properties(device: FakeDevice) -> SimpleNamespace:
    """What ``torch.cuda.get_device_properties`` answers with; of the attributes, those that torch's own has."""
    return SimpleNamespace(
        name=device.name,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=device.memory,
        uuid=uuid.UUID(device.uuid.removeprefix("GPU-")),
        pci_bus_id=device.index + 1,
        pci_device_id=0,
        pci_domain_id=0,
        multi_processor_count=132,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block=49152,
        regs_per_multiprocessor=65536,
        L2_cache_size=50 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
    )


def _no_memory() -> dict[str, object]:
    """The allocator's figures where nothing was allocated."""
    bytes_of = [f"{kind}_bytes" for kind in ("allocated", "reserved", "active", "inactive_split", "requested")]
    moments = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    return {
        **dict.fromkeys([f"num_{what}" for what in ("alloc_retries", "ooms", "device_alloc", "device_free")], 0),
        **{
            figure: {pool: dict(moments) for pool in ("all", "small_pool", "large_pool")}
            for figure in ("allocation", "segment", "active", "inactive_split", *bytes_of)
        },
        **{figure: dict(moments) for figure in ("oversize_allocations", "oversize_segments")},
    }


def _integer(value: object, function: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise RuntimeError(f"invalid argument to {function}")
