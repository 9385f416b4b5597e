"""The audit's report as text, from data alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from safedev._mask import parse_mask
from safedev._report import plain, render, verdict

MODEL = "NVIDIA H100 80GB HBM3"


def device(ordinal: int, state: str = "sound", **changes: Any) -> dict[str, Any]:
    """One device of the report; its physical index is its ordinal."""
    digits = f"{ordinal + 1:x}" * 8
    known = {
        "ordinal": ordinal,
        "physical_index": ordinal,
        "state": state,
        "said": "",
        "seconds": 0.2,
        "name": MODEL,
        "uuid": f"GPU-{digits}-0000-4000-8000-00000000000{ordinal}",
        "bus": f"00000000:0{ordinal + 1}:00.0",
        "memory_free": 78 * 2**30,
        "memory_total": 80 * 2**30,
        "capability": "9.0",
    }
    return {**known, **changes}


def mask(raw: str | None) -> dict[str, Any]:
    read = parse_mask(raw)
    defects = [{"code": d.code, "span": d.span, "reason": d.reason, "instead": d.instead} for d in read.defects]
    return {"variable": read.variable, "raw": raw, "entries": list(read.entries), "defects": defects}


def report(*states: str, **changes: Any) -> dict[str, Any]:
    """A report on devices in these states."""
    count = len(states)
    known = {
        "schema": 1,
        "verdict": "",
        "status": 0,
        "device": "cuda:0",
        "versions": {
            "safedev": "0.1.0",
            "python": "3.12.4",
            "torch": "2.9.0+cu130",
            "torch_cuda": "13.0",
            "torch_hip": None,
            "driver": "580.65.06",
            "driver_cuda": "13.0",
        },
        "mask": mask(None),
        "device_count": count,
        "physical_count": count,
        "isolation": isolation(on_bus=None, loaded=None, nodes=None),
        "accelerator": None,
        "accelerator_count": 0,
        "devices": [device(ordinal, state) for ordinal, state in enumerate(states)],
        "past_end": {"device": f"cuda:{count}", "refused": True, "said": "CUDA error: invalid device ordinal"},
        "too_large": {"device": "cuda:256", "refused": True},
        "launch": None,
        "launch_error": None,
        "other_launchers": [],
        "variables": {},
        "findings": [],
        "unseen": [],
    }
    made = {**known, **changes}
    return {**made, "verdict": verdict(made)}


def isolation(**changes: Any) -> dict[str, Any]:
    """What was seen of a host of which all is here."""
    known = {
        "on_bus": 2,
        "other_drivers": [],
        "loaded": True,
        "nodes": [0, 1],
        "closed": [],
        "own_proc": False,
        "marks": [],
        "evidence": [],
    }
    return {**known, **changes}


def launch(**changes: Any) -> dict[str, Any]:
    known = {
        "launcher": "torchrun",
        "local_rank": 2,
        "local_world_size": 4,
        "rank": 6,
        "world_size": 8,
        "node_rank": 1,
        "source": "LOCAL_RANK",
    }
    return {**known, **changes}


def finding(**changes: Any) -> dict[str, Any]:
    known = {
        "level": "fault",
        "code": "device-unusable",
        "reason": "cuda:1: it did not answer within 20 s",
        "remedy": "see whether nvidia-smi answers",
        "suggestion": "cuda:0",
        "span": None,
    }
    return {**known, **changes}


NO_TORCH = {
    "safedev": "0.1.0",
    "python": "3.12.4",
    "torch": None,
    "torch_cuda": None,
    "torch_hip": None,
    "driver": None,
    "driver_cuda": None,
}
NO_DEVICE = {"devices": [], "device_count": 0, "past_end": None}


@pytest.mark.parametrize(
    ("line", "made"),
    [
        pytest.param("4 devices, all usable; this process would use cuda:0", report(*["sound"] * 4), id="all"),
        pytest.param("1 device, usable; this process would use cuda:0", report("sound"), id="the-only-one"),
        pytest.param(
            "2 devices, all usable (cuda:1 slow); this process would use cuda:0", report("sound", "slow"), id="slow"
        ),
        pytest.param(
            "3 devices, 2 not usable (cuda:1 hung, cuda:2 busy); this process would use cuda:0",
            report("sound", "hung", "busy"),
            id="some",
        ),
        pytest.param(
            "6 devices, 5 not usable (cuda:0 busy, cuda:1 busy, cuda:2 busy, cuda:3 busy, ...); "
            "this process would use cuda:0",
            report(*["busy"] * 5, "sound"),
            id="many",
        ),
        pytest.param("2 devices, none usable (hung); this process would use cuda:0", report("hung", "hung"), id="none"),
        pytest.param(
            "2 devices, none usable (cuda:0 hung, cuda:1 lost); this process would use cuda:0",
            report("hung", "lost"),
            id="none-for-different-reasons",
        ),
        pytest.param(
            "1 device, not usable (busy); this process would use cuda:0", report("busy"), id="the-only-one-not"
        ),
        pytest.param("2 devices, not tried; this process would use cuda:0", report("untried", "untried"), id="untried"),
        pytest.param(
            "no CUDA device; this process would use the CPU",
            report(device="cpu", physical_count=None, **NO_DEVICE),
            id="no-device",
        ),
        pytest.param(
            "all 8 devices are hidden by CUDA_VISIBLE_DEVICES='0,0'; this process gets no device",
            report(
                device=None, physical_count=8, mask=mask("0,0"), findings=[finding(code="mask-repeated")], **NO_DEVICE
            ),
            id="all-hidden-by-mistake",
        ),
        pytest.param(
            "the only device is hidden by CUDA_VISIBLE_DEVICES=''; this process would use the CPU",
            report(
                device="cpu",
                physical_count=1,
                mask=mask(""),
                findings=[finding(level="warning", code="mask-hides-all")],
                **NO_DEVICE,
            ),
            id="all-hidden-on-purpose",
        ),
        pytest.param(
            "no CUDA device of the 2 that the machine has; this process gets no device: "
            "the driver cannot be used (driver-unusable)",
            report(device=None, physical_count=2, findings=[finding(code="driver-unusable")], **NO_DEVICE),
            id="no-driver",
        ),
        pytest.param(
            "1 of 4 devices visible: the mask is misread (mask-unreadable); this process would use cuda:0",
            report("sound", physical_count=4, findings=[finding(code="mask-unreadable")]),
            id="fewer-than-meant",
        ),
        pytest.param(
            "2 of 4 devices visible: the mask is misread (mask-unreadable); 1 not usable (cuda:1 hung); "
            "this process would use cuda:0",
            report("sound", "hung", physical_count=4, findings=[finding(code="mask-unreadable")]),
            id="fewer-than-meant-and-not-all-usable",
        ),
        pytest.param(
            "1 device, usable; this process would use cuda:0; fault: the mask is misread (mask-unreadable)",
            report("sound", findings=[finding(code="mask-unreadable"), finding(), finding(level="warning", code="x")]),
            id="a-fault-besides",
        ),
        pytest.param(
            "1 device, usable; this process would use cuda:0; fault: out-of-range",
            report("sound", findings=[finding(code="out-of-range")]),
            id="a-fault-without-words",
        ),
        pytest.param(
            "2 xpu devices; this process would use xpu:0",
            report(device="xpu:0", accelerator="xpu", accelerator_count=2, physical_count=None, **NO_DEVICE),
            id="another-accelerator",
        ),
        pytest.param(
            "torch cannot be imported, and the machine has 1 device",
            report(device=None, physical_count=1, versions=NO_TORCH, devices=[], device_count=None, past_end=None),
            id="no-torch",
        ),
        pytest.param(
            "the devices cannot be counted",
            report(device=None, physical_count=None, devices=[], device_count=None, past_end=None),
            id="nothing-answers",
        ),
        pytest.param(
            "rank 6, local rank 2: 1 device, usable; this process would use cuda:0",
            report("sound", launch=launch()),
            id="under-a-launcher",
        ),
        pytest.param(
            "local rank 2: 1 device, usable; this process gets no device: more workers than devices (oversubscribed)",
            report("sound", launch=launch(rank=None), device=None, findings=[finding(code="oversubscribed")]),
            id="under-a-launcher-that-tells-no-rank",
        ),
    ],
)
def test_the_verdict_says_all_in_one_line(line: str, made: dict[str, Any]) -> None:
    """
    The first line tells how many devices work, and what this process gets.
    """
    assert line == verdict(made)
    assert line == render(made).splitlines()[0]


def test_a_sound_report_reads_like_this() -> None:
    """
    A report that a person has read and found good.
    """
    made = report(
        "sound",
        "sound",
        launch=launch(local_rank=1, local_world_size=2, rank=1, world_size=2),
        device="cuda:1",
        mask=mask("4,5"),
        variables={"LOCAL_RANK": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        other_launchers=[{"launcher": "slurm", "local_rank": 0, "error": None}],
    )
    text = """\
