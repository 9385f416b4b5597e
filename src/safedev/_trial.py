"""Each visible device, tried in a child process of its own, under a time limit."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager, suppress

from safedev import _driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from types import FrameType
    from typing import Any, NoReturn

STARTING = 60.0
"""Seconds that are added to the limit where each child has to import torch anew."""

# What the first line of an error says, and the state that it shows. The words are cudaGetErrorString's:
# https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
_SIGNS = (
    ("busy or unavailable", "busy"),
    ("out of memory", "out-of-memory"),
    ("no kernel image", "no-kernel-image"),
    ("invalid device ordinal", "absent"),
    ("uncorrectable", "lost"),
    ("unknown error", "lost"),
    ("hardware", "lost"),
    ("is lost", "lost"),
)


def try_devices(ordinals: Iterable[int], seconds: float) -> list[dict[str, Any]]:
    """Try devices, all at once, each in a child process of its own; no child is left when it returns or raises.

    Args:
        ordinals: The devices, from 0.
        seconds: How long each may take.

    Returns:
        For each device ``state``, ``said`` (what went wrong, in the driver's words; not escaped), ``seconds``, and as
        far as it got what ``_torch.exercise`` yields. The states: ``sound``, ``slow`` (it took more than half of the
        limit), ``hung``, ``busy``, ``out-of-memory``, ``no-kernel-image``, ``absent`` (the driver knows no such
        ordinal), ``lost``, ``corrupt`` (other bytes came back than were sent), ``failed`` (any other way).
    """
    kind: type[_Fork | _Spawn] = _Fork if _can_fork() else _Spawn
    children: list[_Fork | _Spawn] = []
    with _signals_raise():
        try:
            for ordinal in ordinals:
                children.append(kind(ordinal))  # noqa: PERF401 - those started must be known if one fails to start
            deadline = time.monotonic() + seconds + (0 if kind is _Fork else STARTING)
            return [_judged(child, deadline, seconds) for child in children]
        finally:
            for child in children:
                child.kill()
            deadline = time.monotonic() + 2  # a process that the kernel holds cannot be killed: do not wait for it
            for child in children:
                child.wait(deadline)


def attempt(ordinal: int) -> Iterator[dict[str, object]]:
    """Try one device, in this process; yield what is known, the last time with its state."""
    seen: dict[str, object] = {}
    began = time.perf_counter()
    try:
        from safedev import _torch

        for key, value in _torch.exercise(ordinal):
            seen[key] = value
            if key == "uuid":  # all that the device tells of itself, before anything is done to it
                yield dict(seen)
        said, state = "", "sound" if seen.pop("intact") else "corrupt"
    except Exception as error:  # noqa: BLE001 - whatever torch raises: it is what the trial is for
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        state = next((state for sign, state in _SIGNS if sign in said), "failed")
    yield {**seen, "state": state, "said": said[:300], "seconds": time.perf_counter() - began}


def main(ordinal: int, writer: int) -> None:
    """Write what is known of a device to a pipe, as lines of JSON."""
    for known in attempt(ordinal):
        os.write(writer, json.dumps(known).encode() + b"\n")


class _Fork:
    """A child forked from this process, which has imported torch and has not started the driver."""

    def __init__(self, ordinal: int) -> None:
        self.reader, writer = os.pipe()
        with warnings.catch_warnings():
            # Python warns of any thread; those of numpy's library of linear algebra are made for a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _be_child(ordinal, writer)
        os.close(writer)
        self.status: int | None = None

    def read(self, deadline: float) -> tuple[bytes, bool]:
        """What the child wrote until *deadline*, and whether that is all."""
        text = b""
        while select.select([self.reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(self.reader, 1 << 16)
            if not piece:
                self.wait(time.monotonic() + 1)
                return text, True
            text += piece
        return text, False

    def kill(self) -> None:
        os.close(self.reader)
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, deadline: float) -> None:
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() < deadline:
                time.sleep(0.002)
            else:
                return


class _Spawn:
    """A child in an interpreter of its own, where a fork could not use CUDA, or there is none."""

    _CODE = "import sys; sys.path[:] = sys.argv[2:]; from safedev._trial import main; main(int(sys.argv[1]), 1)"

    def __init__(self, ordinal: int) -> None:
        command = [sys.executable, "-c", self._CODE, str(ordinal), *sys.path]
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null)  # noqa: S603 - ours
        self.status: int | None = None

    def read(self, deadline: float) -> tuple[bytes, bool]:
        """What the child wrote until *deadline*, and whether that is all."""
        try:
            text = self.process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0]
        except subprocess.TimeoutExpired as error:
            return error.output or b"", False
        self.status = self.process.returncode
        return text, True

    def kill(self) -> None:
        self.process.kill()

    def wait(self, deadline: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=max(0.1, deadline - time.monotonic()))


def _judged(child: _Fork | _Spawn, deadline: float, seconds: float) -> dict[str, Any]:
    text, ended = child.read(deadline)
    known: dict[str, Any] = {"said": "", "seconds": None}
    for line in text.splitlines():
        known.update(json.loads(line))
    if not ended:
        known.update(state="hung")
    elif "state" not in known:
        known.update(state="failed", said=f"the process that used it died ({_cause(child.status)})")
    elif known["state"] == "sound" and known["seconds"] > seconds / 2:
        known["state"] = "slow"
    return known


def _cause(status: int | None) -> str:
    try:
        return signal.Signals(-(status or 0)).name
    except ValueError:
        return f"exit status {status}"


def _can_fork() -> bool:
    """Whether a forked child can use CUDA: the driver has not started here, and no thread may hold a lock."""
    idle = _driver.frozen_count() is None and not _driver.in_bad_fork()
    return sys.platform == "linux" and idle and threading.active_count() == 1


def _be_child(ordinal: int, writer: int) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent takes it, and ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: when the parent is killed, this ends too
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)  # what a library prints must not get between the lines of the report
        main(ordinal, writer)
    finally:
        os._exit(0)


@contextmanager
def _signals_raise() -> Generator[None]:
    """Let signals that would end this process at once raise instead, so that the children end first."""

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, stop) for name in names if (number := getattr(signal, name, None))}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
