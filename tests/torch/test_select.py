"""select_device, set_device, diagnose and resolve_local_rank, on a pretended torch.cuda."""

from __future__ import annotations

import linecache
import logging
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch

import safedev
from safedev import _isolation, _library, _nvml, _torch
from safedev._diagnosis import Diagnosis
from safedev._request import request_for
from safedev.testing._plugin import InstallFakeCuda

CPU = torch.device("cpu")


def cuda(ordinal: int) -> torch.device:
    return torch.device("cuda", ordinal)


def torchrun(local_rank: int, workers: int, **more: str) -> dict[str, str]:
    """The environment of one of torchrun's workers on one node."""
    return {
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(workers),
        "RANK": str(local_rank),
        "WORLD_SIZE": str(workers),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "none",
    } | more


def codes(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings]


@pytest.mark.parametrize(
    ("count", "environ", "preferred", "device"),
    [
        pytest.param(2, {}, None, cuda(0), id="nothing"),
        pytest.param(2, {}, "cuda", cuda(0), id="cuda"),
        pytest.param(2, {}, 1, cuda(1), id="ordinal"),
        pytest.param(2, {}, torch.device("cuda", 1), cuda(1), id="device"),
        pytest.param(2, {}, torch.tensor(1), cuda(1), id="tensor"),
        pytest.param(0, {}, None, CPU, id="no-device"),
        pytest.param(2, {"CUDA_VISIBLE_DEVICES": ""}, None, CPU, id="hidden-on-purpose"),
        pytest.param(2, {}, "cpu", CPU, id="cpu"),
        pytest.param(4, torchrun(2, 4), None, cuda(2), id="local-rank"),
        pytest.param(4, torchrun(2, 4), 3, cuda(3), id="ordinal-under-a-launcher"),
    ],
)
@pytest.mark.parametrize("choose", [safedev.select_device, safedev.set_device])
def test_what_can_be_had_is_returned(
    fake_cuda: InstallFakeCuda, choose: Any, count: int, environ: dict[str, str], preferred: Any, device: torch.device
) -> None:
    """
    With an explicit ordinal, and without a word.
    """
    fake_cuda(count, environ=environ)

    assert device == choose(preferred)


def test_selecting_makes_nothing_current(fake_cuda: InstallFakeCuda) -> None:
    """
    And starts no driver.
    """
    machine = fake_cuda(2)
    safedev.select_device(1)

    assert [] == machine.made_current
    assert not torch.cuda.is_initialized()


def test_setting_makes_the_device_current(fake_cuda: InstallFakeCuda) -> None:
    """
    Which starts the driver.
    """
    machine = fake_cuda(2)
    safedev.set_device(1)

    assert [1] == machine.made_current


@pytest.mark.parametrize("choose", [safedev.select_device, safedev.set_device])
def test_a_fallback_warns_at_the_callers_line(fake_cuda: InstallFakeCuda, choose: Any) -> None:
    """
    The text is the whole diagnosis, and names what was chosen instead.
    """
    fake_cuda(1)
    with pytest.warns(safedev.FallbackWarning) as caught:
        device = choose(3)

    assert cuda(0) == device
    assert "choose(3)" in linecache.getline(__file__, caught[0].lineno)
    assert __file__ == caught[0].filename
    assert "[out-of-range]" in str(caught[0].message)
    assert str(caught[0].message).endswith("\n  using cuda:0 instead")


@pytest.mark.parametrize(
    ("fallback", "count", "device"),
    [
        pytest.param("cuda:0", 1, cuda(0), id="the-first-device"),
        pytest.param("cuda:0", 0, CPU, id="the-cpu-where-there-is-none"),
        pytest.param("cpu", 1, CPU, id="the-cpu"),
        pytest.param(lambda _: 1, 2, cuda(1), id="a-policy-answers-with-an-ordinal"),
        pytest.param(lambda _: "cuda:1", 2, cuda(1), id="with-text"),
        pytest.param(lambda _: torch.device("cuda", 1), 2, cuda(1), id="with-a-device"),
        pytest.param(lambda _: torch.device("cpu"), 2, CPU, id="with-the-cpu"),
    ],
)
def test_the_policys_answer_is_returned(
    fake_cuda: InstallFakeCuda, fallback: Any, count: int, device: torch.device
) -> None:
    """
    Whatever form it has.
    """
    fake_cuda(count)

    with pytest.warns(safedev.FallbackWarning):
        assert device == safedev.select_device(9, fallback=fallback)