rank 1, local rank 1: 2 devices, all usable; this process would use cuda:1

Python    3.12.4, safedev 0.1.0
torch     2.9.0+cu130, built for CUDA 13.0
driver    580.65.06, serves CUDA 13.0
mask      CUDA_VISIBLE_DEVICES='4,5'
          CUDA_DEVICE_ORDER='PCI_BUS_ID'
launcher  torchrun: local rank 1 of 2 on this node, rank 1 of 2 (LOCAL_RANK='1')
besides   slurm: local rank 0
past end  cuda:2 is refused by the driver, cuda:256 is refused by safedev

ordinal  physical  state  name                   free/total GiB  cap.  UUID
cuda:0   0         sound  NVIDIA H100 80GB HBM3  78.0/80.0       9.0   GPU-11111111
cuda:1   1         sound  NVIDIA H100 80GB HBM3  78.0/80.0       9.0   GPU-22222222"""

    assert text == render(made, width=92)


def test_a_report_with_faults_reads_like_this() -> None:
    """
    A report that a person has read and found good.
    """
    made = report(
        "sound",
        "hung",
        status=1,
        mask=mask("0,1,x"),
        findings=[
            finding(),
            finding(level="observation", code="x", reason="x is no number", remedy="", span=(4, 5)),
            finding(level="warning", code="device-slow", reason="cuda:0: it took more than half", remedy=""),
        ],
        unseen=["whether it rains"],
    )
    text = """\
