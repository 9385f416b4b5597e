"""The command, on pretended machines: what it reports, and its exit status."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import safedev
from safedev import _child, _collect, _driver, _isolation, _nvml, _torch, _trial, launchers
from safedev._audit import main
from safedev._collect import collect
from safedev._isolation import Isolation
from safedev.testing import launched_by

if TYPE_CHECKING:
    from safedev.testing import InstallFakeCuda

MASK = "CUDA_VISIBLE_DEVICES"
TORCHRUN = launched_by("torchrun", local_rank=1, local_world_size=2)
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks are for Linux")


def exercised(ordinal: int, fault: Callable[[], object] = lambda: None) -> Iterator[tuple[str, object]]:
    """What a device that works tells; *fault* happens where it is used."""
    yield "driver_count", torch.cuda.device_count()
    if ordinal < torch.cuda.device_count():
        yield "name", "Some GPU"
        yield "capability", "9.0"
        yield "memory_total", 2**30
        yield "uuid", f"GPU-0000000{ordinal}"
    torch.cuda.set_device(ordinal)
    fault()
    yield "memory_free", 2**29
    yield "intact", True


@pytest.fixture
def devices_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake has no tensors: what a trial does with them is left out."""
    monkeypatch.setattr(_torch, "exercise", exercised)


