"""The fake itself: how it comes, what it tells, and that it goes. What torch answers on it is in `tests/contract`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
import torch
import torch.cuda.graphs

import safedev
from safedev import _driver, _isolation, _nvml, _torch, launchers
from safedev.testing import FakeCudaError, fake_cuda, launched_by

if TYPE_CHECKING:
    from safedev.testing import InstallFakeCuda

MASK = "CUDA_VISIBLE_DEVICES"
FAULTS = "'exclusive' or 'out-of-memory'"
OWNERS = (
    torch._C,
    torch.version,
    torch.cuda,
    torch.cuda.graphs,
    torch.cuda.Stream,
    torch.cuda.Event,
    _driver,
    _nvml,
    _torch,
)


def everything() -> list[dict[str, object]]:
    return [dict(vars(owner)) for owner in OWNERS] + [dict(os.environ)]


class TestComing:
    def test_the_fixture_is_a_factory(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The fixture takes what fake_cuda takes, and gives the machine.
        """
        machine = fake_cuda(3, environ={MASK: "2"})

        assert (3, 1) == (len(machine.devices), torch.cuda.device_count())

    def test_it_is_a_decorator(self) -> None:
        """
        A decorated function runs inside a fake of its own each time.
        """

        @fake_cuda(2)
        def started() -> bool:
            before = torch.cuda.is_initialized()
            torch.cuda.init()
            return before

        assert [False, False] == [started(), started()]

    def test_a_call_alone_changes_nothing(self) -> None:
        """
        The fake comes when it is entered, and not when it is made.
        """
        before = everything()
        fake_cuda(2)

        assert before == everything()

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            pytest.param({"count": -1}, "at least 0", id="negative-count"),
            pytest.param({"count": 2, "names": ["A"]}, "1 names", id="too-few-names"),
            pytest.param({"count": 2, "names": "AB"}, "one item for each", id="names-in-one-text"),
            pytest.param({"count": 1, "memory": [1, 2]}, "2 sizes", id="too-many-sizes"),
            pytest.param(
                {"count": 2, "faults": {2: "exclusive"}}, "no device 2 .* the last one is 1$", id="fault-of-no-device"
            ),
            pytest.param({"count": 2, "faults": {"0": "exclusive"}}, "no device '0'", id="fault-of-text"),
            pytest.param({"count": 0, "faults": {0: "exclusive"}}, "no device 0 .* there is none$", id="no-device"),
            pytest.param({"count": 2, "faults": {1: "oom"}}, f"'oom' is no fault.*give {FAULTS}$", id="unknown-fault"),
            pytest.param(
                {"count": 2, "driver": "old"}, "^driver='old' .* give 'working' or 'too-old'$", id="unknown-driver"
            ),
            pytest.param(
                {"count": 2, "nvml": "gone"}, "^nvml='gone' .* give 'working' or 'absent'$", id="unknown-nvml"
            ),
        ],
    )
    def test_an_impossible_machine_is_refused(self, arguments: dict[str, object], words: str) -> None:
        """
        What contradicts itself is a ValueError that says so, and changes nothing.
        """
        before = everything()

        with pytest.raises(ValueError, match=words), fake_cuda(**arguments):  # type: ignore[arg-type]
            pass

        assert before == everything()


