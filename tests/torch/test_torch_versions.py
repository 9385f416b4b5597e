"""What differs between versions and builds of torch, by stand-ins for the parts that differ."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from safedev import _driver, _library, _nvml, _torch
from safedev._mask import parse_mask
from safedev._request import request_for
from safedev._snapshot import PhysicalDevice, Snapshot, Variables

MAY_WARN = _torch.may_warn
NOTHING: dict[str, Any] = {"is_available": lambda: False, "device_count": lambda: 0}


@pytest.fixture(autouse=True)
def sleeping_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of torch for CUDA, a driver that sleeps, and NVML that has not started; a test says what differs."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for module, name, answer in (
        (_torch, "may_warn", True),
        (_driver, "frozen_count", None),
        (_driver, "in_bad_fork", False),
        (_driver, "cuda_version", None),
        (_driver, "uuids", None),
        (_driver, "uuids_from_child", None),
        (_nvml, "cuda_version", None),
        (_nvml, "count", None),
        (_nvml, "inventory", None),
    ):
        monkeypatch.setattr(module, name, lambda answer=answer: answer)


def read(preferred: object = None, **variables: str) -> Snapshot:
    """The reading for one request."""
    return _torch.take_snapshot(request_for(preferred), Variables(variables))


# ---- other accelerators


def accelerator(monkeypatch: pytest.MonkeyPatch, current: Any, **functions: Any) -> None:
    """torch.accelerator, as it is from torch 2.6 on, in a build for another kind than CUDA."""

    def current_accelerator() -> Any:
        if isinstance(current, Exception):
            raise current
        return current

    api = SimpleNamespace(current_accelerator=current_accelerator, **({"device_count": lambda: 2} | functions))
    monkeypatch.setattr(torch, "accelerator", api, raising=False)
    monkeypatch.setattr(torch.version, "cuda", None)


def of_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """torch's own word on its version."""
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))


def before_2_6(monkeypatch: pytest.MonkeyPatch, *, xpu: dict[str, Any] = NOTHING, mps: bool = False) -> None:
    """torch 2.4 and 2.5: no torch.accelerator; torch.xpu and torch.backends.mps have always been there."""
    monkeypatch.delattr(torch, "accelerator", raising=False)
    monkeypatch.setattr(torch, "xpu", SimpleNamespace(**(NOTHING | xpu)))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


XPU = {"is_available": lambda: True, "device_count": lambda: 3}


@pytest.mark.parametrize(
    ("current", "functions", "answer"),
    [
        pytest.param(torch.device("xpu"), {}, ("xpu", 2), id="another-kind"),
        pytest.param(torch.device("mps"), {"device_count": lambda: 1}, ("mps", 1), id="the-only-one-of-its-kind"),
        pytest.param(torch.device("cuda"), {}, ("", 0), id="cuda-is-no-other-kind"),
        pytest.param(None, {}, ("", 0), id="none-from-2.7-on"),
        pytest.param(
            RuntimeError("Cannot access accelerator device when none is available."), {}, ("", 0), id="none-in-2.6"
        ),
        pytest.param(torch.device("xpu"), {"device_count": lambda: 0}, ("", 0), id="a-build-without-its-device"),
    ],
)
def test_the_accelerator_is_the_one_that_torch_names(
    monkeypatch: pytest.MonkeyPatch, current: Any, functions: dict[str, Any], answer: tuple[str, int]
) -> None:
    """
    By torch.accelerator, whose answer for none differs between versions.
    """
    accelerator(monkeypatch, current, **functions)
    snapshot = read("xpu")

    assert answer == (snapshot.accelerator, snapshot.accelerator_count)