@pytest.mark.parametrize(
    "fallback",
    [
        pytest.param("raise", id="it-declines"),
        pytest.param(lambda _: None, id="a-callable-declines"),
        pytest.param(lambda _: 7, id="it-answers-with-what-is-not-there"),
        pytest.param(lambda _: "xpu", id="or-of-another-kind"),
        pytest.param(lambda _: -1, id="or-negative"),
    ],
)
@pytest.mark.parametrize("choose", [safedev.select_device, safedev.set_device])
def test_without_an_answer_the_diagnosis_is_raised(fake_cuda: InstallFakeCuda, choose: Any, fallback: Any) -> None:
    """
    Code that caught torch's RuntimeError still works, and the error travels.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "1"})

    with pytest.raises(RuntimeError) as caught:
        choose(1, fallback=fallback)

    assert isinstance(caught.value, safedev.InvalidDeviceError)
    assert ["physical-index"] == codes(caught.value.diagnosis)
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))


class Accelerator:
    """What `torch.accelerator` is to us on a machine with devices of another kind."""

    def __init__(self, kind: str, count: int) -> None:
        self.current = torch.device(kind)
        self.device_count = lambda: count

    def current_accelerator(self) -> torch.device:
        return self.current


@pytest.mark.parametrize("answer", ["mps", "mps:0", torch.device("mps")], ids=["kind", "ordinal", "device"])
def test_a_policy_may_choose_another_accelerator(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """
    Also where the request was for CUDA, and nobody had looked for another kind.
    """
    fake_cuda(0)
    monkeypatch.setattr(torch.version, "cuda", None)  # a build drives one kind
    monkeypatch.setattr(torch, "accelerator", Accelerator("mps", 1), raising=False)

    with pytest.warns(safedev.FallbackWarning, match="using mps:0 instead"):
        assert torch.device("mps", 0) == safedev.select_device("cuda", fallback=lambda _: answer)


def test_a_policy_may_choose_by_uuid(fake_cuda: InstallFakeCuda) -> None:
    """
    The device is found under the mask, as for a request.
    """
    machine = fake_cuda(4, environ={"CUDA_VISIBLE_DEVICES": "3,1"})

    with pytest.warns(safedev.FallbackWarning, match="using cuda:1 instead"):
        assert cuda(1) == safedev.select_device(9, fallback=lambda _: machine.devices[1].uuid)


@pytest.mark.parametrize("answer", ["xpu", "GPU-77"], ids=["another-kind", "uuid"])
def test_a_policy_that_chose_what_is_not_there_is_named(fake_cuda: InstallFakeCuda, answer: str) -> None:
    """
    With its answer.
    """

    def mine(_: Diagnosis) -> str:
        return answer

    fake_cuda(1)

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.select_device(9, fallback=mine)

    assert f"mine chose {answer}, which cannot be had either" == caught.value.declined


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        pytest.param(1.5, "1.5 is no device", id="float"),
        pytest.param(True, "True is no device", id="truth-value"),
        pytest.param("gpu0", "'gpu0' is no device (did you mean 'cuda:0'?)", id="gpu"),
        pytest.param("", "'' is no device", id="empty-text"),
        pytest.param([0], "a value of type list is no device", id="list"),
        pytest.param(b"cpu", "a value of type bytes is no device", id="bytes"),
        pytest.param("\x1b[31m" * 1000, "(5000 characters) is no device", id="escape-codes"),
    ],
)
@pytest.mark.parametrize("choose", [safedev.select_device, safedev.set_device])
def test_a_policy_that_answers_nonsense_is_named(
    fake_cuda: InstallFakeCuda, choose: Any, answer: Any, shown: str
) -> None:
    """
    With its answer, below the diagnosis of the request; the error is the one that callers wait for, and travels.
    """

    def mine(_: Diagnosis) -> Any:
        return answer

    fake_cuda(1)

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        choose(9, fallback=mine)

    assert caught.value.declined.startswith("mine answered with no device: ")
    assert caught.value.declined.endswith(shown)
    assert f"{caught.value.diagnosis.render()}\n  fallback: {caught.value.declined}" == str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))


def test_nobody_is_named_where_nobody_was_asked(fake_cuda: InstallFakeCuda) -> None:
    """
    "raise" is no fallback.
    """
    fake_cuda(1)

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.select_device(9, fallback="raise")

    assert "" == caught.value.declined
    assert "fallback:" not in str(caught.value)


def test_a_policy_is_asked_once(fake_cuda: InstallFakeCuda) -> None:
    """
    With the diagnosis of the request that was refused.
    """
    fake_cuda(1)
    asked: list[Diagnosis] = []

    with pytest.raises(safedev.InvalidDeviceError):
        safedev.select_device(5, fallback=lambda diagnosis: asked.append(diagnosis) or 6)

    assert [5] == [diagnosis.request.ordinal for diagnosis in asked]


@pytest.mark.parametrize("preferred", ["cpu", 0, None])
def test_an_unknown_policy_fails_even_where_none_is_needed(fake_cuda: InstallFakeCuda, preferred: Any) -> None:
    """
    At once, and not on the day it is needed.
    """
    fake_cuda(1)

    with pytest.raises(ValueError, match="no policy is named 'cup'"):
        safedev.select_device(preferred, fallback="cup")  # type: ignore[arg-type]


def test_the_default_policy_does_not_crowd_a_device(fake_cuda: InstallFakeCuda) -> None:
    """
    Under a launcher siblings would end up on cuda:0 too: it declines.
    """
    fake_cuda(2, environ=torchrun(0, 4))

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.select_device()

    assert "oversubscribed" in codes(caught.value.diagnosis)
    assert "'cuda:0' declined, since other workers of this launch would be on cuda:0 too" == caught.value.declined


@pytest.mark.parametrize("preferred", [7, -1], ids=["past-the-last", "negative"])
def test_the_workers_of_one_launch_are_advised_apart(fake_cuda: InstallFakeCuda, preferred: int) -> None:
    """
    All ask for the same ordinal, which is none; each is advised its own device.
    """
    advice = []
    for rank in range(4):
        fake_cuda(4, environ=torchrun(rank, 4))
        advice += [finding.suggestion for finding in safedev.diagnose(preferred).findings]

    assert ["cuda:0", "cuda:1", "cuda:2", "cuda:3"] == advice


# ---- what a refusal looks at


def test_a_refusal_counts_the_machine_where_the_mask_promises_more(fake_cuda: InstallFakeCuda) -> None:
    """
    While CUDA sleeps, an entry that names no device of the machine is found by one question.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "0,9"})

    with pytest.raises(safedev.InvalidDeviceError, match=r"\[mask-unknown-device\]"):
        safedev.select_device(1, fallback="raise")