class TestGoing:
    def test_everything_is_restored(self) -> None:
        """
        No name of torch or safedev, and no variable, is other than before.
        """
        before = everything()
        with fake_cuda(2, environ={MASK: "1", "RANK": "0", "OWN": "x"}):
            torch.cuda.set_device(0)
            torch.cuda.manual_seed_all(1)
            os.environ[MASK] = "0"
            os.environ["SLURM_PROCID"] = "3"

        assert before == everything()

    def test_everything_is_restored_after_an_error(self) -> None:
        """
        An error in the block leaves nothing behind.
        """
        before = everything()

        with pytest.raises(RuntimeError), fake_cuda(2):
            torch.cuda.set_device(5)

        assert before == everything()

    def test_everything_is_restored_after_a_bad_variable(self) -> None:
        """
        So does an environment that cannot be set.
        """
        before = everything()

        with pytest.raises(TypeError), fake_cuda(2, environ={"RANK": 3}):  # type: ignore[dict-item]
            pass

        assert before == everything()

    def test_variables_come_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A variable that was set has its value again, and one that was not is unset.
        """
        monkeypatch.setenv(MASK, "5")
        monkeypatch.setenv("OWN", "before")
        monkeypatch.delenv("RANK", raising=False)
        with fake_cuda(2, environ={"RANK": "1", "OWN": "inside"}):
            inside = (os.environ.get(MASK), os.environ.get("RANK"), os.environ["OWN"])

        assert (None, "1", "inside") == inside
        assert ("5", None, "before") == (os.environ[MASK], os.environ.get("RANK"), os.environ["OWN"])

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(MASK, id="mask"),
            pytest.param("CUDA_DEVICE_ORDER", id="order"),
            pytest.param("CUDA_VISIBLE_DEVICE", id="misspelled-mask"),
            pytest.param("LOCAL_RANK", id="local-rank"),
            pytest.param("SLURM_JOB_ID", id="slurm"),
            pytest.param("ACCELERATE_MIXED_PRECISION", id="accelerate"),
            pytest.param("KUBERNETES_SERVICE_HOST", id="pod"),
            pytest.param("PYTORCH_NVML_BASED_CUDA_CHECK", id="torchs-own"),
        ],
    )
    def test_what_chooses_a_device_is_cleared(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The shell of whoever runs the tests does not reach into the machine.
        """
        monkeypatch.setenv(name, "1")
        with fake_cuda(2):
            inside = os.environ.get(name)

        assert (None, "1") == (inside, os.environ[name])

    def test_all_that_safedev_reads_is_cleared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        No variable that a diagnosis looks at is left from outside.
        """
        asked: set[str] = set()

        class Watching(dict[str, str]):
            def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
                asked.add(name)
                return super().get(name, default)

        launches = [launched_by(one.name, local_rank=1, local_world_size=2) for one in launchers.LAUNCHERS]
        for environ in ({}, {"RAY_JOB_ID": "1"}, *launches, {**launches[-1], "SLURM_GPUS_ON_NODE": "2"}):
            with fake_cuda(1, environ=environ), monkeypatch.context() as patch:
                patch.setattr(os, "environ", Watching(os.environ))
                safedev.diagnose(3)
        for name in asked:
            monkeypatch.setenv(name, "1")
        with fake_cuda(1):
            left = asked & set(os.environ)

        assert {MASK, "LOCAL_RANK", "SLURM_STEP_GPUS"} <= asked
        assert set() == left

    def test_what_a_registered_launcher_reads_is_cleared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        So are the variables of a launcher that somebody has registered as a row of data.
        """

        class WithLogic:
            name = "own"

            def detect(self, environ: object, /) -> None: ...

        row = launchers.EnvLauncher(name="acme", local_rank="ACME_LOCAL_RANK", requires=("ACME_JOB",))
        monkeypatch.setattr(launchers, "LAUNCHERS", (row, WithLogic(), *launchers.LAUNCHERS))
        monkeypatch.setenv("ACME_JOB", "1")
        with fake_cuda(1):
            inside = os.environ.get("ACME_JOB")

        assert (None, "1") == (inside, os.environ["ACME_JOB"])

    def test_the_default_device_comes_back(self) -> None:
        """
        A default device that the code under test has set is gone afterwards.
        """
        with fake_cuda(1):
            torch.set_default_device("cuda")

        assert "cpu" == torch.zeros(1).device.type

    def test_a_function_kept_from_inside_reaches_the_real_one_afterwards(self) -> None:
        """
        A module that is imported inside the fake may keep one of torch's
        functions for good: it is the real one again when the fake is over.
        """
        real = torch.cuda.Stream.__new__
        with fake_cuda(1):
            kept = torch.cuda.Stream.__new__
            with pytest.raises(FakeCudaError):
                kept(torch.cuda.Stream)
        said = []
        for function in (real, kept):
            with pytest.raises(RuntimeError) as caught:
                function(torch.cuda.Stream)
            said.append((type(caught.value), str(caught.value).splitlines()[0]))

        assert said[0] == said[1]


