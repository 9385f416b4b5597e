"""The audit's report as text: plain functions from the object that ``--json`` prints."""

from __future__ import annotations

import textwrap

from safedev._snapshot import OTHER_MASKS
from safedev._text import counted, marked, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Report = dict[str, Any]

SCHEMA = 1
"""Number of the form of the report; a field that is added does not change it."""

USABLE = frozenset({"sound", "slow"})
"""States of a device that did what it was asked."""

_LABEL = 10  # letters of the labels on the left
_NARROWEST, _WIDEST = 40, 100  # columns; longer lines of prose are hard to read
_COLOURS = {"sound": "32", "ok": "1;32", "bad": "1;31", "fault": "1;31", "warning": "33", "slow": "33", "dim": "2"}


def verdict(report: Report) -> str:
    """Say in one line what the report comes to; the rank of this process stands first."""
    return _who(report["launch"]) + "; ".join(filter(None, (_devices_in_a_clause(report), _use(report))))


def render(report: Report, *, width: int | None = None, colour: bool = False) -> str:
    """Write the report for a person.

    Args:
        report: The object that ``--json`` prints.
        width: Columns of the terminal; None: lines are as long as they are.
        colour: Whether to colour it.
    """
    columns = None if width is None else max(width, _NARROWEST)

    def paint(text: str, kind: str) -> str:
        return f"\033[{_COLOURS[kind]}m{text}\033[0m" if colour and kind in _COLOURS else text

    lines = [paint(line, "bad" if report["status"] else "ok") for line in _wrap(report["verdict"], columns)]
    lines.append("")
    for label, values in _facts(report, columns):
        lines += [paint(f"{label:{_LABEL}}", "dim") + value for value in values[:1]]
        lines += [" " * _LABEL + value for value in values[1:]]
    if report["devices"]:
        lines += ["", *_table(report, columns, paint)]
    for finding in report["findings"]:
        head, *rest = _wrap(f"{finding['level']}: {finding['reason']} [{finding['code']}]", columns, "  ")
        level = finding["level"]
        lines += ["", paint(level, level) + head[len(level) :], *rest]
        lines += _wrap(f"  fix: {finding['remedy']}", columns, "    ") if finding["remedy"] else []
    return "\n".join(lines)


def plain(text: str) -> str:
    """Escape whatever a terminal could take for more than a letter."""
    return "".join(letter if " " <= letter <= "~" else ascii(letter)[1:-1] for letter in text)


def _who(launch: Report | None) -> str:
    if launch is None:
        return ""
    rank = f"rank {launch['rank']}, " if launch["rank"] is not None else ""
    return f"{rank}local rank {launch['local_rank']}: "


def _devices_in_a_clause(report: Report) -> str:
    devices, machine = report["devices"], report["physical_count"]
    if report["device_count"] is None:
        why = "the devices cannot be counted" if report["versions"]["torch"] else "torch cannot be imported"
        return why + (f", and the machine has {counted(machine, 'device')}" if machine else "")
    if not devices:
        return _none_in_a_clause(report)
    hiding = [finding["code"] for finding in _faults(report) if finding["code"].startswith("mask-")]
    if hiding and (machine or 0) > len(devices):
        number = f"{len(devices)} of {counted(machine, 'device')} visible: {_cause(hiding[0])}"
        return number if {device["state"] for device in devices} == {"sound"} else f"{number}; {_usable(devices)}"
    return f"{counted(len(devices), 'device')}, {_usable(devices)}"


def _usable(devices: Sequence[Report]) -> str:
    """How many of the visible devices can be used, and which cannot."""
    if all(device["state"] == "untried" for device in devices):
        return "not tried"
    bad = [device for device in devices if device["state"] not in USABLE]
    remarkable = bad or [device for device in devices if device["state"] == "slow"]
    named = [f"cuda:{device['ordinal']} {device['state']}" for device in remarkable[:4]] + ["..."] * (
        len(remarkable) > 4
    )
    if len(bad) == len(devices) and len({device["state"] for device in bad}) == 1:
        named = [bad[0]["state"]]
    some = "none" if len(bad) == len(devices) else f"{len(bad)} not" if bad else "all"
    usable = "usable" if len(devices) == 1 and not bad else "not usable" if len(devices) == 1 else f"{some} usable"
    return usable + (f" ({', '.join(named)})" if named else "")