def test_an_accelerator_that_cannot_be_counted_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A driver that fails is not a traceback.
    """

    def failing() -> int:
        raise RuntimeError("level zero: device lost")

    accelerator(monkeypatch, torch.device("xpu"), device_count=failing)

    assert ("", 0) == (read("xpu").accelerator, read("xpu").accelerator_count)


@pytest.mark.parametrize(
    ("xpu", "mps", "answer"),
    [
        pytest.param(XPU, False, ("xpu", 3), id="xpu"),
        pytest.param(NOTHING, True, ("mps", 1), id="mps"),
        pytest.param(NOTHING, False, ("", 0), id="none"),
    ],
)
def test_before_2_6_xpu_and_mps_are_asked_themselves(
    monkeypatch: pytest.MonkeyPatch, xpu: dict[str, Any], mps: bool, answer: tuple[str, int]
) -> None:
    """
    torch 2.4 and 2.5 have no torch.accelerator.
    """
    before_2_6(monkeypatch, xpu=xpu, mps=mps)
    snapshot = read("mps")

    assert answer == (snapshot.accelerator, snapshot.accelerator_count)


@pytest.mark.parametrize(
    ("preferred", "count", "asked"),
    [
        pytest.param(None, 0, True, id="auto-without-cuda"),
        pytest.param(None, 1, False, id="auto-with-cuda"),
        pytest.param("cuda", 0, False, id="cuda"),
        pytest.param(0, 0, False, id="an-ordinal"),
        pytest.param("xpu", 1, True, id="by-its-kind"),
    ],
)
def test_other_accelerators_are_asked_for_only_where_they_matter(
    monkeypatch: pytest.MonkeyPatch, preferred: object, count: int, asked: bool
) -> None:
    """
    torch.accelerator.device_count() starts the driver in torch 2.6 and 2.7.
    """
    questions = []
    accelerator(monkeypatch, None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: questions.append(1))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    read(preferred)

    assert asked is bool(questions)


@pytest.mark.parametrize(
    ("version", "cuda", "hip", "asked"),
    [
        pytest.param("2.6.0", "12.4", None, False, id="2.6-for-cuda"),
        pytest.param("2.6.0", None, "6.2", False, id="2.6-for-rocm"),
        pytest.param("2.6.0", None, None, True, id="2.6-for-another-kind"),
        pytest.param("2.7.0", "12.6", None, True, id="2.7-for-cuda"),
    ],
)
def test_in_2_6_a_build_for_cuda_is_not_asked_which_accelerator_it_has(
    monkeypatch: pytest.MonkeyPatch, version: str, cuda: str | None, hip: str | None, asked: bool
) -> None:
    """
    torch.accelerator.current_accelerator() starts the driver there: pytorch pull request 146443.
    """
    questions: list[int] = []
    accelerator(monkeypatch, None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: questions.append(1))
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    of_version(monkeypatch, version)

    assert "" == read().accelerator
    assert asked is bool(questions)


def test_a_cuda_device_is_made_current_by_torch_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With its ordinal.
    """
    made = []
    monkeypatch.setattr(torch.cuda, "set_device", made.append)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, 0))  # which older torch is asked besides
    _torch.make_current(torch.device("cuda", 1))

    assert [torch.device("cuda", 1)] == made


@pytest.mark.parametrize(
    ("version", "touched"),
    [pytest.param("2.7.1", True, id="before-2.8"), pytest.param("2.8.0", False, id="from-2.8")],
)
def test_the_current_device_is_touched_where_set_device_does_not(
    monkeypatch: pytest.MonkeyPatch, version: str, touched: bool
) -> None:
    """
    Before torch 2.8, ``set_device`` made no context on the device that is current already, and so could not be refused.
    """
    asked: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", asked.append)
    of_version(monkeypatch, version)
    _torch.make_current(torch.device("cuda", 1))

    assert [torch.device("cuda", 1)] * touched == asked