2 devices, 1 not usable (cuda:1 hung); this process would use
cuda:0

Python    3.12.4, safedev 0.1.0
torch     2.9.0+cu130, built for CUDA 13.0
driver    580.65.06, serves CUDA 13.0
mask      CUDA_VISIBLE_DEVICES='0,1,x'
                                    ^
launcher  none
past end  cuda:2 is refused by the driver, cuda:256 is refused
          by safedev
unseen    whether it rains

ordinal  physical  state  name                   free/total GiB
cuda:0   0         sound  NVIDIA H100 80GB HBM3  78.0/80.0
cuda:1   1         hung   NVIDIA H100 80GB HBM3  78.0/80.0

fault: cuda:1: it did not answer within 20 s [device-unusable]
  fix: see whether nvidia-smi answers

observation: x is no number [x]

warning: cuda:0: it took more than half [device-slow]"""

    assert text == render(made, width=63)


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        pytest.param(isolation(evidence=["x is y", "z is w"]), "isolation x is y; z is w", id="evidence"),
        pytest.param(isolation(evidence=["x is y"], marks=["/m"]), "isolation x is y; /m is there", id="and-a-hint"),
        pytest.param(isolation(loaded=False), "isolation no NVIDIA driver is loaded", id="no-driver"),
        pytest.param(
            isolation(other_drivers=["nouveau"]), "isolation nouveau holds an NVIDIA device", id="another-driver"
        ),
    ],
)
def test_what_shows_isolation_has_a_line(seen: dict[str, Any], line: str) -> None:
    """
    Evidence first; what only hints at a container behind it.
    """
    assert line in render(report("sound", isolation=seen)).splitlines()


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(isolation(), id="all-is-here"),
        pytest.param(isolation(on_bus=0, loaded=False, nodes=[]), id="no-device-in-the-host"),
        pytest.param(isolation(on_bus=None, loaded=None, nodes=None), id="another-system"),
    ],
)
def test_where_nothing_shows_isolation_there_is_no_line(seen: dict[str, Any]) -> None:
    """
    A report of a bare machine is as short as before.
    """
    assert "isolation" not in render(report("sound", isolation=seen))


def test_what_is_not_known_is_shown_as_such() -> None:
    """
    Without NVML, and for a device that did not come as far as to tell, dashes and question marks stand in the table.
    """
    blank = {"physical_index": None, "name": "", "uuid": "", "bus": "", "capability": None, "memory_free": None}
    made = report(
        devices=[device(0, "hung", memory_total=None, **blank), device(1, "hung", **blank)],
        device_count=2,
        versions={**report()["versions"], "driver": None, "driver_cuda": None, "torch_cuda": None},
        past_end=None,
        launch_error="LOCAL_RANK='x' is not a local rank",
        other_launchers=[{"launcher": "slurm", "local_rank": None, "error": "SLURM_LOCALID='y' is no number"}],
    )
    text = """\
