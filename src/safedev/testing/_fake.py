# ruff: noqa: ANN401, SLF001 - what is replaced is private, and torch leaves its types open
"""The fake ``torch.cuda``: the bindings of a pretended machine, put under torch's own Python."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any

import torch
import torch.cuda
import torch.utils._device
from torch.overrides import TorchFunctionMode

from safedev import _driver, _isolation, _nvml, _torch
from safedev._snapshot import PhysicalDevice
from safedev._terms import PhysicalIndex
from safedev.testing._bindings import CAPABILITY, TOO_OLD, Bindings, properties
from safedev.testing._environment import in_environment
from safedev.testing._machine import FakeCudaError, FakeDevice, FakeMachine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from safedev.testing._machine import Driver, Fault, Nvml

# Bindings of a CUDA build that start no driver, and change nothing but settings of their own.
_HARMLESS = ("_cuda_getArchFlags", "_cuda_getCompiledVersion", "_cuda_isHistoryEnabled", "_cuda_tunableop_")
# Bindings that a CPU build lacks, and that scripts reach: it would say so in words that hide the fake.
_NOT_FAKED = (
    "_cuda_getCurrentRawStream", "_cuda_getCurrentStream", "_cuda_getDefaultStream", "_cuda_setStream",
    "_cuda_getCurrentBlasHandle", "_cuda_memorySnapshot", "_cuda_sleep", "_cuda_setMemoryFraction",
)  # fmt: skip


@contextmanager
def fake_cuda(  # noqa: PLR0913 - a machine has many sides, and each of these stands alone
    count: int,
    *,
    names: Sequence[str] | None = None,
    memory: int | Sequence[int] | None = None,
    environ: Mapping[str, str] | None = None,
    faults: Mapping[int, Fault] | None = None,
    driver: Driver = "working",
    nvml: Nvml = "working",
) -> Generator[FakeMachine]:
    """Make ``torch.cuda`` answer as on a machine with *count* devices, on any build of torch.

    A context manager and a decorator; the pytest fixture of the same name takes the same arguments. Everything is as
    before when it ends. Fakes nest. All threads see the fake, and each has a current device of its own, as in CUDA.

    What torch's own Python decides (the mask, when a count is kept, what a wrong argument raises) is decided by the
    torch that is installed; below it stands the pretended machine. Its devices have capability 9.0, and stand in the
    order of the bus. *Not* faked: tensors, generators, streams, events, graphs, NCCL. A tensor on CUDA raises
    :class:`FakeCudaError`. ``torch.Generator("cuda")`` and extensions reach past the fake; so do, in other threads
    than the one that entered it, pinned memory, and tensors where this process has used a real GPU before.

    Args:
        count: Physical devices of the machine; 0 is a machine that has none.
        names: Model of each device, by physical index (from 0); by default they are alike.
        memory: Bytes of each device, or of every one; 24 GiB by default.
        environ: Variables to set. Before that, all that safedev and torch read to choose a device are cleared.
        faults: ``"exclusive"`` or ``"out-of-memory"`` by physical index: such a device refuses to be used.
        driver: ``"too-old"``: NVML counts the devices, and the driver does not start.
        nvml: ``"absent"``: torch cannot count without starting the driver.

    Returns:
        The machine, to be looked at (what was made current, what started the driver), and to be broken.

    Raises:
        ValueError: A count below 0, lists that do not have *count* items, a device, a fault or a state that is none.
        FakeCudaError: Another thread is inside a fake.

    Example:
        >>> with fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "1"}) as machine:
        ...     torch.cuda.set_device(0)
        >>> machine.visible, machine.made_current
        ((1,), [0])
    """
    machine = FakeMachine(_devices(count, names, memory), dict(faults or {}), driver, nvml, _error)
    _refuse_other_threads()
    with ExitStack() as until_the_end:
        until_the_end.enter_context(in_environment(environ or {}))
        until_the_end.enter_context(_NoTensors())
        until_the_end.callback(_restore_default_device, torch.utils._device.CURRENT_DEVICE)
        until_the_end.callback(setattr, machine, "over", True)  # noqa: FBT003 - a flag's value
        for owner, name, value in _replacements(machine):
            _replace(owner, name, value, until_the_end)
        yield machine


def _devices(count: int, names: Sequence[str] | None, memory: int | Sequence[int] | None) -> list[FakeDevice]:
    memory = 24 << 30 if memory is None else memory
    models = ["Fake GPU"] * count if names is None else list(names)
    sizes = [memory] * count if isinstance(memory, int) else list(memory)
    if isinstance(names, str) or count < 0 or not len(models) == len(sizes) == count:
        raise ValueError(
            f"a machine of {count} devices cannot be made of {len(models)} names and {len(sizes)} sizes of memory: "
            "give a count of at least 0, and one item for each device"
        )
    return [FakeDevice(index=index, name=models[index], memory=sizes[index]) for index in range(count)]


def _refuse_other_threads() -> None:
    installed = getattr(getattr(torch._C, "_cuda_getDeviceCount", None), "__self__", None)
    if isinstance(installed, Bindings) and installed.machine.thread != threading.get_ident():
        raise FakeCudaError("another thread is inside fake_cuda\n  fix: start the threads inside one fake")


def _restore_default_device(before: torch.device | None) -> None:
    now = torch.utils._device.CURRENT_DEVICE
    if now != before:
        torch.set_default_device(before)


def _replace(owner: Any, name: str, value: object, until_the_end: ExitStack) -> None:
    if name in vars(owner):
        until_the_end.callback(setattr, owner, name, vars(owner)[name])
    else:
        until_the_end.callback(delattr, owner, name)
    setattr(owner, name, value)


def _error(code: int, words: str) -> Exception:
    """What torch's C++ raises where a call of the runtime fails; the first line is torch's own."""
    error: Any = getattr(torch, "AcceleratorError", RuntimeError)(f"{words}\n(the answer of safedev.testing.fake_cuda)")
    error.error_code = code
    return error  # type: ignore[no-any-return]  # torch before 2.8 has no such class


def _replacements(machine: FakeMachine) -> Iterator[tuple[Any, str, object]]:
    """All that is replaced: where, under which name, and by what."""
    bindings = Bindings(machine, torch).table()
    for name in {*dir(torch._C), *_NOT_FAKED}:
        answers = name in bindings or name.startswith(_HARMLESS) or isinstance(getattr(torch._C, name, None), type)
        if name.startswith(("_cuda_", "_accelerator_")) and not answers:
            yield torch._C, name, _refusing(machine, f"torch._C.{name}", getattr(torch._C, name, None))
    for name, function in bindings.items():
        if name == "_cuda_getArchFlags" and hasattr(torch._C, name):
            continue  # a CUDA build knows its own
        yield torch._C, name, function
        if name in vars(torch.cuda.graphs):  # taken from torch._C at import
            yield torch.cuda.graphs, name, function
    yield torch._C, "_has_cuda", True
    yield torch.version, "hip", None
    yield torch.version, "cuda", torch.version.cuda or "13.0"
    for kind in (torch.cuda.Stream, torch.cuda.Event):
        yield kind, "__new__", _refusing(machine, f"torch.cuda.{kind.__name__}", kind.__new__)
    for name, value in _state(machine, bindings).items():
        yield torch.cuda, name, value
    yield from _below_safedev(machine)


def _state(machine: FakeMachine, bindings: dict[str, Callable[..., object]]) -> dict[str, object]:
    """What torch.cuda keeps for itself, as in a process that has just imported torch."""

    def told_properties(ordinal: int) -> SimpleNamespace:
        if not 0 <= ordinal < len(machine.found):  # up to torch 2.11 CUDA's start asks about all that NVML counts
            raise RuntimeError("device >= 0 && device < num_gpus INTERNAL ASSERT FAILED")
        return properties(machine.device(ordinal))

    checks = (torch.cuda._check_capability, getattr(torch.cuda, "_check_cubins", None))
    return {
        "_initialized": False,
        "_cached_device_count": None,
        "_queued_calls": [call for call in torch.cuda._queued_calls if call[0] in checks],
        "_lazy_seed_tracker": type(torch.cuda._lazy_seed_tracker)(),
        "_tls": threading.local(),
        "default_generators": (),
        "_lazy_init": _for_python_alone(torch.cuda._lazy_init),
        "_is_in_bad_fork": bindings["_cuda_isInBadFork"],
        "_exchange_device": bindings["_cuda_exchangeDevice"],
        "_maybe_exchange_device": bindings["_cuda_maybeExchangeDevice"],
        "_cudart": SimpleNamespace(cudaMemGetInfo=machine.memory_of),
        "_get_device_properties": told_properties,
        "_raw_device_count_nvml": lambda: len(_listed(machine)),
        "_raw_device_uuid_nvml": lambda: [device.uuid for device in _listed(machine)],
    }


def _listed(machine: FakeMachine) -> list[FakeDevice]:
    """The devices, as NVML lists them."""
    if machine.nvml == "absent":
        raise OSError("libnvidia-ml.so.1: absent, by safedev.testing.fake_cuda")
    return machine.devices


def _below_safedev(machine: FakeMachine) -> Iterator[tuple[Any, str, object]]:
    """What safedev asks besides torch: the driver's state, and NVML."""

    def told(answer: Callable[[], object]) -> Callable[[], object]:
        return lambda: None if machine.nvml == "absent" else answer()

    def uuids() -> tuple[str, ...] | None:
        return tuple(device.uuid for device in machine.found) if machine.awake else None

    def version() -> int:
        major, _, minor = (torch.version.cuda or "").partition(".")
        return TOO_OLD if machine.driver == "too-old" else int(major) * 1000 + int(minor or 0) * 10

    def vitals() -> tuple[str, int | None, dict[int, tuple[int, int, str]]]:
        known = {n: (one.memory, one.memory, "{}.{}".format(*CAPABILITY)) for n, one in enumerate(machine.devices)}
        return ("", None, {}) if machine.nvml == "absent" else ("fake", version(), known)

    yield _driver, "frozen_count", lambda: len(machine.found) if machine.awake else None
    yield _driver, "cuda_version", lambda: None
    yield _driver, "uuids", uuids
    yield _driver, "uuids_from_child", lambda: None if machine.driver == "too-old" else machine.would_find()
    yield _isolation, "read", _isolation.Isolation  # of the host, nothing is known
    yield _torch, "may_warn", lambda: True
    yield _nvml, "cuda_version", told(version)
    yield _nvml, "vitals", vitals
    yield _nvml, "count", told(lambda: len(machine.devices))
    yield _nvml, "inventory", told(lambda: tuple(
        PhysicalDevice(index=PhysicalIndex(index), uuid=device.uuid, name=device.name, bus=device.bus)
        for index, device in enumerate(machine.devices)
    ))  # fmt: skip


