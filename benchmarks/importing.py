"""What `import safedev` takes, beside a bare interpreter and others."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from benchmarks import processes
from benchmarks.measure import base, ratio
from benchmarks.report import Row, Section

BARE = "bare interpreter"
OURS = ("safedev", "safedev.guard")
# Those that read the environment or NVML alone, and those that import torch.
LIGHT = ("safe_gpu.safe_gpu", "nvitop", "submitit", "GPUtil", "clusterscope", "py3nvml.utils")
HEAVY = ("torch", "accelerate", "lightning.fabric")
PARTS = ("dataclasses", "re", "typing_extensions", "ctypes", "logging", "pynvml")

ABOUT = """
import sys
def now():
    with open("/proc/self/statm", "rb") as statm:
        return len(sys.modules), int(statm.read().split()[1]) * 4096 / 2**20
before = now()
import {0}
after = now()
print(after[0] - before[0], after[1] - before[1], "torch" in sys.modules)
"""


def command(module: str) -> list[str]:
    return [sys.executable, "-c", "pass" if module == BARE else f"import {module}"]


def about(module: str) -> tuple[int, float, bool] | None:
    """Modules that it loads, MiB that it takes, and whether torch is among the modules."""
    done = subprocess.run(
        [sys.executable, "-c", ABOUT.format(module)], env=base(None), capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None
    modules, memory, torch = done.stdout.split()[-3:]
    return int(modules), float(memory), torch == "True"


def section(rounds: int, *, by_instructions: bool) -> Section:
    environ = base(None)
    if by_instructions:
        names = (BARE, *OURS, *LIGHT, *PARTS)
        counted = {name: processes.instructions(command(name), environ) for name in names if about_or_bare(name)}
        took = {name: [float(count)] for name, count in counted.items() if count is not None}
        failed = {name: "" for name in names if name not in took}
    else:
        light = processes.in_turns({name: command(name) for name in (BARE, *OURS, *LIGHT, *PARTS)}, environ, rounds)
        heavy = processes.in_turns({name: command(name) for name in HEAVY}, environ, max(1, rounds // 8))
        took = {name: one.cpu for name, one in {**light, **heavy}.items() if one.cpu}
        failed = {name: one.failed for name, one in {**light, **heavy}.items() if not one.cpu}
    peers = [name for name in LIGHT if name in took]
    lightest = min(peers, key=lambda name: median(took[name]), default="torch")
    own = {name: over_bare(rounds, took[BARE]) for name, rounds in took.items()}
    rows = []
    for name in (BARE, *OURS, *LIGHT, *HEAVY, *PARTS):
        known = about(name) if name != BARE else (0, 0.0, False)
        if name not in took or known is None:
            if name in failed:
                rows.append(Row(what=f"`import {name}`", note=f"left out: {failed[name] or 'it cannot be imported'}"))
            continue
        spent = median(took[BARE] if name == BARE else own[name])
        unit = f"{spent / 1e6:.1f} M instr." if by_instructions else f"{spent * 1000:.1f} ms"
        whole = None if name == BARE else ratio(own[name], own[lightest]) or median(own[name]) / median(own[lightest])
        target = 1.15 if name in OURS else None
        note = (
            "" if name == BARE else f"{known[0]} modules, {known[1]:.1f} MiB{', torch among them' if known[2] else ''}"
        )
        rows.append(
            Row(what=f"`import {name}`" if name != BARE else name, took=unit, ratio=whole, most=target, note=note)
        )
        if name in OURS:
            rows.append(Row(what="its modules, over 60", took=str(known[0]), ratio=known[0] / 60, most=1.0))
            rows.append(Row(what="torch among them", took="yes" if known[2] else "no", ratio=float(known[2]), most=0.0))
    floor = f"the import of the lightest peer here, `{lightest}`; all but the first row without a bare interpreter's"
    return Section(title="import", floor=floor, rows=tuple(rows))


def over_bare(rounds: list[float], bare: list[float]) -> list[float]:
    """What the import adds to an interpreter, round by round where both were run in the same rounds."""
    if len(rounds) == len(bare):
        return [one - other for one, other in zip(rounds, bare, strict=True)]
    return [one - median(bare) for one in rounds]


def about_or_bare(name: str) -> bool:
    return name == BARE or about(name) is not None