def test_a_refusal_sees_that_a_mask_was_taken_away(fake_cuda: InstallFakeCuda) -> None:
    """
    The driver holds to fewer devices than the machine has, and no mask is set: it was, when CUDA started.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "0"})
    torch.cuda.init()
    del os.environ["CUDA_VISIBLE_DEVICES"]

    with pytest.raises(safedev.InvalidDeviceError, match=r"\[mask-too-late\]"):
        safedev.select_device(1, fallback="raise")


# ---- a mask that came too late


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param({"LOCAL_RANK": "1"}, id="a-lone-local-rank"),
        pytest.param(
            {
                "SLURM_STEP_ID": "0",
                "SLURM_LOCALID": "1",
                "SLURM_PROCID": "1",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_TASKS_PER_NODE": "2",
                "SLURM_NODEID": "0",
            },
            id="slurm",
        ),
    ],
)
def test_a_late_mask_is_no_silent_proof_of_a_device_of_ones_own(
    fake_cuda: InstallFakeCuda, launch: dict[str, str]
) -> None:
    """
    Every task inherits `0`, CUDA starts, and the script writes its local rank too late: all are on one device.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "0", **launch})
    torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"

    with pytest.warns(safedev.MaskWarning, match=r"\[mask-too-late\]"):
        assert cuda(0) == safedev.select_device()


