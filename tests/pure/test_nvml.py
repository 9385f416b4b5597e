"""The devices of the machine, told by stand-ins for NVML that answer, refuse, fail, hang and talk nonsense."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from safedev import _library, _nvml
from safedev._snapshot import PhysicalDevice


class NVMLError(Exception):
    """As nvidia-ml-py's own, which all its errors derive from."""


class Library:
    """libnvidia-ml: each function answers with a status, and with what *answers* holds for it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"nvmlInit_v2": 0, "nvmlShutdown": 0} | answers
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.called.append(name)
            answer = self.answers[name]
            if isinstance(answer, tuple):
                answer, value = answer
                arguments[-1]._obj.value = value
            return int(answer)

        return function


def library(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> Library:
    stand_in = Library(**answers)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: stand_in)
    monkeypatch.setattr(_library, "can_load", lambda name: True)
    return stand_in


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        pytest.param({"nvmlDeviceGetCount_v2": (0, 4)}, 4, id="four-devices"),
        pytest.param({"nvmlDeviceGetCount_v2": (0, 0)}, 0, id="no-device"),
        pytest.param({"nvmlDeviceGetCount_v2": (999, 4)}, None, id="it-refuses"),
        pytest.param({"nvmlInit_v2": 9}, None, id="no-driver"),
        pytest.param({}, None, id="no-function-to-count"),
    ],
)
def test_the_devices_are_counted(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], count: int | None) -> None:
    """
    By NVML's own library; None where it does not answer.
    """
    library(monkeypatch, **answers)

    assert count == _nvml.count()


@pytest.mark.parametrize(
    ("answers", "shut"),
    [
        pytest.param({"nvmlDeviceGetCount_v2": (0, 4)}, True, id="it-answers"),
        pytest.param({"nvmlDeviceGetCount_v2": (999, 4)}, True, id="it-refuses"),
        pytest.param({}, True, id="no-function-to-count"),
        pytest.param({"nvmlInit_v2": 9}, False, id="it-did-not-start"),
    ],
)
def test_nvml_is_shut_again(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], shut: bool) -> None:
    """
    Each start is followed by one shutdown, whatever came between.
    """
    stand_in = library(monkeypatch, **answers)
    _nvml.count()

    assert (1 if shut else 0) == stand_in.called.count("nvmlShutdown")


def test_an_nvml_that_has_started_is_asked_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is neither loaded nor started once more.
    """
    asked = []
    monkeypatch.setattr(_library, "ask", lambda *question: asked.append(question) or (0, 3))
    monkeypatch.setattr(_library, "can_load", lambda name: pytest.fail("it is loaded"))

    assert 3 == _nvml.count()
    assert [(_nvml.NAME, "nvmlDeviceGetCount_v2")] == asked


