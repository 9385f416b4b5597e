"""Whole processes: what a command takes, beside others, in turns."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass
class Taken:
    """CPU and wall time of a command, in seconds, once a round; and why it could not be measured."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    failed: str = ""


def in_turns(
    commands: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    rounds: int,
    *,
    statuses: frozenset[int] = frozenset({0}),
) -> dict[str, Taken]:
    """Run each command once a round, starting with another one in each."""
    taken = {name: Taken() for name in commands}
    names = list(commands)
    for turn in range(-1, rounds):  # the first round fills the caches, and is not counted
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            one = taken[name]
            if one.failed:
                continue
            cpu, wall, status, said = timed(commands[name], environ)
            if status not in statuses:
                one.failed = (said.strip().splitlines() or [f"exit status {status}"])[-1]
            elif turn >= 0:
                one.cpu.append(cpu)
                one.wall.append(wall)
    return taken


def timed(command: Sequence[str], environ: Mapping[str, str]) -> tuple[float, float, int, str]:
    """CPU time of the command and of all that it waited for, wall time, exit status, and what it complained of."""
    with tempfile.TemporaryFile() as complaints, Path(os.devnull).open("wb") as null:
        began = time.monotonic()
        process = subprocess.Popen(command, env=dict(environ), stdin=null, stdout=null, stderr=complaints)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        said = complaints.read().decode(errors="replace")
    return usage.ru_utime + usage.ru_stime, wall, process.returncode, said


def instructions(command: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Instructions of a command, of its own process; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    counting = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}", *command]
    done = subprocess.run(counting, env=dict(environ), capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found[1]) if found else None