2 devices, none usable (hung); this process would use cuda:0

Python    3.12.4, safedev 0.1.0
torch     2.9.0+cu130, built without CUDA
driver    unknown: NVML does not answer
mask      CUDA_VISIBLE_DEVICES is not set
launcher  the local rank cannot be told
besides   slurm: SLURM_LOCALID='y' is no number
past end  cuda:256 is refused by safedev

ordinal  physical  state  name  free/total GiB  cap.  UUID  bus
cuda:0   -         hung   -     -               -     -     -
cuda:1   -         hung   -     ?/80.0          -     -     -"""

    assert text == render(made)


@pytest.mark.parametrize("past", [pytest.param("cuda:2", id="driver"), pytest.param("cuda:256", id="safedev")])
def test_an_ordinal_that_should_be_refused_and_is_not_is_told(past: str) -> None:
    """
    If an ordinal past the end works, the line that says that it does not is not printed.
    """
    made = report("sound", "sound")
    made["past_end" if past == "cuda:2" else "too_large"] |= {"refused": False}

    assert re.search(rf"{past} is not refused", render(made), re.IGNORECASE)


@pytest.mark.parametrize("width", [pytest.param(n, id=f"{n}-columns") for n in (40, 60, 80, 100, 200)])
def test_the_report_keeps_to_the_width_of_the_terminal(width: int) -> None:
    """
    No line is longer than the terminal is wide, however long the names are.
    """
    long = {"name": "N" * 200, "uuid": "GPU-" + "a" * 200, "bus": "b" * 200}
    made = report(
        devices=[device(0, "out-of-memory", **long)],
        device_count=1,
        mask=mask("0," + "1x3" * 40 + "," + "z" * 40),
        findings=[finding(reason="because " * 40, remedy="do " * 90, span=(2, 122))],
    )

    assert [] == [line for line in render(made, width=width).splitlines() if len(line) > width]


def test_a_terminal_narrower_than_is_sensible_gets_forty_columns() -> None:
    """
    Text of one word a line helps nobody.
    """
    assert render(report("sound"), width=40) == render(report("sound"), width=3)


@pytest.mark.parametrize(
    ("width", "wanted"),
    [
        pytest.param(140, {"GPU-11111111-0000-4000-8000-000000000000", "0000:01:00.0", "9.0", "78.0/80.0"}, id="wide"),
        pytest.param(110, {"GPU-11111111", "0000:01:00.0", "9.0", "78.0/80.0"}, id="the-uuid-is-cut-first"),
        pytest.param(92, {"GPU-11111111", "9.0", "78.0/80.0"}, id="then-the-bus-goes"),
        pytest.param(78, {"GPU-11111111", "78.0/80.0"}, id="then-the-capability"),
        pytest.param(66, {"78.0/80.0"}, id="then-the-uuid"),
        pytest.param(50, set(), id="then-the-memory"),
    ],
)
def test_what_is_least_wanted_gives_way_first(width: int, wanted: set[str]) -> None:
    """
    The ordinal, the physical index, the state and the name stay on the narrowest terminal.
    """
    (row,) = [line for line in render(report("sound"), width=width).splitlines() if line.startswith("cuda:0 ")]

    assert {"cuda:0", "0", "sound", *MODEL.split(), *wanted} == set(row.split())


def test_a_device_that_took_its_time_shows_it() -> None:
    """
    Seconds stand beside the state, from one second up.
    """
    made = report(devices=[device(0, "slow", seconds=12.34), device(1, seconds=0.4)], device_count=2)
    rows = [line for line in render(made).splitlines() if line.startswith("cuda:")]

    assert ["slow 12.3 s", "sound"] == [re.split(r"  +", row)[2] for row in rows]


def test_colour_is_there_only_if_it_is_wanted() -> None:
    """
    With it, the text is the same under the colours; without it, there is no escape code.
    """
    made = report("sound", "hung", "slow", "untried", status=1, findings=[finding(), finding(level="observation")])
    coloured = render(made, width=80, colour=True)

    assert "\033[1;31mhung\033[0m" in coloured
    assert render(made, width=80) == re.sub(r"\033\[[0-9;]*m", "", coloured)
    assert "\033" not in render(made, width=80)


EVIL = "\033[31mred\a\r\x9b2J\u202e"


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(report(devices=[device(0, name=EVIL, uuid=EVIL, bus=EVIL)], device_count=1), id="the-device"),
        pytest.param(report("sound", mask=mask(EVIL)), id="the-mask"),
        pytest.param(
            report("sound", mask=mask("0,0" + EVIL), findings=[finding(span=(2, 9))]), id="a-mask-with-a-fault"
        ),
        pytest.param(
            report(mask=mask(EVIL), physical_count=2, findings=[finding(code="mask-unreadable")], **NO_DEVICE),
            id="a-mask-that-hides-all",
        ),
        pytest.param(report("sound", variables={"NVIDIA_VISIBLE_DEVICES": EVIL}), id="another-mask"),
        pytest.param(report("sound", isolation=isolation(other_drivers=[EVIL])), id="the-driver-of-another"),
        pytest.param(report("sound", launch=launch(), variables={"LOCAL_RANK": EVIL}), id="the-local-rank"),
        pytest.param(
            report("sound", other_launchers=[{"launcher": EVIL, "local_rank": None, "error": EVIL}]), id="a-launcher"
        ),
        pytest.param(report("sound", findings=[finding(reason=EVIL, remedy=EVIL, code=EVIL)]), id="a-finding"),
        pytest.param(report("sound", versions={**report()["versions"], "driver": EVIL}), id="the-driver"),
    ],
)
def test_no_text_from_outside_reaches_the_terminal_as_it_is(made: dict[str, Any]) -> None:
    """
    Whatever a terminal could act on is escaped.
    """
    assert [] == re.findall(r"[^\n -~]", render(made, width=80))


def test_plain_letters_stay_as_they_are() -> None:
    """
    A backslash is no danger, and what has been escaped already is not escaped again.
    """
    assert r"C:\dir \x1b \x1b" == plain("C:\\dir \\x1b \033")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("ZE_AFFINITY_MASK", id="level-zero"),
        pytest.param("ONEAPI_DEVICE_SELECTOR", id="sycl"),
        pytest.param("ASCEND_RT_VISIBLE_DEVICES", id="ascend"),
    ],
)
def test_masks_of_other_makers_are_shown(name: str) -> None:
    """
    They hide devices, too; they are shown as they are, and not judged.
    """
    assert f"{name}='0,1'" in render(report("sound", variables={name: "0,1"}))