def test_a_mask_of_ones_own_that_came_in_time_is_no_matter(fake_cuda: InstallFakeCuda) -> None:
    """
    The driver holds to it, so that nothing is to be said, although it has started.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "1", "LOCAL_RANK": "1"})
    torch.cuda.init()

    assert cuda(0) == safedev.select_device()


@pytest.mark.parametrize(
    ("changed", "preferred"),
    [
        pytest.param("2", None, id="fewer-than-the-driver-shows"),
        pytest.param("2", 1, id="by-ordinal"),
        pytest.param("0,1,2", None, id="fewer-but-several"),
        pytest.param("", 0, id="hidden-since"),
    ],
)
@pytest.mark.parametrize("choose", [safedev.select_device, safedev.set_device])
def test_a_mask_that_came_too_late_is_a_warning(
    fake_cuda: InstallFakeCuda, choose: Any, changed: str, preferred: Any
) -> None:
    """
    The device is had, and it may not be the one that the mask means: that is told at the caller's line.
    """
    fake_cuda(4)
    torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = changed
    with pytest.warns(safedev.MaskWarning, match=r"\[mask-too-late\]") as caught:
        device = choose(preferred)

    assert cuda(preferred or 0) == device
    assert (1, __file__) == (len(caught), caught[0].filename)
    assert "choose(preferred)" in linecache.getline(__file__, caught[0].lineno)


def test_a_late_mask_of_as_many_devices_is_a_warning_where_one_is_made_current(fake_cuda: InstallFakeCuda) -> None:
    """
    A cell of a notebook is edited and run again: the device is still that of the first mask.
    """
    machine = fake_cuda(4, environ={"CUDA_VISIBLE_DEVICES": "2"})
    torch.cuda.is_available()
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    with pytest.warns(
        safedev.MaskWarning,
        match=r"^CUDA_VISIBLE_DEVICES was changed after CUDA had started: cuda:0 may not be what it names",
    ) as caught:
        assert cuda(0) == safedev.set_device()

    assert (1, __file__) == (len(caught), caught[0].filename)
    assert (2,) == machine.visible


def test_a_mask_that_this_process_was_started_with_is_no_warning(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The driver has read it, whatever it made of it.
    """
    fake_cuda(4, environ={"CUDA_VISIBLE_DEVICES": "2"})
    torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    monkeypatch.setattr(_library, "inherited", lambda _: True)

    assert cuda(0) == safedev.set_device()


@pytest.mark.parametrize(
    ("count", "mask"),
    [
        pytest.param(4, None, id="no-mask"),
        pytest.param(4, "2,1", id="the-drivers-own"),
        pytest.param(2, "1,7,0", id="a-number-that-is-not-here"),
        pytest.param(2, "1,x", id="a-defect"),
    ],
)
@pytest.mark.parametrize("choose", [safedev.select_device, safedev.set_device])
def test_a_mask_that_the_driver_has_read_is_no_warning(
    fake_cuda: InstallFakeCuda, choose: Any, count: int, mask: str | None
) -> None:
    """
    Another number of entries than of devices has other reasons too.
    """
    fake_cuda(count, environ={} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})
    torch.cuda.init()

    assert cuda(0) == choose()


# ---- the local rank


def test_a_local_rank_in_doubt_is_a_warning(fake_cuda: InstallFakeCuda) -> None:
    """
    One visible device and local rank 1: both explanations are named, at the caller's line.
    """
    fake_cuda(2, environ=torchrun(1, 2, CUDA_VISIBLE_DEVICES="1"))
    with pytest.warns(safedev.LocalRankWarning) as caught:
        device = safedev.select_device()

    assert cuda(0) == device
    assert __file__ == caught[0].filename
    assert "[one-device-per-rank]" in str(caught[0].message)