class TestNesting:
    def test_the_inner_machine_counts(self) -> None:
        """
        Inside two fakes, torch sees the inner machine, and afterwards the outer one.
        """
        with fake_cuda(2):
            torch.cuda.set_device(1)
            with fake_cuda(5) as machine:
                inside = (torch.cuda.device_count(), torch.cuda.is_initialized())
                torch.cuda.set_device(4)
            outside = (torch.cuda.device_count(), torch.cuda.current_device())

        assert ((5, False), [4], (2, 1)) == (inside, machine.made_current, outside)

    def test_the_outer_environment_does_not_reach_inside(self) -> None:
        """
        The inner machine has the variables it was given, and no others.
        """
        with fake_cuda(4, environ={MASK: "3", "LOCAL_RANK": "1"}), fake_cuda(4):
            inside = (torch.cuda.device_count(), os.environ.get("LOCAL_RANK"))

        assert (4, None) == inside

    def test_another_thread_cannot_enter(self) -> None:
        """
        torch.cuda is one for all threads, so two threads cannot have two machines.
        """
        said: list[Exception] = []

        def enter() -> None:
            try:
                with fake_cuda(1):
                    pass
            except FakeCudaError as error:
                said.append(error)

        with fake_cuda(2):
            thread = threading.Thread(target=enter)
            thread.start()
            thread.join()
            count = torch.cuda.device_count()

        assert ["another thread is inside fake_cuda"] == [str(error).splitlines()[0] for error in said]
        assert 2 == count


class TestTensors:
    @pytest.mark.parametrize(
        "make",
        [
            pytest.param(lambda: torch.zeros(1, device="cuda:0"), id="factory"),
            pytest.param(lambda: torch.tensor([1.0], device=torch.device("cuda")), id="tensor"),
            pytest.param(lambda: torch.zeros(1, device=0), id="an-ordinal"),
            pytest.param(lambda: torch.zeros(1).to("cuda"), id="to"),
            pytest.param(lambda: torch.zeros(1).to(0), id="to-an-ordinal"),
            pytest.param(lambda: torch.zeros(1).to(device="cuda:1"), id="to-by-name"),
            pytest.param(lambda: torch.zeros(1).cuda(), id="cuda"),
            pytest.param(lambda: torch.nn.Linear(1, 1).cuda(), id="module"),
            pytest.param(lambda: torch.nn.Linear(1, 1).to("cuda:1"), id="module-to"),
            pytest.param(lambda: torch.empty_like(torch.zeros(1), device="cuda"), id="like"),
        ],
    )
    @pytest.mark.parametrize(
        "started", [pytest.param(False, id="at-first"), pytest.param(True, id="after-torch-started")]
    )
    def test_a_tensor_is_refused_in_our_name(self, make: object, started: bool) -> None:
        """
        A tensor on CUDA is refused by an error that names the fake, also in a
        process in which torch had started CUDA before.
        """
        with fake_cuda(2):
            if started:
                torch.cuda.init()
            with (
                fake_cuda(2) as machine,
                pytest.raises(FakeCudaError, match=r"safedev\.testing\.fake_cuda fakes no tensors"),
            ):
                make()  # type: ignore[operator]

        assert [] == machine.made_current

    def test_a_tensor_is_refused_in_a_thread(self) -> None:
        """
        So it is in a thread that the test has started.
        """
        said: list[Exception] = []

        def make() -> None:
            try:
                torch.zeros(1, device="cuda")
            except FakeCudaError as error:
                said.append(error)

        with fake_cuda(1):
            thread = threading.Thread(target=make)
            thread.start()
            thread.join()

        assert 1 == len(said)

    @pytest.mark.parametrize(
        "started", [pytest.param(False, id="at-first"), pytest.param(True, id="after-torch-started")]
    )
    def test_tensors_elsewhere_are_as_ever(self, started: bool) -> None:
        """
        Tensors on the CPU and on "meta" are no business of the fake.
        """
        with fake_cuda(1):
            if started:
                torch.cuda.init()
            with fake_cuda(1):
                model = torch.nn.Linear(2, 1).to("meta")
                total = (torch.ones(2) + 1).to(torch.float64).sum().item()

        assert ("meta", 4.0) == (model.weight.device.type, total)

    def test_a_tensor_on_the_default_device_is_refused(self) -> None:
        """
        So is one that does not name the device itself.
        """
        with fake_cuda(1), torch.device("cuda"), pytest.raises(FakeCudaError):
            torch.zeros(1)

    def test_pinned_memory_is_refused(self) -> None:
        """
        Memory cannot be pinned for a device that is not there.
        """
        with fake_cuda(1), pytest.raises(FakeCudaError):
            torch.zeros(1).pin_memory()

    @pytest.mark.parametrize(
        "call",
        [
            pytest.param(torch.cuda.Stream, id="stream"),
            pytest.param(torch.cuda.Event, id="event"),
            pytest.param(torch.cuda.current_stream, id="current-stream"),
            pytest.param(torch.cuda.memory_snapshot, id="memory-snapshot"),
        ],
    )
    def test_what_runs_on_a_device_is_refused(self, call: object) -> None:
        """
        Streams, events and the like are refused in the name of the fake.
        """
        with fake_cuda(1), pytest.raises(FakeCudaError, match="does not fake torch"):
            call()  # type: ignore[operator]

    def test_the_figures_of_the_allocator_are_zeros(self) -> None:
        """
        A script that logs its memory runs on.
        """
        with fake_cuda(1):
            torch.cuda.init()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.reset_accumulated_memory_stats()
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
            summary, stats = torch.cuda.memory_summary(), torch.cuda.memory_stats()

        assert ("Allocated memory" in summary, {0}) == (True, set(stats.values()))


