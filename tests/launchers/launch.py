"""Starts launchers with a time limit, and reads what their workers report."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"
REQUIRED = os.environ.get("SAFEDEV_REQUIRE_LAUNCHERS") == "1"
TIME_LIMIT = 100.0  # seconds a launch; one takes about ten


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What came of a launch.

    Attributes:
        reports: What each worker reported, by rank.
        output: Everything that was printed, to be shown when a claim fails.
        status: Exit status of the launcher.
    """

    reports: list[dict[str, Any]]
    output: str
    status: int

    def column(self, name: str) -> list[Any]:
        """Return one entry of each worker's report, by rank."""
        return [report.get(name) for report in self.reports]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where launches run: a folder, the environment of the pretend GPUs, and what puts a command where it belongs.

    Attributes:
        folder: Folder of this test.
        gpus: The variables that make a process see pretend GPUs.
        count: How many pretend GPUs each node has.
        joining: Words before each command: `nsenter` and its options, or none.
        extra: More variables, for launcher and workers.
    """

    folder: Path
    gpus: dict[str, str]
    count: int
    joining: tuple[str, ...] = ()
    extra: dict[str, str] = field(default_factory=dict)

    def worker(self, count: int) -> list[str]:
        """Return the command of one worker among *count*; the launcher itself sees no pretend GPUs."""
        return self.on_gpus(sys.executable, str(WORKER), str(self.folder), str(count))

    def on_gpus(self, *command: str) -> list[str]:
        """Return *command*, so that it sees the pretend GPUs whatever starts it."""
        return ["env", *(f"{name}={value}" for name, value in self.gpus.items()), *command]

    def environ(self) -> dict[str, str]:
        """Return what a login shell would have, and where the workers meet."""
        kept = {
            name: os.environ[name] for name in ("HOME", "LANG", "PATH", "TMPDIR", "PYTHONPATH") if name in os.environ
        }
        here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
        return {**kept, **here, "OMP_NUM_THREADS": "1", **self.extra}

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """Start *command* in a process group of its own."""
        return subprocess.Popen(
            [*self.joining, *command],
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *commands: list[str]) -> Launched:
        """Run *commands* side by side to their end, and collect the reports; a hang is a failure."""
        started = [self.start(command) for command in commands]
        try:
            output = "".join(process.communicate(timeout=TIME_LIMIT)[0] for process in started)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"no end within {TIME_LIMIT:.0f} s: {shlex.join(expired.cmd)}") from expired
        finally:
            for process in started:
                end(process)
        reports = [json.loads(path.read_text()) for path in self.folder.glob("*.json")]
        reports.sort(key=lambda report: report["rank"])
        return Launched(reports=reports, output=output, status=max(abs(process.returncode) for process in started))


MakeBench = Callable[[int], Bench]


def lacking(what: str) -> NoReturn:
    """Skip for want of *what*, or fail where launchers are required."""
    if REQUIRED:
        pytest.fail(f"{what}, and SAFEDEV_REQUIRE_LAUNCHERS is set")
    pytest.skip(what)


def end(process: subprocess.Popen[str]) -> None:
    """End a launcher and all that it started in its group, if they still run."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