def test_a_device_of_its_own_is_logged(fake_cuda: InstallFakeCuda, caplog: pytest.LogCaptureFixture) -> None:
    """
    No warning, an info record that says why it is cuda:0.
    """
    slurm = {
        "SLURM_LOCALID": "1",
        "SLURM_PROCID": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": "0,1",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURMD_TRES_BIND": "gpu:per_task:1",
    }
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "1"} | slurm)
    with caplog.at_level(logging.INFO, logger="safedev"):
        device = safedev.select_device()

    assert cuda(0) == device
    assert [("safedev", logging.INFO)] == [(record.name, record.levelno) for record in caplog.records]
    assert "SLURMD_TRES_BIND" in caplog.text


WITHOUT_A_RANK = {"WORLD_SIZE": "4", "RANK": "1"}


def test_without_a_local_rank_the_only_device_is_a_warning(fake_cuda: InstallFakeCuda) -> None:
    """
    Several processes, one visible device: no local rank is needed, and that is said.
    """
    fake_cuda(1, environ=WITHOUT_A_RANK)
    with pytest.warns(safedev.LocalRankWarning) as caught:
        device = safedev.select_device()
    first, *others = str(caught[0].message).splitlines()

    assert cuda(0) == device
    assert __file__ == caught[0].filename
    assert "cuda:0 was chosen as the only visible device, and others may use it too" == first
    assert "  why: WORLD_SIZE='4' counts several processes" in others[0]
    assert others[0].endswith(" [no-local-rank]")
    assert others[1].startswith("  fix: set LOCAL_RANK")


@pytest.mark.parametrize("ask", [safedev.select_device, safedev.set_device, safedev.diagnose])
def test_without_a_local_rank_one_of_several_devices_is_an_error(fake_cuda: InstallFakeCuda, ask: Any) -> None:
    """
    RANK is not used in its place.
    """
    fake_cuda(4, environ=WITHOUT_A_RANK)

    with pytest.raises(safedev.LocalRankError, match="WORLD_SIZE"):
        ask()


@pytest.mark.parametrize("ask", [safedev.select_device, safedev.set_device])
def test_a_named_device_needs_no_local_rank(fake_cuda: InstallFakeCuda, ask: Any) -> None:
    """
    A local rank that cannot be told hurts only a request that needs it.
    """
    fake_cuda(4, environ=WITHOUT_A_RANK)

    assert cuda(3) == ask(3)


@pytest.mark.parametrize("ask", [safedev.select_device, safedev.set_device, safedev.resolve_local_rank])
def test_what_looks_left_over_is_a_warning(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, ask: Any
) -> None:
    """
    The caution that comes with a launch is warned of at the caller's line.
    """
    from safedev import launchers

    cautious = launchers.Launch(launcher="torchrun", local_rank=1, caution="SLURM_LOCALID looks left over")
    fake_cuda(2)
    monkeypatch.setattr(launchers, "detect_launch", lambda _: cautious)

    with pytest.warns(safedev.LocalRankWarning, match="looks left over") as caught:
        ask()

    assert __file__ == caught[0].filename


