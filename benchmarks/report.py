"""Rows of results, as the tables that are kept in the documentation."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


COMPARED = (
    "torch", "safedev", "accelerate", "lightning", "ultralytics", "submitit", "nvitop", "safe-gpu", "GPUtil",
    "clusterscope", "py3nvml",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was measured.

    Attributes:
        what: What was called, or counted.
        where: Under which circumstances.
        took: What it took, with its unit, fit to be shown.
        ratio: That, over the floor's, in the same run; None: there is no floor, or it is the floor itself.
        most: What the ratio must be at most; None: it is shown for comparison.
        note: What else there is to say.
    """

    what: str
    where: str = ""
    took: str = ""
    ratio: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def missed(self) -> bool:
        return self.most is not None and (self.ratio is None or self.ratio > self.most)


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    floor: str
    rows: tuple[Row, ...]


def table(section: Section) -> str:
    """A section in Markdown."""
    lines = [f"### {section.title}", "", f"Floor: {section.floor}.", ""]
    lines += ["| what | where | took | over the floor | at most | |", "|---|---|--:|--:|--:|---|"]
    for row in section.rows:
        ratio = "" if row.ratio is None else figure(row.ratio)
        most = "" if row.most is None else f"{row.most:g}"
        note = f"**missed** {row.note}".strip() if row.missed else row.note
        lines.append(f"| {row.what} | {row.where} | {row.took} | {ratio} | {most} | {note} |")
    return "\n".join(lines) + "\n"


def figure(number: float) -> str:
    """Three figures that count."""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def verdict(sections: Iterable[Section]) -> str:
    """How many of the rows that have a limit hold it."""
    limited = [row for section in sections for row in section.rows if row.most is not None]
    missed = sum(row.missed for row in limited)
    return f"{len(limited) - missed} of {len(limited)} limits are held."


def machine() -> str:
    """What this was measured on, in one line."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = found[1] if found else ""
    versions = ", ".join(f"{name} {version(name)}" for name in COMPARED if version(name))
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    cores = f"{os.cpu_count()} cores"
    python = f"Python {platform.python_version()}"
    return ", ".join(filter(None, [model or platform.machine(), cores, platform.system(), python, versions, load]))


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def as_data(sections: Iterable[Section]) -> dict[str, object]:
    return {"machine": machine(), "sections": [asdict(section) for section in sections]}