def test_nothing_is_made_current_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The CPU is always there.
    """
    accelerator(monkeypatch, None)  # any question to it fails
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: pytest.fail("CUDA was asked"))

    assert _torch.make_current(torch.device("cpu")) is None


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["set_device_index"], id="the-name-of-today"),
        pytest.param(["set_device_idx"], id="the-name-of-2.6"),
        pytest.param(["set_device_index", "set_device_idx"], id="both-while-one-is-deprecated"),
    ],
)
def test_another_accelerator_is_made_current_by_its_index(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    """
    By the newer of the two names that the function has had.
    """
    made: list[tuple[str, int]] = []
    functions = {name: lambda index, name=name: made.append((name, index)) for name in names}
    accelerator(monkeypatch, torch.device("xpu"), **functions)
    _torch.make_current(torch.device("xpu", 1))

    assert [(names[0], 1)] == made


@pytest.mark.parametrize(
    ("kind", "made"), [pytest.param("xpu", [torch.device("xpu", 0)], id="xpu"), pytest.param("mps", [], id="mps")]
)
def test_before_2_6_each_kind_makes_its_devices_current(
    monkeypatch: pytest.MonkeyPatch, kind: str, made: list[torch.device]
) -> None:
    """
    torch.xpu has a function for it; torch.mps has none, and one device.
    """
    done: list[torch.device] = []
    before_2_6(monkeypatch, xpu={"set_device": done.append})
    _torch.make_current(torch.device(kind, 0))

    assert made == done


@pytest.mark.parametrize("version", ["2.4.1", "2.6.0", "2.7.1", "2.8.0", "2.13.0"])
@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("preferred", [None, "cuda", 1, "GPU-1", "xpu", "cpu"])
def test_a_build_for_cuda_is_asked_nothing_that_starts_the_driver(
    monkeypatch: pytest.MonkeyPatch, preferred: object, count: int, version: str
) -> None:
    """
    In no version: current_accelerator() alone is asked, from 2.7 on, where it starts nothing.
    """

    def starts(*_: object) -> None:
        pytest.fail("this starts the driver")

    accelerator(monkeypatch, torch.device("cuda"), device_count=starts, is_available=starts)
    if version in {"2.4.1", "2.6.0"}:
        monkeypatch.setattr(torch.accelerator, "current_accelerator", starts)
    if version == "2.4.1":
        before_2_6(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    for name in ("is_available", "get_arch_list", "init", "current_device", "get_device_properties", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, starts)
    of_version(monkeypatch, version)

    assert count == read(preferred).device_count


# ---- counting


@pytest.mark.parametrize(
    ("error", "evidence"),
    [
        pytest.param(
            ValueError("invalid literal for int() with base 10: '+'"), "ValueError: invalid literal", id="parser"
        ),
        pytest.param(RuntimeError("HIP_VISIBLE_DEVICES contains more"), "RuntimeError: HIP_VISIBLE", id="rocm"),
        pytest.param(OSError("libnvidia-ml"), "OSError: libnvidia-ml", id="library"),
        pytest.param(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "UnicodeDecodeError: ", id="nonsense"),
    ],
)
@pytest.mark.parametrize("serves", [pytest.param(None, id="nvml-silent"), pytest.param(13000, id="nvml-started")])
def test_a_count_that_fails_is_zero(
    monkeypatch: pytest.MonkeyPatch, error: Exception, evidence: str, serves: int | None
) -> None:
    """
    What torch raised is kept as evidence, and comes out as no traceback, whether NVML has been started before or not.
    """

    def device_count() -> int:
        raise error

    monkeypatch.setattr(torch.cuda, "device_count", device_count)
    monkeypatch.setattr(_nvml, "cuda_version", lambda: serves)
    snapshot = read(0)

    assert 0 == snapshot.device_count
    assert snapshot.count_evidence.startswith(evidence)


def test_a_negative_count_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    torch answers -1 where NVML does not, and passes it on in some versions.
    """
    monkeypatch.setattr(torch.cuda, "device_count", lambda: -1)

    assert 0 == read(0).device_count


def warn_as(filename: str, text: str, module: str = "torch.cuda") -> int:
    warnings.warn_explicit(text, UserWarning, filename, 1, module)
    return 1