@pytest.mark.parametrize(
    ("environ", "arguments", "answer"),
    [
        pytest.param(torchrun(3, 4), {}, 3, id="launched"),
        pytest.param({}, {}, 0, id="nothing-launched-it"),
        pytest.param({}, {"default": 5}, 5, id="another-default"),
        pytest.param({}, {"default": None}, None, id="no-default"),
        pytest.param({"LOCAL_RANK": "0"}, {"default": 5}, 0, id="zero-is-a-rank"),
    ],
)
def test_the_local_rank_of_an_environment(
    environ: dict[str, str], arguments: dict[str, Any], answer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    From the mapping that is given, else from the environment of the process.
    """
    given = safedev.resolve_local_rank(environ=environ, **arguments)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert answer == given == safedev.resolve_local_rank(**arguments)


# ---- the driver refuses


@pytest.mark.parametrize(
    ("faults", "preferred", "fallback", "device"),
    [
        pytest.param({1: "exclusive"}, 1, "cuda:0", cuda(0), id="another-device"),
        pytest.param({0: "exclusive"}, 0, "cpu", CPU, id="the-cpu"),
        pytest.param({0: "exclusive"}, None, lambda _: 1, cuda(1), id="for-whoever-asked-for-any"),
    ],
)
def test_a_device_that_refuses_leads_to_the_policy(
    fake_cuda: InstallFakeCuda, faults: Any, preferred: Any, fallback: Any, device: torch.device
) -> None:
    """
    What it chooses is made current, and the driver's words are part of the warning.
    """
    fake_cuda(2, faults=faults)
    with pytest.warns(safedev.FallbackWarning, match=r"\[device-unusable\]"):
        chosen = safedev.set_device(preferred, fallback=fallback)

    assert device == chosen


@pytest.mark.parametrize(
    ("options", "fallback", "code"),
    [
        pytest.param({"faults": {0: "exclusive"}}, "cuda:0", "device-unusable", id="the-first-device-refuses"),
        pytest.param({"faults": {0: "exclusive"}}, "raise", "device-unusable", id="nobody-is-to-be-asked"),
        pytest.param({"faults": {0: "exclusive"}}, lambda _: 0, "device-unusable", id="the-same-one-again"),
        pytest.param({"faults": {0: "exclusive", 1: "exclusive"}}, lambda _: 1, "device-unusable", id="both-refuse"),
        pytest.param({"driver": "too-old"}, "raise", "driver-unusable", id="the-driver-does-not-start"),
    ],
)
def test_a_refusal_without_a_way_out_is_raised(
    fake_cuda: InstallFakeCuda, options: dict[str, Any], fallback: Any, code: str
) -> None:
    """
    With torch's own error as its cause, where it came from torch.
    """
    fake_cuda(2, **options)

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.set_device(0, fallback=fallback)

    assert code in codes(caught.value.diagnosis)
    assert ("faults" in options) is isinstance(caught.value.__cause__, _torch.REFUSALS)  # else the reading refused it
    assert not isinstance(caught.value.__cause__, safedev.SafedevError)


def refusing(monkeypatch: pytest.MonkeyPatch, *devices: torch.device) -> dict[torch.device, Exception]:
    """These devices cannot be made current; the errors, by device."""
    errors: dict[torch.device, Exception] = {one: RuntimeError(f"CUDA error: {one} is busy") for one in devices}

    def make_current(device: torch.device) -> None:
        if device in errors:
            raise errors[device]

    monkeypatch.setattr(_torch, "make_current", make_current)
    return errors


def test_the_drivers_own_error_is_the_cause(fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The very one that was raised, with its traceback.
    """
    fake_cuda(2)
    errors = refusing(monkeypatch, cuda(1))

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.set_device(1, fallback="raise")

    assert caught.value.__cause__ is errors[cuda(1)]


def test_a_fallback_after_a_refusal_warns_at_the_callers_line(fake_cuda: InstallFakeCuda) -> None:
    """
    As any other fallback.
    """
    fake_cuda(2, faults={1: "exclusive"})
    with pytest.warns(safedev.FallbackWarning) as caught:
        safedev.set_device(1)

    assert (1, __file__) == (len(caught), caught[0].filename)
    assert "safedev.set_device(1)" in linecache.getline(__file__, caught[0].lineno)
    assert str(caught[0].message).endswith("\n  using cuda:0 instead")


@pytest.mark.parametrize(
    ("count", "suggestion"), [pytest.param(3, "cuda:2", id="a-third"), pytest.param(2, "cpu", id="none-is-left")]
)
def test_a_second_refusal_suggests_neither_device(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, count: int, suggestion: str
) -> None:
    """
    The cause is the second error, and what has refused once is not suggested again.
    """
    fake_cuda(count)
    torch.cuda.init()
    errors = refusing(monkeypatch, cuda(0), cuda(1))

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.set_device(0, fallback=lambda _: 1)

    assert caught.value.__cause__ is errors[cuda(1)]
    assert {"cuda:0", "cuda:1"} == set(caught.value.diagnosis.snapshot.refused)
    assert [suggestion] == [finding.suggestion for finding in caught.value.diagnosis.findings]


def test_a_second_refusal_is_told_beside_the_first(fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first line is about what was asked for; the policy is named, with what it chose and what that said.
    """
    fake_cuda(3)
    torch.cuda.init()
    refusing(monkeypatch, cuda(0), cuda(1))

    with pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.set_device(1, fallback="cuda:0")

    assert str(caught.value).startswith("cuda:1 cannot be used: the driver refused it\n")
    assert "cuda:1 is busy" in str(caught.value)
    assert "'cuda:0' chose cuda:0, which refused too: " in str(caught.value)
    assert "cuda:0 is busy" in str(caught.value)


def test_a_policy_is_not_asked_again_when_its_own_choice_refuses(fake_cuda: InstallFakeCuda) -> None:
    """
    Once is once, whether the request was refused by the count or by the driver.
    """
    asked = []
    fake_cuda(2, faults={1: "exclusive"})

    with pytest.warns(safedev.FallbackWarning), pytest.raises(safedev.InvalidDeviceError) as caught:
        safedev.set_device(9, fallback=lambda _: asked.append(1) or 1)

    assert [1] == asked
    assert ["device-unusable"] == codes(caught.value.diagnosis)
    assert ("cuda:1",) == caught.value.diagnosis.snapshot.refused


def test_what_torch_raises_for_the_cpu_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nothing refuses the CPU; what is raised all the same is not explained away.
    """

    def broken(_: torch.device) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(_torch, "make_current", broken)

    with pytest.raises(RuntimeError, match=r"^broken$"):
        safedev.set_device("cpu")


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.complex64], ids=str)
def test_a_tensor_that_is_no_integer_is_a_type_error(dtype: torch.dtype) -> None:
    """
    Truth values among them, which torch lets stand for an index.
    """
    with pytest.raises(TypeError, match=r"^a value of type Tensor is no device: give an ordinal"):
        safedev.select_device(torch.tensor(1, dtype=dtype))  # type: ignore[arg-type]