def test_without_the_library_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A machine without NVIDIA's driver is no error, and no thread is started for it.
    """
    monkeypatch.setattr(_library, "can_load", lambda name: False)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail("a thread is started"))

    assert _nvml.count() is None


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        pytest.param(None, None, id="not-loaded"),
        pytest.param((0, 12080), 12080, id="it-answers"),
        pytest.param((1, 0), None, id="not-started"),
        pytest.param((0, 0), None, id="nonsense"),
        pytest.param((0, -1), None, id="more-nonsense"),
    ],
)
def test_the_drivers_version_is_asked_of_a_running_nvml(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, int] | None, version: int | None
) -> None:
    """
    The highest CUDA that the driver serves; None where NVML has not been started.
    """
    monkeypatch.setattr(_library, "ask", lambda name, function: answer)

    assert version == _nvml.cuda_version()


def raising(error: BaseException) -> Any:
    def function(*_: object) -> None:
        raise error

    return function


class Pynvml(ModuleType):
    """nvidia-ml-py, on a machine with two devices; what a test gives is put in place of its functions."""

    def __init__(self, **functions: Any) -> None:
        super().__init__("pynvml")
        self.NVMLError = NVMLError
        self.running = 0
        self.nvmlInit = lambda: setattr(self, "running", self.running + 1)
        self.nvmlShutdown = lambda: setattr(self, "running", self.running - 1)
        self.nvmlDeviceGetCount = lambda: 2
        self.nvmlDeviceGetHandleByIndex = lambda index: index
        self.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
        self.nvmlDeviceGetName = lambda handle: "NVIDIA H100"
        self.nvmlDeviceGetPciInfo = lambda handle: SimpleNamespace(busId=f"0000:0{handle}:00.0")
        self.nvmlDeviceGetMigMode = lambda handle: [0, 0]
        self.__dict__.update(functions)


def installed(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)  # type: ignore[arg-type]  # None: cannot be imported


def divided(**functions: Any) -> Pynvml:
    """Devices in MIG mode, with places for four instances, of which the second is empty."""

    def handle(_: int, place: int) -> str:
        if place == 1:
            raise NVMLError
        return f"MIG-{place}"

    functions = {
        "nvmlDeviceGetMigMode": lambda _: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 4,
        "nvmlDeviceGetMigDeviceHandleByIndex": handle,
        "nvmlDeviceGetUUID": lambda one: one if isinstance(one, str) else f"GPU-{one}",
        "nvmlDeviceGetGpuInstanceId": lambda one: 5 if one in {"MIG-2", "MIG-3"} else 1,
        **functions,
    }
    return Pynvml(**functions)


@pytest.mark.parametrize(
    ("functions", "instances", "gpu_instances"),
    [
        pytest.param({}, ("MIG-0", "MIG-2", "MIG-3"), 2, id="all-is-told"),
        pytest.param({"nvmlDeviceGetMaxMigDeviceCount": lambda _: 0}, (), 0, id="none-was-made"),
        pytest.param({"nvmlDeviceGetMaxMigDeviceCount": raising(NVMLError())}, None, 0, id="their-number-is-refused"),
        pytest.param({"nvmlDeviceGetMaxMigDeviceCount": lambda _: "many"}, None, 0, id="nonsense-for-a-number"),
        pytest.param(
            {"nvmlDeviceGetGpuInstanceId": raising(NVMLError())},
            ("MIG-0", "MIG-2", "MIG-3"),
            3,
            id="owners-are-refused",
        ),
        pytest.param(
            {"nvmlDeviceGetUUID": lambda one: "GPU-0" if one == 0 else "MIG-\x1b[0m" if one == "MIG-2" else one},
            ("MIG-0", "MIG-3"),
            2,
            id="what-is-no-uuid-is-left-out",
        ),
        pytest.param({"nvmlDeviceGetMigMode": lambda _: [0, 1]}, None, 0, id="not-in-mig-mode"),
    ],
)
def test_mig_instances_are_listed(
    monkeypatch: pytest.MonkeyPatch, functions: dict[str, Any], instances: tuple[str, ...] | None, gpu_instances: int
) -> None:
    """
    In NVML's order, past places that are empty, with the number of GPU instances that they lie in.
    """
    installed(monkeypatch, divided(**functions))
    device = (_nvml.inventory() or ())[0]

    assert (instances, gpu_instances) == (device.instances, device.gpu_instances)


def test_nonsense_for_a_number_of_instances_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No more places are asked for than any machine has devices.
    """
    installed(monkeypatch, divided(nvmlDeviceGetMaxMigDeviceCount=lambda _: 10**12))
    monkeypatch.setattr(_nvml, "_MOST", 3)

    assert ("MIG-0", "MIG-2") == (_nvml.inventory() or ())[0].instances


def first_device(**differing: Any) -> PhysicalDevice:
    told = {"uuid": "GPU-0", "name": "NVIDIA H100", "bus": "0000:00:00.0", "mig": False}
    return PhysicalDevice(index=0, **(told | differing))