def _none_in_a_clause(report: Report) -> str:
    machine = report["physical_count"]
    if report["accelerator_count"]:
        return counted(report["accelerator_count"], f"{report['accelerator']} device")
    if machine and any(finding["code"] in _HIDING for finding in report["findings"]):
        them = f"all {machine} devices are" if machine > 1 else "the only device is"
        return f"{them} hidden by {report['mask']['variable']}={quoted(report['mask']['raw'], 40)}"
    return "no CUDA device" + (f" of the {machine} that the machine has" if machine else "")


def _faults(report: Report) -> list[Report]:
    return [finding for finding in report["findings"] if finding["level"] == "fault"]


def _cause(code: str) -> str:
    words = _CAUSES.get(code)
    return f"{words} ({code})" if words else code


_HIDING = frozenset({"mask-hides-all", "mask-unreadable", "mask-repeated", "mask-unknown-device"})
_CAUSES = {
    "count-disagrees": "torch and ROCm read the mask differently",
    "driver-unusable": "the driver cannot be used",
    "mask-mig": "not all that the mask lists is shown",
    "mask-misspelled": "the mask's name is misspelled",
    "mask-mixed": "the mask mixes numbers and UUIDs",
    "mask-not-in-force": "the driver reads another mask",
    "mask-repeated": "the mask names a device twice",
    "mask-too-late": "the mask came too late",
    "mask-unknown-device": "the mask names a device that is not here",
    "mask-unreadable": "the mask is misread",
    "masks-stacked": "the masks cut each other short",
    "no-local-rank": "the local rank cannot be told",
    "oversubscribed": "more workers than devices",
    "torch-without-cuda": "this build of torch has no CUDA",
}


def _use(report: Report) -> str:
    """Which device this process gets, and the faults that the rest of the line does not show."""
    if report["device_count"] is None:
        return ""
    clause = _devices_in_a_clause(report)
    faults = dict.fromkeys(finding["code"] for finding in _faults(report) if finding["code"] != "device-unusable")
    told = {code for code in faults if _cause(code) in clause or (code in _HIDING and "hidden by" in clause)}
    others = ", ".join(_cause(code) for code in faults if code not in told)
    device = report["device"]
    if device is None:
        return "this process gets no device" + (f": {others}" if others else "")
    name = "the CPU" if device == "cpu" else device
    return f"this process would use {name}" + (f"; fault: {others}" if others else "")


def _facts(report: Report, columns: int | None) -> Iterator[tuple[str, list[str]]]:
    """Labels, and the lines that stand beside each."""
    room = None if columns is None else columns - _LABEL
    versions = report["versions"]
    builds = [f"built for {name} {versions[key]}" for name, key in _BUILDS if versions[key]]
    torch = [versions["torch"], *(builds or ["built without CUDA"])] if versions["torch"] else ["cannot be imported"]
    serves = f", serves CUDA {versions['driver_cuda']}" if versions["driver_cuda"] else ""
    yield "Python", _wrap(f"{versions['python']}, safedev {versions['safedev']}", room)
    yield "torch", _wrap(", ".join(torch), room)
    yield (
        "driver",
        _wrap(f"{versions['driver']}{serves}" if versions["driver"] else "unknown: NVML does not answer", room),
    )
    if shown := _isolation(report["isolation"]):
        yield "isolation", _wrap(shown, room, "  ")
    yield "mask", _mask(report, room)
    for name in OTHER_MASKS:
        if name in report["variables"]:
            yield "", _wrap(f"{name}={quoted(report['variables'][name])}", room)
    yield "launcher", _wrap(_launcher(report), room, "  ")
    for other in report["other_launchers"]:
        said = other["error"] or f"local rank {other['local_rank']}"
        yield "besides", _wrap(f"{other['launcher']}: {said}", room, "  ")
    if report["devices"]:
        yield "past end", _wrap(_past_end(report), room)
    for unseen in report["unseen"]:
        yield "unseen", _wrap(unseen, room, "  ")


def _isolation(seen: Report) -> str:
    """What shows that not all of the host is here; what only hints at a container stands behind it."""
    unloaded = ["no NVIDIA driver is loaded"] * (seen["loaded"] is False and bool(seen["on_bus"]))
    held = [f"{name} holds an NVIDIA device" for name in seen["other_drivers"]]
    return "; ".join([*seen["evidence"], *unloaded, *held, *(f"{mark} is there" for mark in seen["marks"])])