def codes(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["level"], finding["code"]) for finding in report["findings"]]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        pytest.param(["explain", "cuda:1"], 0, id="valid"),
        pytest.param(["explain", "cuda:2"], 1, id="invalid"),
        pytest.param(["--json", "explain", "cpu"], 0, id="json-before"),
        pytest.param(["explain", "--json", "cpu"], 0, id="json-after"),
        pytest.param(["--no-allocate", "--timeout", "30"], 0, id="sound"),
    ],
)
def test_the_exit_status_tells_whether_it_is_sound(
    fake_cuda: InstallFakeCuda, arguments: list[str], status: int
) -> None:
    """
    0 for what can be had, 1 for what cannot.
    """
    fake_cuda(2)

    assert status == main(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["explain", "cuda:x"], id="no-device"),
        pytest.param(["explain"], id="no-spec"),
        pytest.param(["--timeout", "soon"], id="no-number"),
        pytest.param(["--timeout", "0"], id="no-time"),
        pytest.param(["--timeout", "nan"], id="not-a-number"),
        pytest.param(["--timeout", "86401"], id="more-than-a-day"),
        pytest.param(["audit"], id="no-command"),
    ],
)
def test_wrong_usage_has_a_status_of_its_own(
    fake_cuda: InstallFakeCuda, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """
    2, and one line that says what is wrong.
    """
    fake_cuda(2)

    with pytest.raises(SystemExit) as raised:
        main(arguments)

    assert 2 == raised.value.code
    assert re.search(r"^safedev( explain)?: error: ", capsys.readouterr().err, re.MULTILINE)


def test_the_range_of_the_limit_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """
    0 is out of it, and the message says so.
    """
    with pytest.raises(SystemExit):
        main(["--timeout", "0"])

    assert "'0' is no number of seconds above 0 and at most 86400" in capsys.readouterr().err


def test_explain_says_what_diagnose_says(fake_cuda: InstallFakeCuda, capsys: pytest.CaptureFixture[str]) -> None:
    """
    The text is that of the diagnosis.
    """
    fake_cuda(8, environ={MASK: "4,5"})
    main(["explain", "cuda:5"])

    assert safedev.diagnose("cuda:5").render() + "\n" == capsys.readouterr().out


def test_explain_as_json(fake_cuda: InstallFakeCuda, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A program learns the device, the status and the suggestion without reading prose.
    """
    fake_cuda(8, environ={MASK: "4,5"})
    main(["explain", "cuda:5", "--json"])
    told = json.loads(capsys.readouterr().out)

    assert (1, 1, "cuda:5", None) == (told["schema"], told["status"], told["request"], told["device"])
    assert [("fault", "physical-index")] == codes(told)
    assert "cuda:1" == told["findings"][0]["suggestion"]


def test_explain_without_a_local_rank(fake_cuda: InstallFakeCuda, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A local rank that cannot be told is an answer, and no traceback.
    """
    fake_cuda(2, environ={"LOCAL_RANK": "first"})
    status = main(["explain", "auto", "--json"])
    told = json.loads(capsys.readouterr().out)

    assert (1, None, [("fault", "no-local-rank")]) == (status, told["device"], codes(told))
    assert "LOCAL_RANK='first'" in told["text"]
    assert told["findings"][0]["remedy"]


@pytest.mark.parametrize(
    ("count", "environ", "expected", "device"),
    [
        pytest.param(2, {}, [], "cuda:0", id="sound"),
        pytest.param(2, TORCHRUN, [], "cuda:1", id="torchrun"),
        pytest.param(0, {}, [("warning", "no-cuda-device")], "cpu", id="no-device"),
        pytest.param(0, {MASK: "-1"}, [("warning", "no-cuda-device")], "cpu", id="no-device-to-hide"),
        pytest.param(
            0,
            {MASK: "0-3"},
            [("fault", "mask-unreadable"), ("warning", "no-cuda-device")],
            "cpu",
            id="no-device-and-a-fault-of-the-mask",
        ),
        pytest.param(
            0,
            {"CUDA_VISIBLE_DEVICE": "0"},
            [("fault", "mask-misspelled"), ("warning", "no-cuda-device")],
            "cpu",
            id="a-slip-of-the-pen",
        ),
        pytest.param(2, {MASK: ""}, [("warning", "mask-hides-all")], "cpu", id="hidden-on-purpose"),
        pytest.param(2, {MASK: "1,1"}, [("fault", "mask-repeated")], None, id="hidden-by-mistake"),
        pytest.param(2, {MASK: "0,7"}, [("fault", "mask-unknown-device")], "cuda:0", id="fewer-than-meant"),
        pytest.param(1, TORCHRUN, [("fault", "oversubscribed")], None, id="oversubscribed"),
        pytest.param(2, {"LOCAL_RANK": "x"}, [("fault", "no-local-rank")], None, id="no-local-rank"),
        pytest.param(1, {"LOCAL_RANK": "x"}, [("warning", "no-local-rank")], "cuda:0", id="no-local-rank-needed"),
        pytest.param(2, {"LOCAL_RANK": "1"}, [("warning", "stale-local-rank")], "cuda:1", id="left-over"),
        pytest.param(
            2, {**TORCHRUN, MASK: "1"}, [("warning", "one-device-per-rank")], "cuda:0", id="perhaps-one-of-its-own"
        ),
        pytest.param(
            2,
            {**launched_by("slurm", local_rank=1, local_world_size=2), MASK: "1"},
            [("observation", "one-device-per-rank")],
            "cuda:0",
            id="one-of-its-own",
        ),
    ],
)
def test_what_a_process_gets_is_judged(
    fake_cuda: InstallFakeCuda,
    count: int,
    environ: dict[str, str],
    expected: list[tuple[str, str]],
    device: str | None,
) -> None:
    """
    The findings, by level; the device is what select_device() would return without a fallback.
    """
    fake_cuda(count, environ=environ)
    report = collect(allocate=False)

    assert (expected, device) == (codes(report), report["device"])


@pytest.mark.parametrize(
    ("environ", "lax", "strict"),
    [
        pytest.param({}, 0, 0, id="sound"),
        pytest.param({"LOCAL_RANK": "1"}, 0, 1, id="a-warning"),
        pytest.param({MASK: "-1"}, 0, 1, id="the-cpu"),
        pytest.param({MASK: "0,0"}, 1, 1, id="a-fault"),
        pytest.param({**launched_by("slurm", local_rank=1, local_world_size=2), MASK: "1"}, 0, 0, id="an-observation"),
    ],
)
def test_strict_lets_warnings_count(fake_cuda: InstallFakeCuda, environ: dict[str, str], lax: int, strict: int) -> None:
    """
    A fault is one either way; an observation never is.
    """
    fake_cuda(2, environ=environ)

    assert (lax, strict) == (main(["--no-allocate"]), main(["--no-allocate", "--strict"]))


def test_another_launcher_is_told(fake_cuda: InstallFakeCuda) -> None:
    """
    Slurm's variables, around torchrun's, are shown beside them.
    """
    fake_cuda(2, environ={**launched_by("slurm", local_rank=0, local_world_size=1), **TORCHRUN})
    report = collect(allocate=False)

    assert "torchrun" == report["launch"]["launcher"]
    assert [{"launcher": "slurm", "local_rank": 0, "error": None}] == report["other_launchers"]


def test_a_launcher_beside_that_cannot_be_read_is_told(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    What it says is shown, and stops nothing.
    """

    class Broken:
        name = "broken"
        local_rank = "BROKEN_RANK"

        def detect(self, _: object) -> None:
            raise safedev.LocalRankError("broken", "BROKEN_RANK", None, "it is broken\nin two lines")

    fake_cuda(2, environ=TORCHRUN)
    monkeypatch.setattr(launchers, "LAUNCHERS", (*launchers.LAUNCHERS, Broken()))

    assert [{"launcher": "broken", "local_rank": None, "error": "it is broken"}] == collect(allocate=False)[
        "other_launchers"
    ]


def test_a_launcher_in_doubt_is_told(fake_cuda: InstallFakeCuda) -> None:
    """
    What select_device() warns of is a finding here.
    """
    around = launched_by("slurm", local_rank=1, local_world_size=4)
    fake_cuda(4, environ={**around, **launched_by("torchrun", local_rank=2, local_world_size=4)})
    launch = launchers.detect_launch()

    assert launch is not None
    assert launch.caution
    assert [("warning", "launcher-doubt")] == codes(collect(allocate=False))


def test_a_build_without_cuda_on_a_machine_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The report says which build is missing.
    """
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(_nvml, "inventory", lambda: None)
    monkeypatch.setattr(_nvml, "count", lambda: 4)
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: False)  # another test of this process may have armed torch
    report = collect()

    assert [("fault", "torch-without-cuda")] == codes(report)
    assert report["verdict"].startswith("no CUDA device of the 4 that the machine has; ")


@pytest.mark.parametrize(
    ("counted", "driver", "expected"),
    [
        pytest.param(0, "580.65.06", 0, id="none"),
        pytest.param(None, "580.65.06", 1, id="by-their-vitals"),
        pytest.param(None, "", None, id="unknown"),
    ],
)
def test_a_machine_without_devices_is_told_from_an_unknown_one(
    fake_cuda: InstallFakeCuda,
    monkeypatch: pytest.MonkeyPatch,
    counted: int | None,
    driver: str,
    expected: int | None,
) -> None:
    """
    0 where NVML says so; null where nobody does.
    """
    fake_cuda(0)
    with monkeypatch.context() as patched:
        patched.setattr(_nvml, "inventory", lambda: None)
        patched.setattr(_nvml, "count", lambda: counted)
        patched.setattr(_nvml, "vitals", lambda: (driver, None, {0: (1, 2, "9.0")} if driver else {}))
        report = collect()

    assert expected == report["physical_count"]


@pytest.mark.parametrize(
    ("environ", "carets"),
    [
        pytest.param({MASK: "0,[1"}, "^^", id="unreadable"),
        pytest.param({MASK: "0,77"}, "^^", id="not-here"),
    ],
)
def test_the_entry_at_fault_is_marked(
    fake_cuda: InstallFakeCuda, capsys: pytest.CaptureFixture[str], environ: dict[str, str], carets: str
) -> None:
    """
    Under the mask, whatever is the matter with the entry.
    """
    fake_cuda(2, environ=environ)
    main(["--no-allocate"])
    lines = capsys.readouterr().out.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.startswith("mask ")]

    assert " " * lines[number].index(environ[MASK][2:]) + carets == lines[number + 1]


def test_what_torch_says_of_numpy_is_not_shown(fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is the first line that a user would see, and no concern of the report.
    """

    def judged(spec: str) -> object:
        warnings.warn("Failed to initialize NumPy: No module named 'numpy'", UserWarning, stacklevel=1)
        warnings.warn("another matter", UserWarning, stacklevel=1)
        return diagnose(spec)

    fake_cuda(1)
    diagnose = safedev.diagnose
    monkeypatch.setattr(safedev, "diagnose", judged)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        main(["explain", "cuda"])

    assert ["another matter"] == [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("build", "words"), [pytest.param("13.0", "nvidia-smi", id="cuda"), pytest.param(None, "install a build", id="cpu")]
)
def test_without_a_device_the_advice_fits_the_build(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, build: str | None, words: str
) -> None:
    """
    A build without CUDA sees no device, whatever the machine has.
    """
    fake_cuda(0)
    with monkeypatch.context() as patched:
        patched.setattr(torch.version, "cuda", build)
        patched.setattr(_nvml, "vitals", lambda: ("", None, {}))  # the fake's driver is made for a build with CUDA
        report = collect()

    assert [("warning", "no-cuda-device")] == codes(report)
    assert words in report["findings"][0]["remedy"]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(Isolation(on_bus=4, loaded=True, nodes=()), "docker run --gpus all", id="given-none"),
        pytest.param(Isolation(on_bus=4, loaded=False, nodes=()), "modprobe nvidia", id="no-driver"),
        pytest.param(Isolation(), "whether the container was given it (--gpus all)", id="nothing-shows-why"),
    ],
)
def test_without_a_device_the_advice_fits_the_host(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, seen: Isolation, words: str
) -> None:
    """
    What the host shows is better than a guess.
    """
    fake_cuda(0)
    with monkeypatch.context() as patched:  # undone before the fake is
        patched.setattr(_isolation, "read", lambda: seen)
        report = collect()

    assert [("warning", "no-cuda-device")] == codes(report)
    assert words in report["findings"][0]["remedy"]


def test_what_was_seen_of_the_host_is_told(fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As it was seen, and what of it shows that not all of the host is here.
    """
    fake_cuda(2)
    with monkeypatch.context() as patched:  # undone before the fake is
        patched.setattr(_isolation, "read", lambda: Isolation(on_bus=8, loaded=True, nodes=(1, 5)))
        seen = collect(allocate=False)["isolation"]

    assert (8, (1, 5), ()) == (seen["on_bus"], seen["nodes"], seen["closed"])
    assert [
        "the bus shows 8 NVIDIA devices, and NVML 2",
        "/dev has 2 nodes for 8 NVIDIA devices (/dev/nvidia1, /dev/nvidia5)",
    ] == seen["evidence"]


def test_only_variables_that_are_read_are_told(fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No token, no path: the environment is never copied.
    """
    fake_cuda(2, environ={**TORCHRUN, MASK: "0,1"})
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    report = collect(allocate=False)

    assert {*TORCHRUN, MASK} >= set(report["variables"])
    assert "hunter2" not in json.dumps(report)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(None, "safedev[nvml] is not installed", id="not-installed"),
        pytest.param(object(), "nvidia-ml-py gave no answer", id="no-answer"),
    ],
)
def test_what_could_not_be_seen_is_told(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, spec: object, why: str
) -> None:
    """
    Where nvidia-ml-py tells nothing the devices of the machine have no names, and the report says why, as far as known.
    """
    fake_cuda(1)
    monkeypatch.setattr(_collect, "find_spec", lambda _: spec)
    with monkeypatch.context() as patched:  # undone before the fake is, which replaces these too
        patched.setattr(_nvml, "inventory", lambda: None)
        patched.setattr(_nvml, "vitals", lambda: ("580.65.06", 13000, {0: (2**29, 2**30, "9.0")}))
        report = collect(allocate=False)

    assert ("580.65.06", "13.0") == (report["versions"]["driver"], report["versions"]["driver_cuda"])
    assert [
        f"which devices of the machine these are: {why}",
        "whether the devices work: none was tried",
    ] == report["unseen"]


@LINUX
@pytest.mark.usefixtures("devices_work")
class TestTrials:
    def test_each_device_is_tried_in_a_process_of_its_own(self, fake_cuda: InstallFakeCuda) -> None:
        """
        They are sound, the first ordinal past the end is refused, and this process has started nothing.
        """
        machine = fake_cuda(3)
        report = collect()

        assert ["sound"] * 3 == [device["state"] for device in report["devices"]]
        assert {"device": "cuda:3", "refused": True, "said": "CUDA error: invalid device ordinal"} == report["past_end"]
        assert (None, []) == (machine.started_by, machine.made_current)

    def test_an_ordinal_past_the_end_that_works_is_told(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Torch counts by NVML and the mask's text; the driver may see more.
        """
        monkeypatch.setattr(_torch, "exercise", lambda _: exercised(0))
        fake_cuda(1)
        report = collect()

        assert [("warning", "count-disagrees")] == codes(report)
        assert {"device": "cuda:1", "refused": False, "said": ""} == report["past_end"]

    def test_a_driver_that_does_not_start_is_one_finding(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Not one for each device; and nothing is known of the ordinals past the end.
        """

        def fault(_: int) -> Iterator[tuple[str, object]]:
            raise RuntimeError("The NVIDIA driver on your system is too old")
            yield

        monkeypatch.setattr(_torch, "exercise", fault)
        fake_cuda(2)
        report = collect()

        assert [("fault", "driver-unusable")] == codes(report)
        assert report["verdict"].startswith("2 devices, none usable (no-driver); ")
        assert report["past_end"] is None

    def test_a_process_that_has_started_the_driver_asks_others(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A fork of it could not use CUDA: the trials go to interpreters of their own, which do not know this fake.
        """
        fake_cuda(1)
        monkeypatch.setattr(_child, "STARTING", 60.0)
        torch.cuda.init()
        seen: list[type] = []
        monkeypatch.setattr(_child._Spawn, "__init__", lambda self, work: seen.append(type(self)))
        monkeypatch.setattr(_child._Spawn, "read", lambda self, deadline: (b"", "exit status 3"))
        monkeypatch.setattr(_child._Spawn, "kill", lambda self: None)
        monkeypatch.setattr(_child._Spawn, "wait", lambda self, deadline: None)
        report = collect()

        assert [_child._Spawn] * 2 == seen
        assert "the process that used it died (exit status 3)" == report["devices"][0]["said"]

    @pytest.mark.parametrize(
        ("words", "state"),
        [
            pytest.param("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "busy", id="46"),
            pytest.param("CUDA out of memory. Tried to allocate 2.00 MiB", "out-of-memory", id="2"),
            pytest.param(
                "CUDA error: no kernel image is available for execution on the device", "no-kernel-image", id="209"
            ),
            pytest.param("CUDA error: uncorrectable ECC error encountered", "lost", id="214"),
            pytest.param("CUDA error: unknown error", "lost", id="999"),
            pytest.param("CUDA error: unspecified launch failure", "failed", id="719"),
        ],
    )
    def test_what_the_driver_says_is_a_state(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, words: str, state: str
    ) -> None:
        """
        The words are those of the runtime's table of errors; the first line is kept.
        """

        def fault() -> None:
            raise RuntimeError(f"{words}\nCompile with TORCH_USE_CUDA_DSA")

        monkeypatch.setattr(_torch, "exercise", lambda n: exercised(n, fault if n == 1 else lambda: None))
        fake_cuda(2)
        report = collect()

        assert ["sound", state] == [device["state"] for device in report["devices"]]
        assert words == report["devices"][1]["said"]
        assert [("fault", "device-unusable")] == codes(report)
        assert "cuda:0" == report["findings"][0]["suggestion"]
        assert 1 == report["status"]

    def test_bytes_that_come_back_changed_are_told(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A device that answers without an error, and wrongly, is not usable.
        """

        def changed(ordinal: int) -> Iterator[tuple[str, object]]:
            yield from exercised(ordinal)
            yield "intact", False

        monkeypatch.setattr(_torch, "exercise", changed)
        fake_cuda(1)

        assert "corrupt" == collect()["devices"][0]["state"]

    def test_a_device_that_hangs_is_told_with_its_name(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        What it told before it hung is in the report, and the others are sound.
        """
        forever = threading.Event().wait
        monkeypatch.setattr(_torch, "exercise", lambda n: exercised(n, forever if n == 0 else lambda: None))
        fake_cuda(2)
        report = collect(seconds=1.0)

        assert ["hung", "sound"] == [device["state"] for device in report["devices"]]
        assert "Some GPU" == report["devices"][0]["name"]
        assert "cuda:0: it did not answer within 1 s" == report["findings"][0]["reason"]

    def test_devices_that_fail_alike_share_a_finding(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Eight lines that say the same say less than one.
        """

        def fault() -> None:
            raise RuntimeError("CUDA error: out of memory")

        monkeypatch.setattr(_torch, "exercise", lambda n: exercised(n, fault))
        fake_cuda(3)
        (finding,) = collect()["findings"]

        assert finding["reason"].startswith("cuda:0, cuda:1, cuda:2: its memory is taken")
        assert finding["suggestion"] is None

    def test_a_slow_device_is_a_warning(self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        It works; whoever waits for it may want to know why.
        """
        slow = {"state": "slow", "said": "", "seconds": 12.0}
        absent = {"state": "absent", "said": "CUDA error: invalid device ordinal", "seconds": 0.1}
        monkeypatch.setattr(_collect, "try_devices", lambda ordinals, seconds: [slow, absent])
        fake_cuda(1)
        report = collect()

        assert [("warning", "device-slow")] == codes(report)
        assert "1 device, usable (cuda:0 slow); this process would use cuda:0" == report["verdict"]

    def test_an_absent_device_has_no_physical_index(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Which one the driver left out is not known: it may be any of those that NVML lists.
        """
        sound = {"state": "sound", "said": "", "seconds": 0.1}
        absent = {"state": "absent", "said": "CUDA error: invalid device ordinal", "seconds": 0.1}
        monkeypatch.setattr(_collect, "try_devices", lambda ordinals, seconds: [sound, absent, absent])
        fake_cuda(2)

        assert [0, None] == [device["physical_index"] for device in collect()["devices"]]

    def test_counting_that_never_ends_is_told(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Where NVML or the driver hangs, the report comes all the same.
        """
        fake_cuda(2)
        monkeypatch.setattr(_torch, "take_snapshot", lambda *_: threading.Event().wait())
        report = collect(seconds=0.5)

        assert [("fault", "driver-unusable")] == codes(report)
        assert "no answer came within 0.5 s" in report["findings"][0]["reason"]
        assert "the devices cannot be counted" == report["verdict"]
        assert torch.__version__ == report["versions"]["torch"]

    @pytest.mark.parametrize(
        ("death", "words"),
        [
            pytest.param(lambda: os.kill(os.getpid(), signal.SIGUSR1), "SIGUSR1", id="a-signal"),
            pytest.param(lambda: os._exit(3), "exit status 3", id="a-status"),
            pytest.param(lambda: os._exit(0), "exit status 0", id="without-a-word"),
        ],
    )
    def test_a_process_that_dies_while_counting_is_told_from_one_that_hangs(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, death: Callable[[], object], words: str
    ) -> None:
        """
        A crash inside NVML or the driver is named by its signal.
        """
        fake_cuda(2)
        monkeypatch.setattr(_torch, "take_snapshot", lambda *_: death())
        (finding,) = collect()["findings"]

        assert ("fault", "driver-unusable") == (finding["level"], finding["code"])
        assert f"the process that counted died ({words})" in finding["reason"]

    def test_an_error_while_counting_is_raised(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A fault of this library is not taken for one of the machine.
        """

        def fault(*_: object) -> None:
            raise LookupError("of our own")

        fake_cuda(2)
        monkeypatch.setattr(_torch, "take_snapshot", fault)

        with pytest.raises(LookupError, match="of our own"):
            collect()

    def test_an_interrupt_ends_the_command(self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Ctrl-C has the status that shells give it, and no traceback.
        """

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        fake_cuda(1)
        monkeypatch.setattr(_trial, "in_children", interrupted)

        assert 130 == main([])


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [
        pytest.param({"TERM": "xterm"}, True, id="a-terminal"),
        pytest.param({"TERM": "xterm", "NO_COLOR": ""}, True, id="no-color-that-is-empty"),
        pytest.param({"TERM": "xterm", "NO_COLOR": "1"}, False, id="no-color"),
        pytest.param({"TERM": "dumb"}, False, id="a-dumb-terminal"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="its terminal is not coloured")
def test_colour_is_for_terminals(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], coloured: bool
) -> None:
    """
    And for those whose owner did not turn it off: https://no-color.org.
    """
    fake_cuda(2)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    main(["--no-allocate"])

    assert coloured == ("\033" in sys.stdout.getvalue())


def test_a_pipe_gets_plain_text(fake_cuda: InstallFakeCuda, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Without a terminal there is no colour, and nothing is shortened.
    """
    machine = fake_cuda(2)
    main(["--no-allocate"])
    out = capsys.readouterr().out

    assert "\033" not in out
    assert machine.devices[0].uuid in out


@pytest.mark.parametrize("columns", [pytest.param(n, id=str(n)) for n in (60, 80, 200)])
def test_the_width_is_that_of_the_terminal(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """
    No line is wider.
    """
    fake_cuda(2, environ={MASK: "0,1,2,x"})
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", Terminal())
    main(["--no-allocate"])

    assert [] == [line for line in sys.stdout.getvalue().splitlines() if len(line) > columns]


def test_a_reader_that_goes_away_is_no_error(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """
    `python -m safedev | head -1` ends without a traceback.
    """

    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

        def fileno(self) -> int:
            return target

    fake_cuda(2)
    target = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    monkeypatch.setattr(sys, "stdout", Gone())
    status = main(["--no-allocate"])
    os.close(target)

    assert 0 == status


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python in which torch is not installed."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "safedev._torch")
    monkeypatch.delattr(safedev, "_torch")


@pytest.mark.usefixtures("no_torch")
class TestWithoutTorch:
    def test_the_mask_and_the_launcher_are_still_told(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        The report names what is missing, and what is wrong besides.
        """
        for name, value in {**TORCHRUN, MASK: "0,[1"}.items():
            monkeypatch.setenv(name, value)
        status = main(["--json"])
        report = json.loads(capsys.readouterr().out)

        assert (1, None, None) == (status, report["device"], report["device_count"])
        assert [("fault", "torch-missing"), ("fault", "mask-unreadable")] == codes(report)
        assert 1 == report["launch"]["local_rank"]
        assert report["verdict"].startswith("rank 1, local rank 1: torch cannot be imported")

    def test_the_machine_is_still_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        NVML is asked without torch, with nvidia-ml-py or without it.
        """
        monkeypatch.setattr(_nvml, "inventory", lambda: None)
        monkeypatch.setattr(_nvml, "count", lambda: 4)

        assert "torch cannot be imported, and the machine has 4 devices" == collect()["verdict"]

    def test_a_local_rank_that_cannot_be_told_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        It will stop the run that torch is installed for.
        """
        monkeypatch.setenv("LOCAL_RANK", "x")
        report = collect()

        assert [("fault", "torch-missing"), ("fault", "no-local-rank")] == codes(report)
        assert "LOCAL_RANK='x'" in report["launch_error"]

    def test_explain_says_so(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        One request cannot be judged without torch.
        """
        status = main(["explain", "cuda:0", "--json"])
        told = json.loads(capsys.readouterr().out)

        assert (1, [("fault", "torch-missing")]) == (status, codes(told))
        assert told["text"].startswith("torch cannot be imported: ")


class TestTheTrialItself:
    """The part that runs in the child, here in this process."""

    def test_it_writes_lines_of_json(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        """
        The first line is what the device tells of itself; the last one has the state.
        """
        fake_cuda(2)
        monkeypatch.setattr(_torch, "exercise", exercised)
        with (tmp_path / "pipe").open("wb") as pipe:
            _trial.main(1, pipe.fileno())
        first, last = map(json.loads, (tmp_path / "pipe").read_text().splitlines())

        assert ("Some GPU", False) == (first["name"], "state" in first)
        assert ("sound", "") == (last["state"], last["said"])

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            pytest.param(RuntimeError(), "RuntimeError", id="no-words"),
            pytest.param(OSError("\n a\nb"), "a", id="words"),
        ],
    )
    def test_a_driver_that_does_not_start_is_told_from_a_device(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
    ) -> None:
        """
        What fails before the devices are counted is no fault of a device.
        """

        def fault(_: int) -> Iterator[tuple[str, object]]:
            raise error
            yield

        monkeypatch.setattr(_torch, "exercise", fault)
        (last,) = _trial.attempt(0)

        assert ("no-driver", said) == (last["state"], last["said"])

    def test_a_trial_that_takes_long_is_slow(self) -> None:
        """
        More than half of the limit.
        """
        text = json.dumps({"state": "sound", "seconds": 11.0}).encode()

        assert "slow" == _trial._judged(text, "", 20.0)["state"]
        assert "sound" == _trial._judged(text, "", 22.0)["state"]

    def test_what_else_a_child_prints_is_passed_over(self) -> None:
        """
        A sitecustomize, or a library, may print where an interpreter of its own answers.
        """
        text = b'hello\n3\n{not json}\n{"state": "sound", "seconds": 0.1}\n'

        assert "sound" == _trial._judged(text, "", 20.0)["state"]

    def test_it_allocates_copies_and_runs_a_kernel(
        self, fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Allocate by the copy, run a kernel, wait for it, copy back, compare.
        """
        done: list[object] = []

        class Tensor:
            def to(self, device: torch.device) -> Tensor:
                done.append(device)
                return self

            def add(self, number: int) -> None:
                done.append(number)

            def cpu(self) -> Tensor:
                done.append("back")
                return self

        fake_cuda(2)
        monkeypatch.setattr(torch, "arange", lambda _: Tensor())
        monkeypatch.setattr(torch.cuda, "synchronize", done.append)
        monkeypatch.setattr(torch, "equal", lambda one, other: one is other)
        told = dict(_torch.exercise(1))

        assert [torch.device("cuda", 1), 1, 1, "back"] == done
        assert (2, "9.0", True) == (told["driver_count"], told["capability"], told["intact"])

    def test_it_does_nothing_to_an_ordinal_past_the_end(self, fake_cuda: InstallFakeCuda) -> None:
        """
        There is nothing to be told of it; the driver refuses it in its own words.
        """
        fake_cuda(2)
        told = []

        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            told += [key for key, _ in _torch.exercise(2)]

        assert [] == told


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        pytest.param(BrokenPipeError(32, "Broken pipe"), 0, "", id="whoever-reads-has-read-enough"),
        pytest.param(OSError(28, "No space left on device"), 1, "could not be written", id="the-disk-is-full"),
    ],
)
def test_a_report_that_cannot_be_written(
    fake_cuda: InstallFakeCuda,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: OSError,
    status: int,
    said: str,
) -> None:
    """
    A reader that has gone is no fault; a report that is lost is one, and no traceback.
    """
    fake_cuda(1)
    with (tmp_path / "out").open("w") as out:

        class Lost:
            def isatty(self) -> bool:
                return False

            def write(self, text: str) -> int:
                raise error

            def fileno(self) -> int:
                return out.fileno()

        monkeypatch.setattr(sys, "stdout", Lost())
        answer = main(["--no-allocate"])

    assert status == answer
    assert said in capsys.readouterr().err


def test_without_a_standard_output_the_status_still_tells(
    fake_cuda: InstallFakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A program started with its output closed has none; that is no error.
    """
    fake_cuda(1)
    monkeypatch.setattr(sys, "stdout", None)

    assert 0 == main(["--no-allocate"])


@pytest.mark.parametrize("option", [["--strict"], ["--no-allocate"], ["--timeout", "5"]], ids=lambda option: option[0])
def test_options_of_the_report_are_none_of_one_request(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """
    They would do nothing, and that is not passed over: wrong usage.
    """
    with pytest.raises(SystemExit) as raised:
        main([*option, "explain", "cuda:0"])

    assert 2 == raised.value.code
    assert "explain tries no device" in capsys.readouterr().err
