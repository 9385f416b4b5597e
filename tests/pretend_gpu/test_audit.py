"""The command on pretend machines: what it prints, what it tries, and what it leaves alone."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from rig import on_host

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "read-an-audit.md"
REFERENCE = PAGE.parents[1] / "reference" / "command.md"
COMMAND = [sys.executable, "-m", "safedev"]
LOOKS = {
    "PRETEND_GPU_MODELS": ",".join(["NVIDIA H100 80GB HBM3"] * 4),
    "PRETEND_GPU_TOTAL_MIB": ",".join(["81559"] * 4),
    "PRETEND_GPU_FREE_MIB": ",".join(["81000"] * 4),
}
SAMPLE = re.compile(r"^% pretend: (.*)\n% shown: .*\n```text\n((?:.*\n)*?)```$", re.MULTILINE)


def audit(rig: Any, gpus: int, *, seconds: float = 20.0, env: Any = None, settings: Any = None, **machine: Any) -> Any:
    """The report, in a child of a process that has imported torch."""
    snippet = f"from safedev._collect import collect; collect(seconds={seconds})"
    return rig.call(snippet, gpus=gpus, env=env, settings=settings, **machine)


def states(report: dict[str, Any]) -> list[str]:
    return [device["state"] for device in report["devices"]]


def codes(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["level"], finding["code"]) for finding in report["findings"]]


def printed(rig: Any, description: str) -> str:
    """What the audit prints on the machine that a sample of the page describes."""
    count, *items = [item.strip() for item in description.split(";")]
    env = dict(item.split("=", 1) for item in items)
    nodes = [int(node) for node in env.pop("HOST_NODES", "").split(",") if node]
    with tempfile.TemporaryDirectory() as folder:
        snippet = on_host(Path(folder), bus=int(env.pop("HOST_BUS", "0")), nodes=nodes)
        snippet += "from safedev import _collect, _report; _report.render(_collect.collect(seconds=8.0), width=88)"
        return str(rig.call(snippet, gpus=int(count), env=env, settings=LOOKS).value)


def without_versions(text: str) -> str:
    return re.sub(r"^(Python|torch) .*$", r"\1", text.strip(), flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("machine", "sample"), [pytest.param(*found.groups(), id=found[1]) for found in SAMPLE.finditer(PAGE.read_text())]
)
def test_the_samples_of_the_page_are_what_is_printed(rig: Any, machine: str, sample: str) -> None:
    """
    What a person has read and found good is what the command prints.
    """
    assert without_versions(sample) == without_versions(printed(rig, machine))


@pytest.mark.parametrize(
    ("settings", "expected", "findings"),
    [
        pytest.param({}, ["sound"] * 3, [], id="sound"),
        pytest.param({"PRETEND_GPU_BUSY": 1}, ["sound", "busy", "sound"], ["device-unusable"], id="busy"),
        pytest.param({"PRETEND_GPU_HANG": 0}, ["hung", "sound", "sound"], ["device-unusable"], id="hung"),
        pytest.param({"PRETEND_GPU_OOM": 2}, ["sound", "sound", "out-of-memory"], ["device-unusable"], id="no-memory"),
        pytest.param(
            {"PRETEND_GPU_NO_KERNELS": 1}, ["sound", "no-kernel-image", "sound"], ["device-unusable"], id="no-kernels"
        ),
        pytest.param(
            {"PRETEND_GPU_LAUNCH_ERROR": "1:719"}, ["sound", "failed", "sound"], ["device-unusable"], id="fails"
        ),
        pytest.param(
            {"PRETEND_GPU_CONTEXT_ERROR": "1:999"}, ["sound", "lost", "sound"], ["device-unusable"], id="lost"
        ),
        pytest.param({"PRETEND_DRIVER_ERROR": 35}, ["no-driver"] * 3, ["driver-unusable"], id="no-driver"),
        pytest.param({"PRETEND_DRIVER_HANG": 1}, ["hung"] * 3, ["device-unusable"], id="the-driver-hangs"),
        pytest.param({"PRETEND_NVML": "absent"}, ["sound"] * 3, [], id="no-nvml"),
        pytest.param({"PRETEND_NVML": "broken"}, ["sound"] * 3, [], id="broken-nvml"),
        pytest.param({"PRETEND_NVML_HANG": "nvmlDeviceGetCount_v2"}, [], ["driver-unusable"], id="nvml-hangs"),
        pytest.param({"PRETEND_CUDA_VERSION": "12.4"}, [], ["driver-unusable"], id="too-old"),
    ],
)
def test_each_fault_is_told(rig: Any, settings: dict[str, object], expected: list[str], findings: list[str]) -> None:
    """
    By the device that has it, and the others are sound.
    """
    limit = 4.0 if any("HANG" in name for name in settings) else 20.0
    report = audit(rig, 3, settings=settings, seconds=limit).value

    assert expected == states(report)
    assert [("fault", code) for code in findings] == codes(report)
    assert bool(findings) == report["status"]


def test_fewer_devices_than_nvml_counts(rig: Any) -> None:
    """
    The device that the driver does not show is absent, and the physical indices of the others are those of NVML.
    """
    report = audit(rig, 3, settings={"PRETEND_GPU_LOST": 1}).value

    assert ["sound", "sound", "absent"] == states(report)
    assert [0, 2, None] == [device["physical_index"] for device in report["devices"]]
    assert ("fault", "device-unusable") in codes(report)


def test_a_slow_device_is_told_from_one_that_hangs(rig: Any) -> None:
    """
    It answers within the limit, and after more than half of it.
    """
    report = audit(rig, 2, settings={"PRETEND_GPU_SLOW": "1:4"}, seconds=7.0).value

    assert ["sound", "slow"] == states(report)
    assert [("warning", "device-slow")] == codes(report)


def test_the_first_ordinal_past_the_end_is_refused(rig: Any) -> None:
    """
    In torch's own words; the ordinal that torch would take for 0 is refused as well.
    """
    report = audit(rig, 4, env={"CUDA_VISIBLE_DEVICES": "3,1"}).value

    assert {"device": "cuda:2", "refused": True, "said": "CUDA error: invalid device ordinal"} == report["past_end"]
    assert {"device": "cuda:256", "refused": True} == report["too_large"]


def test_a_device_is_known_by_its_uuid(rig: Any) -> None:
    """
    Under a mask, and where CUDA counts the fastest first, the physical index is still the one of nvidia-smi.
    """
    settings = {"PRETEND_GPU_FASTEST": "2,0,1", "PRETEND_GPU_MODELS": "A,B,C"}
    report = audit(rig, 3, env={"CUDA_VISIBLE_DEVICES": "0,2"}, settings=settings).value

    assert [(2, "C"), (1, "B")] == [(device["physical_index"], device["name"]) for device in report["devices"]]


def test_this_process_never_starts_the_driver(rig: Any) -> None:
    """
    Each device has its context in a process of its own, and this one has none.
    """
    result = audit(rig, 3)
    contexts = [event for event in result.trace if event.event == "context"]

    assert [0, 1, 2] == sorted(event.value for event in contexts)
    assert 3 == len({event.pid for event in contexts} - {result.pid})
    assert not result.awake


@pytest.mark.parametrize(
    "settings", [pytest.param({}, id="nvml"), pytest.param({"PRETEND_NVML": "absent"}, id="no-nvml")]
)
def test_a_count_that_starts_the_driver_starts_it_elsewhere(rig: Any, settings: dict[str, str]) -> None:
    """
    Without NVML torch starts the driver to count; in a child, so that the trials can still be forked.
    """
    assert not audit(rig, 2, settings=settings).awake


def test_without_allocation_nothing_is_started(rig: Any) -> None:
    """
    No driver in any process, and all is known that NVML knows.
    """
    result = rig.call("from safedev._collect import collect; collect(allocate=False)", gpus=2)

    assert () == result.trace
    assert [(0, "Pretend GPU", 20 << 30, 24 << 30, "9.0", "untried")] == [
        tuple(device[key] for key in ("physical_index", "name", "memory_free", "memory_total", "capability", "state"))
        for device in result.value["devices"][:1]
    ]


def test_a_process_that_has_started_the_driver_can_ask(rig: Any) -> None:
    """
    Its forks could not use CUDA; interpreters of their own try the devices.
    """
    report = audit(rig, 1, before="import torch; torch.cuda.init()").value

    assert ["sound"] == states(report)


def test_a_device_cannot_name_itself_into_the_terminal(rig: Any) -> None:
    """
    Escape codes in the name of a device are shown, and not obeyed.
    """
    snippet = "from safedev import _collect, _report; _report.render(_collect.collect(), width=120)"
    text = rig.call(snippet, gpus=1, settings={"PRETEND_GPU_MODELS": "\033[31mred\a"}).value

    assert r"\x1b[31mred\x07" in text
    assert "\033" not in text


def test_the_fields_are_those_of_the_reference(rig: Any) -> None:
    """
    The page lists every field of the report and of a device, in order, and no other.
    """
    report = audit(rig, 1, env={"LOCAL_RANK": "0"}).value
    page = REFERENCE.read_text(encoding="utf-8")
    fields, devices = (
        [name for row in re.findall(r"^\| (`.*?) \|", part.partition("| state |")[0], re.MULTILINE)
         for name in re.findall(r"`(\w+)`", row)]
        for part in page.partition("## The report as JSON")[2].split("### Devices")
    )  # fmt: skip

    assert fields == list(report)
    assert devices == list(report["devices"][0])
    for name in ("versions", "mask", "past_end", "too_large", "launch"):
        row = re.search(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
        assert row is not None
        assert [] == [key for key in report[name] if f"`{key}`" not in row[0]]


def test_the_states_are_those_of_the_reference() -> None:
    """
    Every state that a trial can end in stands in the table.
    """
    from safedev import _trial

    listed = re.findall(r"^\| `([\w-]+)` \|", REFERENCE.read_text().partition("| state |")[2], re.MULTILINE)

    assert {"sound", "untried", "no-driver", *_trial.TROUBLES, *(state for _, state in _trial._SIGNS)} == set(listed)


def test_the_command_as_json(rig: Any) -> None:
    """
    One object on one line, nothing beside it, and the exit status in it.
    """
    done = rig.run([*COMMAND, "--json", "--timeout", "2"], gpus=2, settings={"PRETEND_GPU_HANG": 1})
    (line,) = done.stdout.splitlines()

    assert (1, 1) == (done.returncode, json.loads(line)["status"])
    assert "" == done.stderr


def on_a_terminal(rig: Any, columns: int, **environ: str) -> str:
    """What the command writes to a terminal of that width."""
    kept = rig.environ(gpus=2, settings=LOOKS, env={"CUDA_VISIBLE_DEVICES": "0,1,[2", "TERM": "xterm", **environ})
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns)) if hasattr(termios, "tcsetwinsize") else _set_width(theirs, columns)
    with subprocess.Popen([*COMMAND, "--no-allocate"], env=kept, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        written = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            written += piece
        process.wait(60)
    os.close(ours)
    return written.decode()


def _set_width(terminal: int, columns: int) -> None:
    import fcntl

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@pytest.mark.parametrize("columns", [pytest.param(n, id=str(n)) for n in (60, 80, 200)])
def test_a_terminal_is_filled_and_not_overrun(rig: Any, columns: int) -> None:
    """
    In colour, and no line is wider than the terminal.
    """
    text = on_a_terminal(rig, columns)
    bare = re.sub(r"\033\[[0-9;]*m", "", text)

    assert bare != text
    assert [] == [line for line in bare.splitlines() if len(line) > columns]
    assert "[mask-unreadable]" in bare


def test_no_colour_where_it_is_not_wanted(rig: Any) -> None:
    """
    NO_COLOR is heard.
    """
    assert "\033" not in on_a_terminal(rig, 80, NO_COLOR="1")


def test_ctrl_c_leaves_no_child(rig: Any, tmp_path: Path) -> None:
    """
    The command ends with status 130, without a traceback; the child that hung is gone.
    """
    trace = tmp_path / "trace"
    environ = rig.environ(gpus=2, settings={"PRETEND_GPU_HANG": 0, "PRETEND_GPU_TRACE": trace})
    command = ["env", "--default-signal=INT", *COMMAND]  # in the background it would inherit that it is ignored
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 60
        while not (trace.exists() and "hang" in trace.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=60)[0]
    children = {int(line.split()[0]) for line in trace.read_text().splitlines()}

    assert (130, b"") == (process.returncode, out)
    assert [] == [pid for pid in children if Path(f"/proc/{pid}").exists()]