@pytest.mark.parametrize(
    ("functions", "device"),
    [
        pytest.param({}, first_device(), id="all-is-told"),
        pytest.param({"nvmlDeviceGetUUID": lambda _: b"GPU-0"}, first_device(), id="bytes-of-an-old-version"),
        pytest.param(
            {"nvmlDeviceGetName": lambda _: b"\xff"}, first_device(name="\ufffd"), id="bytes-that-are-no-utf-8"
        ),
        pytest.param({"nvmlDeviceGetMigMode": lambda _: [1, 1]}, first_device(mig=True), id="mig"),
        pytest.param({"nvmlDeviceGetMigMode": lambda _: (0, 1)}, first_device(), id="mig-after-the-next-reset"),
        pytest.param({"nvmlDeviceGetMigMode": lambda _: 1}, first_device(), id="nonsense-for-mig"),
        pytest.param({"nvmlDeviceGetName": lambda _: None}, first_device(name=""), id="no-name"),
        pytest.param({"nvmlDeviceGetName": lambda _: 7}, first_device(name=""), id="nonsense-for-a-name"),
        pytest.param({"nvmlDeviceGetPciInfo": lambda _: None}, first_device(bus=""), id="nonsense-for-a-bus"),
        pytest.param({"nvmlDeviceGetUUID": raising(NVMLError())}, first_device(uuid=""), id="uuid-refused"),
        pytest.param({"nvmlDeviceGetName": raising(NVMLError())}, first_device(name=""), id="name-refused"),
        pytest.param({"nvmlDeviceGetPciInfo": raising(NVMLError())}, first_device(bus=""), id="bus-refused"),
        pytest.param({"nvmlDeviceGetMigMode": raising(NVMLError())}, first_device(), id="mig-not-supported"),
        pytest.param(
            {"nvmlDeviceGetName": raising(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"))},
            first_device(name=""),
            id="a-name-that-cannot-be-decoded",
        ),
        pytest.param({"nvmlDeviceGetHandleByIndex": raising(NVMLError())}, PhysicalDevice(index=0), id="a-lost-device"),
    ],
)
def test_a_device_is_listed_as_far_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, functions: dict[str, Any], device: PhysicalDevice
) -> None:
    """
    What NVML refuses, and what is nonsense, stays empty; the others are still told.
    """
    installed(monkeypatch, Pynvml(**functions))

    assert device == (_nvml.inventory() or ())[0]


def test_devices_are_listed_by_physical_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In NVML's order, from 0.
    """
    installed(monkeypatch, Pynvml())

    assert [(0, "GPU-0"), (1, "GPU-1")] == [(device.index, device.uuid) for device in _nvml.inventory() or ()]


def test_a_lost_device_does_not_hide_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each is asked for itself.
    """

    def handle(index: int) -> int:
        if index == 0:
            raise NVMLError
        return index

    installed(monkeypatch, Pynvml(nvmlDeviceGetHandleByIndex=handle))

    assert ["", "GPU-1"] == [device.uuid for device in _nvml.inventory() or ()]


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(None, id="not-installed"),
        pytest.param(Pynvml(nvmlInit=raising(NVMLError())), id="no-driver"),
        pytest.param(Pynvml(nvmlInit=raising(OSError())), id="library-missing"),
        pytest.param(Pynvml(nvmlDeviceGetCount=raising(NVMLError())), id="no-count"),
        pytest.param(Pynvml(nvmlDeviceGetCount=lambda: "two"), id="nonsense-for-a-count"),
        pytest.param(Pynvml(nvmlInit=raising(UnicodeError())), id="an-error-that-is-not-nvmls"),
        pytest.param(ModuleType("pynvml"), id="another-module-of-that-name"),
    ],
)
def test_a_machine_that_cannot_be_listed_is_unknown(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    """
    No error comes out, and none is printed by a thread.
    """
    installed(monkeypatch, module)

    assert _nvml.inventory() is None


@pytest.mark.parametrize(
    "functions",
    [
        pytest.param({}, id="it-answers"),
        pytest.param({"nvmlDeviceGetCount": raising(NVMLError())}, id="it-refuses"),
        pytest.param({"nvmlDeviceGetHandleByIndex": raising(NVMLError())}, id="it-lost-a-device"),
    ],
)
def test_each_start_of_nvml_has_its_end(monkeypatch: pytest.MonkeyPatch, functions: dict[str, Any]) -> None:
    """
    NVML counts its users; ours is taken off again.
    """
    module = Pynvml(**functions)
    installed(monkeypatch, module)
    _nvml.inventory()

    assert 0 == module.running


def waiting() -> list[threading.Thread]:
    """Threads that ask NVML, or wait for it."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("safedev-nvml")]


def test_nvml_that_hangs_leaves_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    While a question waits that was given up, none is asked; once it has been answered, NVML is asked again.
    """
    released = threading.Event()
    monkeypatch.setattr(_nvml, "SECONDS", 0.05)
    installed(monkeypatch, Pynvml(nvmlInit=lambda: released.wait(60)))
    _nvml.inventory()
    monkeypatch.setattr(_nvml, "SECONDS", 60)  # waiting again would be noticed by the limit of a test
    refused = [_nvml.inventory() for _ in range(3)]
    left = waiting()
    released.set()
    for thread in left:
        thread.join()
    devices = _nvml.inventory()

    assert [None] * 3 == refused
    assert 1 == len(left)
    assert devices is not None


def test_questions_at_once_are_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One that waits, and has not been given up, keeps no other from asking.
    """
    together = threading.Barrier(4, timeout=30)
    module = Pynvml()
    module.nvmlInit = together.wait
    installed(monkeypatch, module)
    told: list[object] = []
    threads = [threading.Thread(target=lambda: told.append(_nvml.inventory())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [2] * 4 == [len(devices or ()) for devices in told]  # type: ignore[arg-type]


@pytest.mark.parametrize("question", [_nvml.count, _nvml.inventory, _nvml.vitals])
def test_nvml_that_never_returns_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, question: Any) -> None:
    """
    After the bound the answer is the same as where NVML is missing.
    """
    released = threading.Event()
    hung = Library()
    hung.answers["nvmlInit_v2"] = type("Hang", (), {"__int__": lambda _: int(released.wait(60))})()
    monkeypatch.setattr(_nvml, "SECONDS", 0.05)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: hung)
    monkeypatch.setattr(_library, "can_load", lambda name: True)
    installed(monkeypatch, Pynvml(nvmlInit=lambda: released.wait(60)))
    answer = question()
    released.set()
    for thread in waiting():
        thread.join()

    assert answer in (None, ("", None, {}))


@pytest.mark.parametrize("question", [_nvml.count, _nvml.inventory, _nvml.vitals])
def test_where_no_thread_can_be_had_nothing_is_known(monkeypatch: pytest.MonkeyPatch, question: Any) -> None:
    """
    At the limit of threads, or while the interpreter ends, the answer is the same as where NVML is missing.
    """
    library(monkeypatch, nvmlDeviceGetCount_v2=(0, 4))
    installed(monkeypatch, Pynvml())
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))

    assert question() in (None, ("", None, {}))


@pytest.mark.parametrize(
    "refused", ["nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount_v2"]
)
def test_vitals_are_told_as_far_as_they_are_known(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    """
    One answer that is refused leaves the others; no device is told of where none can be counted.
    """
    answers: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": 0,
        "nvmlSystemGetCudaDriverVersion_v2": (0, 12080),
        "nvmlDeviceGetCount_v2": (0, 1),
        "nvmlDeviceGetHandleByIndex_v2": 0,
        "nvmlDeviceGetMemoryInfo": 0,
        "nvmlDeviceGetCudaComputeCapability": (0, 0),
    }
    library(monkeypatch, **(answers | {refused: 999}))
    version, serves, devices = _nvml.vitals()

    assert "" == version
    assert (None if refused == "nvmlSystemGetCudaDriverVersion_v2" else 12080) == serves
    assert ({} if refused == "nvmlDeviceGetCount_v2" else {0: (0, 0, "0.0")}) == devices


@pytest.mark.parametrize(
    "refused", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability"]
)
def test_a_device_that_refuses_has_no_vitals(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    """
    A lost device is left out.
    """
    answers: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": 0,
        "nvmlSystemGetCudaDriverVersion_v2": (0, 12080),
        "nvmlDeviceGetCount_v2": (0, 1),
        "nvmlDeviceGetHandleByIndex_v2": 0,
        "nvmlDeviceGetMemoryInfo": 0,
        "nvmlDeviceGetCudaComputeCapability": (0, 0),
    }
    library(monkeypatch, **(answers | {refused: 15}))

    assert ("", 12080, {}) == _nvml.vitals()


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({"nvmlInit_v2": 9}, id="no-driver"),
        pytest.param({}, id="no-functions"),
    ],
)
def test_without_nvml_there_are_no_vitals(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> None:
    """
    No version, no CUDA, no device.
    """
    library(monkeypatch, **answers)

    assert ("", None, {}) == _nvml.vitals()


def test_without_the_library_there_are_no_vitals(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A machine without NVIDIA's driver is no error.
    """

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)

    assert ("", None, {}) == _nvml.vitals()