def test_torchs_own_warnings_are_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    They are not shown to the caller, who did not ask for a count.
    """
    monkeypatch.setattr(torch.cuda, "device_count", lambda: warn_as(torch.cuda.__file__, "Can't initialize NVML"))
    snapshot = read(0)

    assert (1, "Can't initialize NVML") == (snapshot.device_count, snapshot.count_evidence)


def test_an_nvml_that_fails_after_it_has_answered_changes_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    torch then warns, and asks the runtime; a caller who turns warnings into errors gets that count all the same.
    """
    monkeypatch.setattr(torch.cuda, "device_count", lambda: warn_as(torch.cuda.__file__, "Can't initialize NVML"))
    monkeypatch.setattr(_nvml, "cuda_version", lambda: 13000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        snapshot = read(0)

    assert (1, "Can't initialize NVML") == (snapshot.device_count, snapshot.count_evidence)


@pytest.mark.parametrize("mask", [None, "0"])
def test_a_count_of_nothing_is_asked_again_for_its_evidence(monkeypatch: pytest.MonkeyPatch, mask: str | None) -> None:
    """
    What torch warned of explains why there is nothing, although NVML had answered before.
    """
    monkeypatch.setattr(
        torch.cuda, "device_count", lambda: warn_as(torch.cuda.__file__, "CUDA initialization: error 999") - 1
    )
    monkeypatch.setattr(_nvml, "cuda_version", lambda: 13000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        snapshot = read(0, **({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}))

    assert (0, "CUDA initialization: error 999") == (snapshot.device_count, snapshot.count_evidence)


@pytest.mark.parametrize(
    ("variables", "number"),
    [
        pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, 2, id="hidden-on-purpose"),
        pytest.param({}, 0, id="a-machine-without-devices"),
    ],
)
def test_a_count_of_nothing_that_is_plain_is_not_asked_twice(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], number: int
) -> None:
    """
    The mask hides all on purpose, or NVML counts none: there is nothing to explain.
    """
    asked = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: asked.append(1) or 0)
    monkeypatch.setattr(_nvml, "cuda_version", lambda: 13000)
    monkeypatch.setattr(_nvml, "count", lambda: number)

    assert 0 == read(0, **variables).device_count
    assert 1 == len(asked)


def test_under_a_mask_of_instances_torchs_warnings_are_evidence_although_nvml_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    torch asks the CUDA runtime there, which may warn whatever NVML says.
    """
    monkeypatch.setattr(torch.cuda, "device_count", lambda: warn_as(torch.cuda.__file__, "CUDA initialization: error"))
    monkeypatch.setattr(_nvml, "cuda_version", lambda: 13000)

    assert "CUDA initialization: error" == read(0, CUDA_VISIBLE_DEVICES="MIG-1").count_evidence


@pytest.mark.parametrize("action", ["error", "ignore", "once"])
def test_torchs_own_warnings_are_evidence_whatever_the_filters(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    """
    A caller who turns warnings off, or into errors, gets the same count and the same evidence.
    """
    monkeypatch.setattr(torch.cuda, "device_count", lambda: warn_as(torch.cuda.__file__, "Can't initialize NVML"))
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        snapshots = [read(0), read(0)]

    assert [(1, "Can't initialize NVML")] * 2 == [(one.device_count, one.count_evidence) for one in snapshots]


def elsewhere(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """While torch counts, a module of the user's warns."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: warn_as("/elsewhere/user.py", "look out", module))