def _for_python_alone(lazy_init: Callable[[], None]) -> Callable[[], None]:
    """Start CUDA for torch's Python, and refuse torch's C++, which calls this when it is about to make a tensor."""
    # torch's own, where there is a fake around this one
    own: Callable[[], None] = getattr(lazy_init, "__wrapped__", lazy_init)

    @wraps(own)
    def start() -> None:
        # C++ leaves no frame, so the caller is then the code that wants the tensor, which does not name this function.
        if "_lazy_init" not in sys._getframe(1).f_code.co_names:
            raise _no_tensors()
        own()

    return start


def _no_tensors() -> FakeCudaError:
    return FakeCudaError(
        "safedev.testing.fake_cuda fakes no tensors: nothing can be made on, or moved to, a CUDA device\n"
        "  fix: test which device is chosen, and let the tensors of the test lie on 'cpu' or 'meta'"
    )


class _NoTensors(TorchFunctionMode):
    """Refuses, in this thread, what names CUDA before C++ sees it: a GPU that was used before the fake would obey."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        name = getattr(func, "__name__", "")
        places = (*args[1:], *named.values()) if name == "to" else (named.get("device"),)
        if func is not torch.device and (name in {"cuda", "pin_memory"} or any(map(_is_cuda, places))):
            raise _no_tensors()
        return func(*args, **named)


def _is_cuda(place: object) -> bool:
    if isinstance(place, int):
        return not isinstance(place, bool)  # an ordinal of the accelerator
    return isinstance(place, (str, torch.device)) and str(place).partition(":")[0] == "cuda"


def _refusing(machine: FakeMachine, name: str, real: Callable[..., Any] | None) -> Callable[..., Any]:
    def refuse(*arguments: Any, **named: Any) -> Any:
        if machine.over and real is not None:  # a module that was imported inside the fake has kept this function
            return real(*arguments, **named)
        raise FakeCudaError(f"safedev.testing.fake_cuda does not fake {name}: it fakes devices, not what runs on them")

    return refuse