# ---- the diagnosis


@pytest.mark.parametrize(
    ("count", "preferred", "valid", "found"),
    [
        pytest.param(2, 1, True, [], id="valid"),
        pytest.param(2, 2, False, ["out-of-range"], id="out-of-range"),
        pytest.param(0, "cuda", False, ["no-cuda-device"], id="no-device"),
        pytest.param(0, None, True, [], id="the-cpu-is-welcome"),
        pytest.param(1, "cpu", True, [], id="cpu"),
    ],
)
def test_a_request_is_judged_without_choosing(
    fake_cuda: InstallFakeCuda, count: int, preferred: Any, valid: bool, found: list[str]
) -> None:
    """
    Nothing is warned of and nothing is raised.
    """
    fake_cuda(count)
    diagnosis = safedev.diagnose(preferred)

    assert valid is diagnosis.is_valid
    assert found == codes(diagnosis)


def test_a_diagnosis_holds_what_was_looked_at_alone(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It can be logged and pickled without giving anything away.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "0", "MY_SECRET_TOKEN": "hunter2"})
    diagnosis = safedev.diagnose(5)
    pickled = pickle.dumps(diagnosis)

    assert b"hunter2" not in pickled
    assert "0" == diagnosis.snapshot.variables["CUDA_VISIBLE_DEVICES"]
    assert diagnosis.render() == pickle.loads(pickled).render()