@pytest.mark.parametrize("module", ["user", "torchvision.ops", "my.torch"])
def test_a_warning_of_another_thread_is_shown_once(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """
    What was warned of meanwhile from elsewhere is not swallowed, and is no evidence.
    """
    elsewhere(monkeypatch, module)
    with pytest.warns(UserWarning, match="look out") as caught:
        snapshot = read(0)

    assert "" == snapshot.count_evidence
    assert [("/elsewhere/user.py", 1)] == [(warning.filename, warning.lineno) for warning in caught]


@pytest.mark.parametrize("module", ["user", "torchvision.ops", "my.torch"])
def test_a_warning_of_another_thread_keeps_its_filter(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """
    One that its program has silenced stays silent.
    """
    elsewhere(monkeypatch, module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        snapshot = read(0)

    assert "" == snapshot.count_evidence
    assert [] == caught


def test_a_warning_of_another_thread_is_shown_as_the_program_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    By its own `showwarning`, past the filters, which it has passed already.
    """
    shown = []
    elsewhere(monkeypatch, "user")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", module="user$")  # the name of a module is not known any more afterwards
        monkeypatch.setattr(warnings, "showwarning", lambda *one: shown.append((str(one[0]), *one[1:4])))
        read(0)

    assert [("look out", UserWarning, "/elsewhere/user.py", 1)] == shown


def warned_beside_counts(**variables: str) -> int:
    """How often a program is shown the warning of one of its lines, where it counts devices each time it is run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warnings.warn("the program's own", stacklevel=1)
            read(0, **variables)
    return len(caught)


@pytest.mark.parametrize(
    ("cuda", "hip", "may_warn", "variables", "shown"),
    [
        pytest.param(None, None, True, {}, 1, id="a-build-without-either"),
        pytest.param("12.8", None, False, {}, 1, id="a-machine-without-a-driver"),
        pytest.param("12.8", None, True, {"CUDA_VISIBLE_DEVICES": "-1"}, 1, id="all-hidden"),
        pytest.param("12.8", None, True, {"CUDA_VISIBLE_DEVICES": ""}, 1, id="all-hidden-by-empty-text"),
        pytest.param("12.8", None, True, {}, 3, id="this-test-can-fail"),
        pytest.param(None, "6.2", False, {"HIP_VISIBLE_DEVICES": "-1"}, 3, id="on-rocm-it-can-fail"),
    ],
)
def test_a_warning_of_the_program_is_shown_once_where_torch_has_none(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None, may_warn: Any, variables: Any, shown: int
) -> None:
    """
    torch counts 0 without a word in a build without CUDA, under a mask that hides all, and without a driver. To catch
    its warnings all the same would change the filters, after which Python shows each line's warning anew.
    """
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(_torch, "may_warn", lambda: may_warn)

    assert shown == warned_beside_counts(**variables)


@pytest.mark.parametrize(
    ("there", "may_warn"),
    [
        pytest.param(set(), False, id="neither"),
        pytest.param({_nvml.NAME}, True, id="nvml"),
        pytest.param({_driver.NAME}, True, id="driver"),
    ],
)
def test_torch_may_warn_where_a_library_of_the_driver_is(
    monkeypatch: pytest.MonkeyPatch, there: set[str], may_warn: Any
) -> None:
    """
    NVML may fail to start, and so may the driver; torch warns of both.
    """
    monkeypatch.setattr(_library, "can_load", lambda name: name in there)

    assert may_warn is MAY_WARN()


def test_what_torch_said_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A message of any length is evidence of a limited one.
    """

    def device_count() -> int:
        raise RuntimeError("x" * 10**6)

    monkeypatch.setattr(torch.cuda, "device_count", device_count)

    assert 1000 > len(read(0).count_evidence)


def in_thread(target: Any) -> Any:
    """The answer of *target* in another thread; a failure if it takes for ever."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(target()), daemon=True)
    thread.start()
    thread.join(30)
    return answers[0] if answers else pytest.fail("it waits for ever")


def test_counts_in_two_threads_leave_the_filters_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The second count does not begin before the first has put the filters back, else it would put the wrong ones back.
    """
    together, ended = threading.Barrier(2), threading.Event()
    counted: list[int] = []

    def slow_count() -> int:
        counted.append(len(counted))
        last = len(counted) == 2
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.2)  # both count at once, if anything lets them
        if last:
            ended.wait(0.2)  # and the one that began first ends first
        return 2

    def count() -> None:
        read(0)
        ended.set()

    monkeypatch.setattr(torch.cuda, "device_count", slow_count)
    before = list(warnings.filters), warnings.showwarning
    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [0, 1] == counted
    assert before == (list(warnings.filters), warnings.showwarning)


def test_a_lock_held_while_the_process_was_forked_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The child, which has another id, does not wait for a thread that it has not.
    """
    pid, locks = os.getpid(), {os.getpid(): threading.RLock()}
    monkeypatch.setattr(_torch, "_counting", locks)
    in_thread(locks[pid].acquire)  # and never given back
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)

    assert 2 == in_thread(lambda: read(0)).device_count
    assert {pid, pid + 1} == set(locks)


@pytest.mark.parametrize("fails", [False, True], ids=["it-answers", "it-raises"])
def test_the_lock_is_given_back(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """
    The next count, in another thread, does not wait, whatever became of this one.
    """
    monkeypatch.setattr(_torch, "_counting", {})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 // (not fails))
    read(0)

    assert [os.getpid()] == list(_torch._counting)
    assert in_thread(lambda: _torch._counting[os.getpid()].acquire(blocking=False))


def test_a_count_inside_a_count_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What is called while torch counts, a finaliser or a handler of signals, may ask for a device too.
    """
    answers: list[Snapshot] = []

    def device_count() -> int:
        if not answers:
            answers.append(Snapshot(mask=parse_mask(None), device_count=0))
            answers.append(read(0))
        return 2

    monkeypatch.setattr(torch.cuda, "device_count", device_count)

    assert 2 == in_thread(lambda: read(0)).device_count
    assert 2 == answers[1].device_count


def test_a_driver_that_has_started_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    torch is then not asked: its answer may be older.
    """
    monkeypatch.setattr(_driver, "frozen_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: pytest.fail("torch was asked"))
    snapshot = read(0)

    assert (1, 1) == (snapshot.device_count, snapshot.driver_count)


def test_in_a_forked_process_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    torch would repeat the parent's count, of devices that this process cannot use.
    """
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: pytest.fail("torch was asked"))
    snapshot = read(0)

    assert (0, True) == (snapshot.device_count, snapshot.forked)


@pytest.mark.parametrize(
    ("serves", "build", "count"),
    [
        pytest.param(11040, "12.8", 0, id="too-old"),
        pytest.param(12080, "12.8", 2, id="new-enough"),
        pytest.param(11040, None, 2, id="no-cuda-in-torch"),
    ],
)
def test_devices_of_a_driver_that_is_too_old_do_not_count(
    monkeypatch: pytest.MonkeyPatch, serves: int, build: str | None, count: int
) -> None:
    """
    NVML counts devices whose driver cannot start.
    """
    monkeypatch.setattr(_nvml, "cuda_version", lambda: serves)
    monkeypatch.setattr(torch.version, "cuda", build)

    assert count == read(0).device_count


@pytest.mark.parametrize(
    ("loaded", "count"),
    [
        pytest.param(13000, 2, id="forward-compatible"),
        pytest.param(11040, 0, id="as-old"),
        pytest.param(None, 0, id="not-loaded"),
    ],
)
def test_a_library_that_is_loaded_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch, loaded: int | None, count: int
) -> None:
    """
    It is the one that torch will use, and may serve more than NVML knows of:
    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html.
    """
    monkeypatch.setattr(_nvml, "cuda_version", lambda: 11040)
    monkeypatch.setattr(_driver, "cuda_version", lambda: loaded)

    assert (count, loaded or 11040) == (read(0).device_count, read(0).driver_cuda)


def test_a_driver_that_is_new_enough_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Looking for a library that is not loaded takes as long as the rest of a choice.
    """
    monkeypatch.setattr(_nvml, "cuda_version", lambda: 12080)
    monkeypatch.setattr(_driver, "cuda_version", lambda: pytest.fail("its library was looked for"))

    assert 2 == read(0).device_count


# ---- the mask that torch counts by


@pytest.mark.parametrize(
    ("hip", "variables", "variable", "entries"),
    [
        pytest.param(None, {"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES", (1,), id="cuda"),
        pytest.param(
            None,
            {"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "2"},
            "CUDA_VISIBLE_DEVICES",
            (1,),
            id="cuda-alone",
        ),
        pytest.param("6.4", {"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES", (1,), id="rocm-without-its-own"),
        pytest.param(
            "6.4", {"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "2"}, "HIP_VISIBLE_DEVICES", (2,), id="rocm"
        ),
        pytest.param(
            "6.4", {"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": ""}, "HIP_VISIBLE_DEVICES", (), id="rocm-empty"
        ),
    ],
)
def test_the_mask_is_the_one_that_torch_reads(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, variables: dict[str, str], variable: str, entries: object
) -> None:
    """
    On ROCm HIP's, where it is set, be it empty.
    """
    monkeypatch.setattr(torch.version, "hip", hip)
    mask = read(0, **variables).mask

    assert (variable, entries) == (mask.variable, mask.entries)


# ---- refusals


def test_a_refusal_is_noted_with_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And with the driver's own count, which is the true one if it has started meanwhile.
    """
    monkeypatch.setattr(_driver, "frozen_count", lambda: 1)
    error = RuntimeError("\nCUDA error: invalid device ordinal\nCUDA kernel errors might be ...\n")
    snapshot = _torch.refused(read(1), error, torch.device("cuda", 1))

    assert ("CUDA error: invalid device ordinal", ("cuda:1",)) == (snapshot.refusal, snapshot.refused)
    assert (1, 1) == (snapshot.driver_count, snapshot.device_count)


def test_each_refusal_is_noted_behind_the_last() -> None:
    """
    The words are those of the last one; the devices that refused before are not forgotten.
    """
    first = _torch.refused(read(1), RuntimeError("busy"), torch.device("cuda", 1))
    second = _torch.refused(first, RuntimeError("lost"), torch.device("cuda", 0))

    assert ("lost", ("cuda:1", "cuda:0")) == (second.refusal, second.refused)


def test_a_driver_that_did_not_start_leaves_the_count() -> None:
    """
    What was counted stays as it was read.
    """
    snapshot = _torch.refused(read(1), AssertionError("Torch not compiled with CUDA enabled"), torch.device("cuda", 1))

    assert (None, 2) == (snapshot.driver_count, snapshot.device_count)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(RuntimeError(), "RuntimeError", id="no-words"),
        pytest.param(RuntimeError(" \n "), "RuntimeError", id="blank-words"),
        pytest.param(RuntimeError("x" * 10**6), "x" * 288, id="a-million-letters"),
    ],
)
def test_a_refusal_always_has_words(error: Exception, words: str) -> None:
    """
    Neither none nor too many.
    """
    assert words == _torch.refused(read(1), error, torch.device("cuda", 1)).refusal


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RuntimeError, id="what-the-driver-raises"),
        pytest.param(AssertionError, id="what-a-build-without-cuda-raises"),
        pytest.param(ValueError, id="what-a-wrong-argument-raises"),
        pytest.param(torch.cuda.DeferredCudaCallError, id="what-a-late-call-raises"),
        pytest.param(torch.cuda.OutOfMemoryError, id="out-of-memory"),
        pytest.param(getattr(torch, "AcceleratorError", RuntimeError), id="what-the-driver-raises-from-2.8-on"),
        pytest.param(NotImplementedError, id="not-implemented"),
    ],
)
def test_what_torch_raises_for_a_device_is_a_refusal(error: type[Exception]) -> None:
    """
    Each of the classes that torch's set_device has raised.
    """
    assert issubclass(error, _torch.REFUSALS)


# ---- UUIDs

DEVICES = tuple(PhysicalDevice(index=n, uuid=f"GPU-{n}{n}aa", name="T4") for n in range(2))


@pytest.mark.parametrize(
    ("uuid", "mask", "found"),
    [
        pytest.param("GPU-11", None, (1,), id="no-mask"),
        pytest.param("GPU-11AA", None, (1,), id="capitals"),
        pytest.param("GPU-11", "1,0", (0,), id="numbers"),
        pytest.param("GPU-99", None, (), id="unknown"),
        pytest.param("GPU-99", "GPU-99,GPU-11", (0,), id="in-the-masks-own-text"),
        pytest.param("MIG-5", "MIG-5,MIG-6", (0,), id="an-instance-in-the-masks-own-text"),
    ],
)
def test_a_uuid_is_found(monkeypatch: pytest.MonkeyPatch, uuid: str, mask: str | None, found: tuple[int, ...]) -> None:
    """
    In the text of the mask, or among the devices that NVML lists.
    """
    monkeypatch.setattr(_nvml, "inventory", lambda: DEVICES)
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)

    assert found == read(uuid, **({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})).found


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-8"}, id="the-mask"),
        pytest.param({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, id="the-order"),
    ],
)
def test_where_the_driver_reads_another_environment_a_child_is_asked(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """
    What os.environ says alone is not what decides which device an ordinal is.
    """
    monkeypatch.setattr(_nvml, "inventory", lambda: DEVICES)
    monkeypatch.setattr(_driver, "uuids_from_child", lambda: ("GPU-7", "GPU-8"))

    assert (1,) == read("GPU-8", **variables).found


@pytest.mark.parametrize("awake", [False, True])
@pytest.mark.parametrize(
    ("uuid", "found"),
    [
        pytest.param("MIG-GPU-8/1/0", (0,), id="as-it-stands"),
        pytest.param("MIG-gpu-8/1/0", (0,), id="in-small-letters"),
        pytest.param("MIG-GPU-8/1/1", (), id="another"),
    ],
)
def test_an_instance_by_its_older_name_is_found_in_the_mask(
    monkeypatch: pytest.MonkeyPatch, awake: bool, uuid: str, found: tuple[int, ...]
) -> None:
    """
    The driver tells instances by another UUID, and NVML knows no such name.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-8/1/0")
    monkeypatch.setattr(_driver, "uuids", lambda: ("GPU-55",) if awake else None)

    assert found == read(uuid, CUDA_VISIBLE_DEVICES="MIG-GPU-8/1/0").found


@pytest.mark.parametrize(
    ("known", "found"),
    [
        pytest.param(("GPU-7a", "GPU-7b"), (0, 1), id="ambiguous"),
        pytest.param(("GPU-8", "GPU-7"), (1,), id="one"),
        pytest.param((), (), id="none"),
        pytest.param(None, None, id="nobody-can-tell"),
    ],
)
@pytest.mark.parametrize("asked", ["uuids", "uuids_from_child"])
def test_a_uuid_is_found_by_a_driver(monkeypatch: pytest.MonkeyPatch, asked: str, known: Any, found: Any) -> None:
    """
    By this process's own if it has started, else by that of a child process.
    """
    monkeypatch.setattr(_driver, asked, lambda: known)
    if asked == "uuids":
        monkeypatch.setattr(_driver, "frozen_count", lambda: 2)

    assert found == read("GPU-7").found


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param((PhysicalDevice(index=0, uuid="GPU-7", mig=True),) * 2, id="divided-into-instances"),
        pytest.param((PhysicalDevice(index=0), PhysicalDevice(index=1)), id="uuids-refused"),
        pytest.param(
            (PhysicalDevice(index=0, uuid="GPU-7", name="A"), PhysicalDevice(index=1, name="B")), id="unknown-order"
        ),
        pytest.param((PhysicalDevice(index=0, uuid="GPU-7"),), id="another-number-of-devices"),
    ],
)
def test_where_nvml_cannot_tell_the_ordinals_a_child_is_asked(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[PhysicalDevice, ...]
) -> None:
    """
    NVML's order is not taken for CUDA's.
    """
    monkeypatch.setattr(_nvml, "inventory", lambda: devices)
    monkeypatch.setattr(_driver, "uuids_from_child", lambda: ("GPU-8", "GPU-7"))

    assert (1,) == read("GPU-7").found


def test_where_nothing_is_visible_no_child_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No device has the UUID.
    """
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(_driver, "uuids_from_child", lambda: pytest.fail("a child was started"))

    assert () == read("GPU-7").found


# ---- what another request depends on besides


def complete(preferred: object, snapshot: Snapshot, **variables: str) -> Snapshot:
    return _torch.complete(request_for(preferred), snapshot, variables)


@pytest.mark.parametrize("answer", [pytest.param("xpu", id="by-its-kind"), pytest.param(None, id="any")])
def test_an_answer_of_another_kind_is_looked_for(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    """
    A reading for a request by ordinal knows nothing of other accelerators; a policy may answer with one.
    """
    accelerator(monkeypatch, torch.device("xpu"))
    before = read(9)
    after = complete(answer, before)

    assert ("", 0) == (before.accelerator, before.accelerator_count)
    assert ("xpu", 2) == (after.accelerator, after.accelerator_count)


def test_an_accelerator_that_was_read_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One reading decides about the request and about the answer.
    """
    accelerator(monkeypatch, torch.device("xpu"))
    snapshot = read("xpu:7")
    monkeypatch.setattr(_torch, "_accelerator", lambda: pytest.fail("torch was asked again"))

    assert snapshot is complete("xpu:1", snapshot)


def test_an_answer_by_uuid_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Under the mask that the first reading was made under.
    """
    monkeypatch.setattr(_nvml, "inventory", lambda: DEVICES)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")

    assert (1,) == complete("GPU-00", read(9, CUDA_VISIBLE_DEVICES="1,0")).found


@pytest.mark.parametrize("answer", [0, "cuda", "cpu"])
def test_an_answer_that_the_counts_decide_needs_no_more(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    """
    Nothing is read again.
    """
    snapshot = read(9)
    monkeypatch.setattr(_torch, "_accelerator", lambda: pytest.fail("torch was asked"))

    assert snapshot is complete(answer, snapshot)
