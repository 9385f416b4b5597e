"""Runs what is to be measured, in processes of its own, and makes ratios of what comes back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.environments import fill

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rig import Rig

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


@dataclass(frozen=True, kw_only=True)
class Job:
    """Subjects that are measured side by side, in one process, under one environment."""

    name: str
    subjects: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 8
    awake: bool = False
    first: bool = False


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What came of a job: by subject what a call took, once a round, what it answered, and why it is missing."""

    job: Job
    took: Mapping[str, Sequence[float]]
    answers: Mapping[str, str]
    skipped: Mapping[str, str]

    def median(self, subject: str) -> float | None:
        """What a call of *subject* took, in the unit of the measurement; None if it was not measured."""
        rounds = self.took.get(subject)
        return median(rounds) if rounds else None

    def ratio(self, subject: str, floor: str) -> float | None:
        return ratio(self.took.get(subject, ()), self.took.get(floor, ()))


def ratio(of: Sequence[float], over: Sequence[float]) -> float | None:
    """Median of the rounds' ratios: each round's are measured within milliseconds of each other."""
    pairs = [a / b for a, b in zip(of, over, strict=True) if b] if len(of) == len(over) else []
    return median(pairs) if pairs else None


def library(folder: Path) -> str | None:
    """Compile what marks the calls for valgrind; None where there is no valgrind."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if shutil.which("valgrind") is None or compiler is None:
        return None
    made = folder / "libcallgrind_marks.so"
    source = HERE / "callgrind.c"
    done = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source], capture_output=True, check=False)
    return str(made) if done.returncode == 0 else None


def counts(folder: Path) -> dict[tuple[str, str], list[float]]:
    """Instructions a call, by job and subject, from the files that callgrind left in *folder*."""
    totals: dict[tuple[str, str], dict[int, int]] = {}
    for dump in folder.glob("callgrind.*"):
        text = dump.read_text(errors="replace")
        label = re.search(r"^desc: Trigger: Client Request: (.*)\|(.*)\|(\d+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if label and total:
            totals.setdefault((label[1], label[2]), {})[int(label[3])] = int(total[1])
    # Where valgrind is switched on amid a call that then returns, it can lose count: such a total is no result.
    found = {key: per_call(by_number) for key, by_number in totals.items()}
    return {key: [count] for key, count in found.items() if 0 < count < 1e12}


def per_call(by_number: Mapping[int, int]) -> float:
    """Instructions of one call, from the totals of a few and of many: the difference has no loop in it."""
    few, many = min(by_number), max(by_number)
    if few == many:
        return by_number[few] / few
    return (by_number[many] - by_number[few]) / (many - few)


def run_jobs(
    rig: Rig | None,
    jobs: Iterable[Job],
    *,
    rounds: int,
    shim: str | None = None,
    torch: bool = True,
    python: str = sys.executable,
) -> list[Taken]:
    """Measure *jobs* in forks of one process; without *rig*, on this machine as it is.

    With *shim*, the library of :func:`library`, what a call took is its instructions, else nanoseconds of CPU time.
    """
    wanted = list(jobs)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        environ = base(rig)
        order = {
            "torch": torch,
            "rounds": rounds,
            "shim": shim,
            "jobs": [
                {
                    "name": job.name,
                    "subjects": job.subjects,
                    "env": {"PRETEND_GPUS": str(job.gpus), **job.env},
                    "awake": job.awake,
                    "first": job.first,
                }
                for job in wanted
            ],
        }
        (folder / "order.json").write_text(json.dumps(order))
        command = [python, str(HERE / "worker.py"), str(folder / "order.json")]
        if shim:
            files = f"--callgrind-out-file={folder}/callgrind.%p"
            command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "-q", files, *command]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            raise SystemExit(f"the worker failed:\n{done.stderr[-4000:]}")
        answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        found = counts(folder) if shim else {}
        if any("*" in answer["skipped"] for answer in answers):
            print(done.stderr[-4000:], file=sys.stderr)
    taken = []
    for job, answer in zip(wanted, answers, strict=True):
        took = {s: found[job.name, s] for s in job.subjects if (job.name, s) in found} if shim else answer["times"]
        taken.append(Taken(job=job, took=took, answers=answer["answers"], skipped=answer["skipped"]))
    return taken


def merged(first: Sequence[Taken]) -> Taken:
    """Several takings of one job as one: a first call can be measured once in a process."""
    took: dict[str, list[float]] = {}
    for one in first:
        for subject, rounds in one.took.items():
            took.setdefault(subject, []).extend(rounds)
    return Taken(job=first[0].job, took=took, answers=first[0].answers, skipped=first[0].skipped)


def base(rig: Rig | None) -> dict[str, str]:
    """An environment of 50 variables, on a pretend machine if *rig* is one."""
    environ = rig.environ() if rig is not None else {n: v for n, v in os.environ.items() if n in {"PATH", "HOME"}}
    paths = [str(ROOT / "src"), *filter(None, [environ.get("PYTHONPATH")])]
    environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environ.pop("CUDA_VISIBLE_DEVICES", None)
    return environ | fill(50 - len(environ))