def test_a_misspelled_mask_is_found_by_its_name(fake_cuda: InstallFakeCuda) -> None:
    """
    Names are scanned where there is something to explain.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICE": "0"})

    assert "mask-misspelled" in codes(safedev.diagnose(5))


def test_only_what_can_explain_is_asked_for(fake_cuda: InstallFakeCuda) -> None:
    """
    An ordinal past the last, no mask, a driver that sleeps: the machine is not listed, which takes milliseconds.
    """
    fake_cuda(2)
    with pytest.MonkeyPatch.context() as patch:  # undone before the fake is
        for module, name in ((_nvml, "inventory"), (_nvml, "count"), (_isolation, "read")):
            patch.setattr(module, name, lambda: pytest.fail("the machine was looked at"))

        with pytest.raises(safedev.InvalidDeviceError):
            safedev.select_device(2, fallback="raise")


# ---- a little use of a device, for the audit


def test_a_device_is_exercised_on_whatever_device_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What is learned comes step by step: first the count, at last that the copy is intact. Here on tensors of the CPU.
    """
    about = type("Properties", (), {"name": "H100", "major": 9, "minor": 0, "total_memory": 80})
    device = torch.device
    for name, value in {
        "init": lambda: None,
        "device_count": lambda: 2,
        "get_device_properties": lambda _: about,
        "set_device": lambda _: None,
        "mem_get_info": lambda _: (70, 80),
        "synchronize": lambda _: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(_torch._driver, "uuids", lambda: ("GPU-0", "GPU-1"))
    monkeypatch.setattr(torch, "device", lambda *_: device("cpu"))
    told = dict(_torch.exercise(1))

    assert {"driver_count": 2, "name": "H100", "capability": "9.0", "memory_total": 80, "uuid": "GPU-1"} == {
        key: told[key] for key in ("driver_count", "name", "capability", "memory_total", "uuid")
    }
    assert (70, True) == (told["memory_free"], told["intact"])


def test_an_ordinal_past_the_last_has_no_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first ordinal past the end is tried as it is, to see that it is refused.
    """

    def refuse(_: int) -> None:
        raise RuntimeError("invalid device ordinal")

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    steps = _torch.exercise(2)

    assert ("driver_count", 2) == next(steps)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        next(steps)


def test_the_versions_of_torch_are_told() -> None:
    """
    As torch itself has them.
    """
    assert (str(torch.__version__), torch.version.cuda, torch.version.hip) == _torch.versions()


@pytest.mark.parametrize(("order", "named"), [("PCI_BUS_ID", True), (None, False)])
def test_a_late_order_is_named_beside_the_mask(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, order: str | None, named: bool
) -> None:
    """
    Which of the two was changed after CUDA had started cannot be told from the devices.
    """
    fake_cuda(2, environ={"CUDA_VISIBLE_DEVICES": "0"})
    torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    if order is not None:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    with pytest.warns(safedev.MaskWarning, match="before it") as caught:
        safedev.guard_visible_devices()

    assert named is (", or CUDA_DEVICE_ORDER," in str(caught[0].message))


def types_of_devices() -> list[str]:
    """Every type that a device of this torch may have, as torch's own error lists them."""
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda, ") as caught:
        torch.device("nothing")
    return str(caught.value).partition("Expected one of ")[2].partition(" device type")[0].split(", ")


def judged(preferred: object) -> object:
    """What is asked for; or the error."""
    try:
        return request_for(preferred)
    except safedev.DeviceSpecError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:.mkldnn. is no longer used")
@pytest.mark.parametrize("kind", types_of_devices())
def test_a_device_of_any_type_is_judged_as_its_text(kind: str) -> None:
    """
    Of all types that this torch knows.
    """
    assert judged(kind) == judged(torch.device(kind))


IN_A_LOOP = """
import warnings
import torch  # which changes filters, too
import safedev
for _ in range(3):
    warnings.warn("the program's own")
    safedev.select_device()
"""


@pytest.mark.skipif(
    bool(torch.version.cuda or torch.version.hip), reason="this build of torch may warn while it counts"
)
def test_a_program_that_chooses_again_and_again_is_warned_once() -> None:
    """
    Python shows the warning of a line once; choosing a device on a build without CUDA does not change that.
    """
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", IN_A_LOOP], capture_output=True, text=True, timeout=120, check=True
    )

    assert 1 == done.stderr.count("the program's own")
