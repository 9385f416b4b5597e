"""The command, as whole processes on a pretend machine of eight devices."""

from __future__ import annotations

import sys
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.measure import base, ratio
from benchmarks.processes import in_turns
from benchmarks.report import Row, Section

if TYPE_CHECKING:
    from rig import Rig

COUNT = "floor: import torch, count"
TRIALS = "floor: and a fork for each device, that allocates"

FORKS = """
import os, torch
children = []
for ordinal in range(torch.cuda.device_count()):
    pid = os.fork()
    if pid == 0:
        torch.zeros(256, device=torch.device("cuda", ordinal)).add(1)
        torch.cuda.synchronize(ordinal)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""

COMMANDS = {
    COUNT: ["-c", "import torch; torch.cuda.device_count()"],
    TRIALS: ["-c", FORKS],
    "`python -m safedev --json`": ["-m", "safedev", "--json"],
    "`python -m safedev --json --no-allocate`": ["-m", "safedev", "--json", "--no-allocate"],
    "`python -m safedev explain cuda:3`": ["-m", "safedev", "explain", "cuda:3"],
    "`python -m torch.utils.collect_env`": ["-m", "torch.utils.collect_env"],
    "`accelerate env`": ["-m", "accelerate.commands.accelerate_cli", "env"],
    "`nvitop -1`": ["-m", "nvitop", "-1"],
}
LIMITS = {
    "`python -m safedev --json`": (TRIALS, 1.25),
    "`python -m safedev --json --no-allocate`": (COUNT, 1.1),
    "`python -m safedev explain cuda:3`": (COUNT, 1.1),
}


def section(rig: Rig, rounds: int) -> Section:
    environ = base(rig) | {"PRETEND_GPUS": "8"}
    commands = {name: [sys.executable, *command] for name, command in COMMANDS.items()}
    taken = in_turns(commands, environ, rounds, statuses=frozenset({0, 1}))
    rows = []
    for name, one in taken.items():
        if one.failed or not one.wall:
            rows.append(Row(what=name, note=f"left out: {one.failed[:90]}"))
            continue
        floor, most = LIMITS.get(name, (COUNT, None))
        took = f"{median(one.wall) * 1000:.0f} ms, {median(one.cpu) * 1000:.0f} ms of CPU"
        note = f"CPU: {ratio(one.cpu, taken[floor].cpu) or 0.0:.2f}"
        whole = ratio(one.wall, taken[floor].wall)
        rows.append(Row(what=name, took=took, ratio=whole, most=most, note=note))
    floor = "wall time of the import and a count; with trials, also of a forked process for each device"
    return Section(title="the command", floor=floor, rows=tuple(rows))