class TestOtherVersions:
    """What torch's Python asks in other versions than the installed one."""

    @pytest.mark.parametrize(
        ("binding", "arguments", "answer"),
        [
            pytest.param("_accelerator_deviceCount", (), 2, id="2.6-counts"),
            pytest.param("_accelerator_isAllocatorInitialized", (), False, id="2.9-asks-for-the-allocator"),
            pytest.param("_accelerator_getDeviceStats", (0,), {}, id="2.9-asks-for-its-figures"),
            pytest.param("_accelerator_exchangeDevice", (1,), 0, id="2.8-enters-a-context"),
            pytest.param("_accelerator_maybeExchangeDevice", (0,), 0, id="2.8-leaves-it"),
            pytest.param("_get_accelerator", (), torch.device("cuda"), id="2.4-asks-which"),
        ],
    )
    def test_a_binding_answers(
        self, binding: str, arguments: tuple[int, ...], answer: object, fake_cuda: InstallFakeCuda
    ) -> None:
        """
        The binding is there, and answers for the machine.
        """
        fake_cuda(2)

        assert answer == getattr(torch._C, binding)(*arguments)

    @pytest.mark.parametrize(
        ("count", "answer"),
        [pytest.param(1, "cuda", id="there"), pytest.param(0, "Cannot access accelerator device", id="none")],
    )
    def test_naming_the_accelerator_starts_the_driver_in_2_6(
        self, monkeypatch: pytest.MonkeyPatch, count: int, answer: str
    ) -> None:
        """
        It names one that is there, and raises where there is none.
        """
        monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
        with fake_cuda(count) as machine:
            try:
                named = str(torch._C._accelerator_getAccelerator())
            except RuntimeError as error:
                named = str(error)

        assert named.startswith(answer)
        assert machine.awake

    @pytest.mark.parametrize(
        ("version", "count", "outcome"),
        [
            pytest.param("2.6.0", 1, (1, True), id="2.6"),
            pytest.param("2.6.0", 0, (0, False), id="2.6-without-a-device"),
            pytest.param("2.7.1", 1, (1, True), id="2.7"),
            pytest.param("2.7.1", 0, ("No CUDA GPUs are available", False), id="2.7-without-a-device"),
            pytest.param("2.8.0", 1, (1, False), id="2.8"),
        ],
    )
    def test_counting_accelerators_initialises_older_torch(
        self, monkeypatch: pytest.MonkeyPatch, version: str, count: int, outcome: tuple[object, bool]
    ) -> None:
        """
        In 2.7 even where there is nothing to initialise.
        """
        monkeypatch.setattr(torch, "__version__", version)
        with fake_cuda(count):
            try:
                counted: object = torch._C._accelerator_deviceCount()
            except RuntimeError as error:
                counted = str(error)
            initialised = torch.cuda.is_initialized()

        assert outcome == (counted, initialised)

    def test_setting_the_current_one_makes_no_context_in_older_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Before 2.8 nothing happens where the device is current already.
        """
        monkeypatch.setattr(torch, "__version__", "2.7.1+cpu")
        with fake_cuda(1, faults={0: "exclusive"}) as machine:
            torch.cuda.set_device(0)

        assert [] == machine.made_current


class TestTheMachine:
    def test_what_was_made_current_is_told_in_order(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The machine keeps the ordinals in the order in which they were made current.
        """
        machine = fake_cuda(4)
        torch.cuda.set_device(2)
        with torch.cuda.device(3):
            torch.cuda.set_device(1)

        assert [2, 3, 1, 2] == machine.made_current

    @pytest.mark.parametrize(
        ("call", "name"),
        [
            pytest.param(torch.cuda.is_available, "torch.cuda.is_available", id="is-available"),
            pytest.param(lambda: torch.cuda.set_device(0), "torch.cuda.set_device", id="set-device"),
            pytest.param(torch.cuda.get_device_name, "torch.cuda.get_device_name", id="name"),
            pytest.param(torch.cuda.is_bf16_supported, "torch.cuda.is_bf16_supported", id="bf16"),
            pytest.param(lambda: torch._C._cuda_getDeviceCount() + 0, "torch._C", id="a-binding"),
            pytest.param(safedev.set_device, "torch.cuda.set_device", id="safedev"),
        ],
    )
    def test_what_started_the_driver_is_told(self, call: object, name: str, fake_cuda: InstallFakeCuda) -> None:
        """
        The machine names the function of torch that started its driver.
        """
        machine = fake_cuda(2)
        call()  # type: ignore[operator]

        assert name == machine.started_by

    @pytest.mark.parametrize(
        "call",
        [
            pytest.param(torch.cuda.device_count, id="counting"),
            pytest.param(lambda: torch.cuda.set_device(-1), id="negative"),
            pytest.param(lambda: torch.cuda.manual_seed_all(1), id="seeding"),
            pytest.param(safedev.select_device, id="select-device"),
            pytest.param(lambda: safedev.diagnose(7), id="diagnose"),
            pytest.param(lambda: safedev.guard_visible_devices(1), id="guard"),
        ],
    )
    def test_a_driver_that_sleeps_is_told(self, call: object, fake_cuda: InstallFakeCuda) -> None:
        """
        What starts no driver leaves the machine untouched.
        """
        machine = fake_cuda(2)
        call()  # type: ignore[operator]

        assert (None, None, []) == (machine.started_by, machine.visible, machine.made_current)

    def test_the_frozen_mask_is_told(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The machine tells which physical devices the ordinals stand for, in the driver.
        """
        machine = fake_cuda(4, environ={MASK: "3,1"})
        torch.cuda.init()
        os.environ[MASK] = "0"

        assert (3, 1) == machine.visible

    def test_a_machine_can_lose_a_device(self, fake_cuda: InstallFakeCuda) -> None:
        """
        A count may change under the code that relies on it.
        """
        machine = fake_cuda(3)
        before = torch.cuda.device_count()
        machine.devices.pop()

        assert (3, 2) == (before, torch.cuda.device_count())

    def test_a_driver_that_has_started_keeps_what_it_found(self, fake_cuda: InstallFakeCuda) -> None:
        """
        A device that is lost later is still counted by the driver.
        """
        machine = fake_cuda(3)
        torch.cuda.init()
        machine.devices.pop()

        assert (3, (0, 1, 2)) == (_driver.frozen_count(), machine.visible)

    def test_a_fault_may_come_later(self, fake_cuda: InstallFakeCuda) -> None:
        """
        A device that another process takes refuses from then on.
        """
        machine = fake_cuda(2)
        torch.cuda.set_device(0)
        machine.faults[1] = "exclusive"

        with pytest.raises(RuntimeError, match="busy or unavailable"):
            torch.cuda.set_device(1)

    def test_an_error_has_its_code(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The error tells the runtime's code, as torch's own does, and in its second line whose it is.
        """
        fake_cuda(1)

        with pytest.raises(RuntimeError) as caught:
            torch.cuda.set_device(1)

        assert 101 == caught.value.error_code  # type: ignore[attr-defined]
        assert "(the answer of safedev.testing.fake_cuda)" == str(caught.value).splitlines()[1]

    @pytest.mark.parametrize(
        ("start", "words"),
        [
            pytest.param(False, "<FakeMachine with 2 devices, driver not started>", id="asleep"),
            pytest.param(True, "<FakeMachine with 2 devices, driver started by torch.cuda.init>", id="started"),
        ],
    )
    def test_it_shows_itself(self, start: bool, words: str, fake_cuda: InstallFakeCuda) -> None:
        """
        A failing test prints what the machine is.
        """
        machine = fake_cuda(2)
        if start:
            torch.cuda.init()

        assert words == repr(machine)

    def test_uuids_differ(self, fake_cuda: InstallFakeCuda) -> None:
        """
        Each device has a UUID of its own, of the right form.
        """
        uuids = [device.uuid for device in fake_cuda(12).devices]

        assert 12 == len({uuid[4:12] for uuid in uuids})
        assert {(36, "GPU-")} == {(len(uuid[4:]), uuid[:4]) for uuid in uuids}


class TestSafedevOnIt:
    """What safedev asks besides torch answers for the same machine."""

    def test_a_mask_changed_too_late_is_found(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The pretended driver tells safedev that it has frozen another mask.
        """
        fake_cuda(4, environ={MASK: "2"})
        torch.cuda.is_available()
        os.environ[MASK] = "0,1,2"

        assert "mask-too-late" in [finding.code for finding in safedev.diagnose(2).findings]

    def test_the_guard_is_too_late(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The guard refuses once the pretended driver has started.
        """
        fake_cuda(4)
        torch.cuda.is_available()

        with pytest.raises(safedev.MaskTooLateError):
            safedev.guard_visible_devices(1)

    @pytest.mark.parametrize("start", [pytest.param(False, id="asleep"), pytest.param(True, id="started")])
    def test_a_device_is_found_by_its_uuid(self, start: bool, fake_cuda: InstallFakeCuda) -> None:
        """
        A UUID of the pretended machine leads to its ordinal, before and after the start.
        """
        machine = fake_cuda(4, environ={MASK: "3,1"})
        if start:
            torch.cuda.init()

        assert torch.device("cuda", 1) == safedev.select_device(machine.devices[1].uuid)

    def test_a_device_is_found_by_its_uuid_without_nvml(self, fake_cuda: InstallFakeCuda) -> None:
        """
        Where NVML is absent, a driver is asked.
        """
        machine = fake_cuda(2, nvml="absent")
        uuids = (machine.devices[0].uuid, machine.devices[1].uuid)

        assert uuids == _driver.uuids_from_child()
        assert torch.device("cuda", 1) == safedev.select_device(uuids[1])

    def test_a_driver_too_old_is_found(self, fake_cuda: InstallFakeCuda) -> None:
        """
        NVML tells of the pretended driver that it is too old.
        """
        fake_cuda(2, driver="too-old")

        assert "driver-unusable" in [finding.code for finding in safedev.diagnose("cuda").findings]

    def test_a_device_in_exclusive_use_is_found(self, fake_cuda: InstallFakeCuda) -> None:
        """
        A device that refuses is told apart from one that is not there.
        """
        fake_cuda(2, faults={1: "exclusive"})

        with pytest.raises(safedev.InvalidDeviceError) as caught:
            safedev.set_device(1, fallback="raise")

        assert "device-unusable" in [finding.code for finding in caught.value.diagnosis.findings]

    def test_nvml_answers_for_the_machine(self, fake_cuda: InstallFakeCuda) -> None:
        """
        Count, inventory and memory are those of the pretended devices.
        """
        fake_cuda(2, names=["A", "B"], memory=[1 << 30, 2 << 30], environ={MASK: "1"})
        inventory, (_, cuda, vitals) = _nvml.inventory(), _nvml.vitals()

        assert inventory is not None
        assert (2, ["A", "B"]) == (_nvml.count(), [device.name for device in inventory])
        assert {0: (1 << 30, 1 << 30, "9.0"), 1: (2 << 30, 2 << 30, "9.0")} == vitals
        assert cuda == _nvml.cuda_version()

    def test_absent_nvml_answers_nothing(self, fake_cuda: InstallFakeCuda) -> None:
        """
        With NVML absent, safedev is told nothing by it.
        """
        fake_cuda(2, nvml="absent")

        assert (None, None, None, ("", None, {})) == (
            _nvml.count(),
            _nvml.inventory(),
            _nvml.cuda_version(),
            _nvml.vitals(),
        )

    def test_the_host_below_is_not_looked_at(self, fake_cuda: InstallFakeCuda) -> None:
        """
        What this machine has says nothing of the pretended one.
        """
        fake_cuda(2)

        assert _isolation.Isolation() == _isolation.read()

    def test_a_driver_too_old_tells_no_uuids(self, fake_cuda: InstallFakeCuda) -> None:
        """
        A driver that does not start knows no device, in this process or in a child.
        """
        fake_cuda(2, driver="too-old")

        assert (None, None, None) == (_driver.frozen_count(), _driver.uuids(), _driver.uuids_from_child())


class TestMasksByUuid:
    def test_two_beginnings_of_one_uuid_hide_all(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The driver takes two beginnings of one UUID for a repetition.
        """
        machine = fake_cuda(2)
        os.environ[MASK] = f"{machine.devices[1].uuid},{machine.devices[1].uuid[:12]}"
        torch.cuda.is_available()

        assert () == machine.visible

    def test_a_beginning_that_fits_several_ends_the_list(self, fake_cuda: InstallFakeCuda) -> None:
        """
        The driver takes no UUID that it cannot tell from another.
        """
        machine = fake_cuda(2)
        os.environ[MASK] = f"{machine.devices[1].uuid},GPU-"
        torch.cuda.is_available()

        assert (1,) == machine.visible


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    """
    pytest loads the plug-in in every session; neither torch nor the fake comes with it.
    """
    code = "import sys, pytest, safedev.testing._plugin as p; print('torch' in sys.modules, 'ctypes' in sys.modules)"
    bare = "import sys, pytest; print('torch' in sys.modules, 'ctypes' in sys.modules)"
    told = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True).stdout
        for text in (code, bare)
    ]

    assert told[1] == told[0]


def test_the_plugin_gives_the_fixture(tmp_path: object) -> None:
    """
    A person's own test asks for fake_cuda by its name alone, and the next test has no fake, and no variable of it.
    """
    test = (
        "import torch\n"
        "def test_one(fake_cuda):\n    fake_cuda(7)\n    fake_cuda(8)\n    assert torch.cuda.device_count() == 8\n"
        "def test_two():\n    assert '_fake' not in repr(torch._C.__dict__.get('_cuda_getDeviceCount'))\n"
        "import os\n"
        "def test_three(fake_cuda, monkeypatch):\n"
        "    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '2,3')\n    fake_cuda(4)\n"
        "def test_four():\n    assert os.environ.get('CUDA_VISIBLE_DEVICES') is None\n"
    )
    with open(f"{tmp_path}/test_own.py", "w", encoding="utf-8") as file:  # noqa: PTH123 - a folder of pytest's own
        file.write(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:safedev", "-p", "safedev.testing._plugin", "test_own.py"]
    environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        command, cwd=str(tmp_path), env=environ, capture_output=True, text=True, timeout=100, check=False
    )

    assert "4 passed" in done.stdout


def test_an_unknown_name_is_no_attribute() -> None:
    """
    safedev.testing imports what it is asked for, and knows what it does not have.
    """
    import safedev.testing

    with pytest.raises(AttributeError, match="no attribute 'fake_gpu'"):
        safedev.testing.fake_gpu  # noqa: B018 - the access is the test


def test_every_name_can_be_imported() -> None:
    """
    What safedev.testing exports is there.
    """
    import safedev.testing

    assert safedev.testing.__all__ == [name for name in safedev.testing.__all__ if getattr(safedev.testing, name)]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_a_step_of_training_on_the_cpu_goes_through(optimizer: type[torch.optim.Optimizer]) -> None:
    """
    Whatever devices are pretended: torch's optimizers ask the accelerator first, whatever their tensors are on.
    """
    with fake_cuda(4):
        model = torch.nn.Linear(2, 1)
        before = model.weight.detach().clone()
        model(torch.ones(1, 2)).sum().backward()
        optimizer(model.parameters(), lr=0.1).step()  # type: ignore[call-arg]

        assert not torch.equal(before, model.weight.detach())
