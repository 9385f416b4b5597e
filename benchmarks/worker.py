"""The process that measures calls: it imports torch once, and forks a child for each job.

It reads its order, JSON, from the file that is its one argument, and prints one line of JSON for each job. A job has an
environment, a state (``awake``: CUDA has started) and subjects, names in ``subjects.py``. Without valgrind the result
is each subject's CPU time a call, in nanoseconds, once a round; the subjects take turns within each round. Under
valgrind the calls that it is to count are marked, and the counts lie in its files.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import subjects

Subject = Callable[[], object]
LONG_ENOUGH = 2_000_000  # nanoseconds that one round of one subject takes at least
FEW = 1  # calls under valgrind, and some more: what a call takes is the difference, without the loop around it


def calls(subject: Subject, number: int) -> int:
    """CPU time of *number* calls, of all threads: the machine may be shared."""
    began = time.process_time_ns()
    for _ in range(number):
        subject()
    return time.process_time_ns() - began


def repeats(subject: Subject) -> int:
    number = 1
    while (took := calls(subject, number)) < LONG_ENOUGH // 4:
        number *= 2
    return max(1, number * LONG_ENOUGH // took)


def timed(made: dict[str, Subject], rounds: int, *, first: bool) -> dict[str, list[float]]:
    if first:
        return {name: [float(calls(subject, 1))] for name, subject in made.items()}
    numbers = {name: repeats(subject) for name, subject in made.items()}
    found: dict[str, list[float]] = {name: [] for name in made}
    names = list(made)
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            found[name].append(calls(made[name], numbers[name]) / numbers[name])
    return found


def counted(made: dict[str, Subject], shim: str, label: str, *, first: bool) -> None:
    library = ctypes.CDLL(shim)
    for name, subject in made.items():
        many = 5 if first or calls(subject, 1) < 20_000_000 else 2
        for number in (1,) if first else (FEW, many):
            span = range(number)
            library.count_from_here()
            for _ in span:
                subject()
            library.count_to_here(f"{label}|{name}|{number}".encode())


def do(job: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(job["env"])
    warnings.simplefilter("ignore")
    if job["awake"]:
        import torch

        torch.cuda.init()
    made: dict[str, Subject] = {}
    skipped: dict[str, str] = {}
    answers: dict[str, str] = {}
    for name in job["subjects"]:
        try:
            made[name] = subjects.SUBJECTS[name]()
            if not job["first"]:
                answers[name] = str(made[name]())
        except Exception as error:  # noqa: BLE001, PERF203 - a peer that is not installed, or does not work here
            made.pop(name, None)
            skipped[name] = f"{type(error).__name__}: {error}".split("\n")[0]
    gc.collect()
    gc.disable()
    times: dict[str, list[float]] = {}
    if order["shim"]:
        counted(made, order["shim"], job["name"], first=job["first"])
    else:
        times = timed(made, order["rounds"], first=job["first"])
    return {"job": job["name"], "times": times, "answers": answers, "skipped": skipped}


def main(order: dict[str, Any]) -> None:
    if order["torch"]:
        import torch  # noqa: F401 - once for all jobs
    for job in order["jobs"]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writer, json.dumps(do(job, order)).encode())
            except BaseException:  # noqa: BLE001 - the child must not go on as a second server
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        print(text.decode() or json.dumps({"job": job["name"], "times": {}, "answers": {}, "skipped": {"*": "died"}}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