def _past_end(report: Report) -> str:
    past, too_large = report["past_end"], report["too_large"]
    driver = "" if past is None else f"{past['device']} is {'' if past['refused'] else 'NOT '}refused by the driver, "
    return f"{driver}{too_large['device']} is {'' if too_large['refused'] else 'not '}refused by safedev"


_BUILDS = (("CUDA", "torch_cuda"), ("HIP", "torch_hip"))


def _mask(report: Report, room: int | None) -> list[str]:
    """The mask, with the entry marked that the first finding about it names, as a diagnosis shows it."""
    mask = report["mask"]
    spans = [finding["span"] for finding in report["findings"] if finding["span"] is not None]
    if mask["raw"] is None:
        return [f"{mask['variable']} is not set"]
    lead = f"{mask['variable']}="
    if not spans:
        return _wrap(lead + quoted(mask["raw"]), room)
    start, end = spans[0]
    shown, carets = marked(mask["raw"], start, end, 72 if room is None else max(8, min(72, room - 26)))
    if room is None or len(lead) + len(shown) <= room:
        return [lead + shown, " " * len(lead) + carets]
    return [lead, shown[:room], carets[:room]]


def _launcher(report: Report) -> str:
    launch = report["launch"]
    if launch is None:
        return "none" if report["launch_error"] is None else "the local rank cannot be told"
    text = f"{launch['launcher']}: local rank {_of(launch, 'local_rank', 'local_world_size')} on this node"
    if launch["rank"] is not None:
        text += f", rank {_of(launch, 'rank', 'world_size')}"
    value = report["variables"].get(launch["source"])
    return text + (f" ({launch['source']}={quoted(value)})" if value is not None else "")


def _of(launch: Report, position: str, number: str) -> str:
    return f"{launch[position]}" + (f" of {launch[number]}" if launch[number] is not None else "")


def _table(report: Report, columns: int | None, paint: Callable[[str, str], str]) -> Iterator[str]:
    """The devices, one a line; what is least wanted goes first where the terminal is narrow."""
    devices = report["devices"]
    for drop, uuid in ((0, 40), (0, 12), (1, 12), (2, 12), (3, 12), (4, 12)):
        rows = [_HEAD, *(_cells(device, uuid) for device in devices)]
        kept = [n for n in range(len(_HEAD)) if n not in _LEAST_WANTED[:drop]]
        widths = [max(len(row[n]) for row in rows) for n in kept]
        if columns is None or sum(widths) + 2 * len(widths) - 2 <= columns:
            break
    for number, row in enumerate(rows):
        line = "  ".join(f"{row[n]:{size}}" for n, size in zip(kept, widths, strict=True)).rstrip()
        line = line if columns is None else line[:columns]
        yield paint(line, "dim") if number == 0 else _state_painted(line, devices[number - 1]["state"], paint)


_HEAD = ("ordinal", "physical", "state", "name", "free/total GiB", "cap.", "UUID", "bus")
_LEAST_WANTED = (7, 5, 6, 4)


def _cells(device: Report, uuid: int) -> tuple[str, ...]:
    free, total, index = device["memory_free"], device["memory_total"], device["physical_index"]
    took = f" {device['seconds']:.1f} s" if (device["seconds"] or 0) >= 1 else ""
    return (
        f"cuda:{device['ordinal']}",
        "-" if index is None else str(index),
        device["state"] + took,
        plain(device["name"])[:32] or "-",
        f"{'?' if free is None else f'{free / 2**30:.1f}'}/{total / 2**30:.1f}" if total is not None else "-",
        device["capability"] or "-",
        plain(device["uuid"])[:uuid] or "-",
        plain(device["bus"].removeprefix("0000" if len(device["bus"]) == 16 else ""))[:16] or "-",
    )


def _state_painted(line: str, state: str, paint: Callable[[str, str], str]) -> str:
    kind = state if state in {"sound", "slow"} else "dim" if state == "untried" else "fault"
    return line.replace(state, paint(state, kind), 1)


def _wrap(text: str, columns: int | None, indent: str = "") -> list[str]:
    lines = [plain(line) for line in text.split("\n")]
    if columns is None:
        return lines
    wrapper = textwrap.TextWrapper(min(columns, _WIDEST), subsequent_indent=indent, break_on_hyphens=False)
    return [piece for line in lines for piece in wrapper.wrap(line)]
