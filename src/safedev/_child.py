"""Child processes under a time limit, of which none is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager, nullcontext, suppress

from safedev import _driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from types import FrameType
    from typing import NoReturn

    # What a child does, given the descriptor of the pipe that it writes to; and the same as the text of a program, for
    # an interpreter of its own, whose pipe is descriptor 1.
    Work = tuple[Callable[[int], object], str]

_TO_END = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has one of them
_HELD = [signal.SIGINT, *_TO_END]

STARTING = 60.0
"""Seconds that are added to the limit where each child is an interpreter of its own, which has to import torch."""


def in_children(works: Iterable[Work], seconds: float) -> list[tuple[bytes, str | None]]:
    """Run each work in a child process of its own, all at once; no child is left when this returns or raises.

    They are forks where they can be, and interpreters of their own elsewhere. While they run, SIGTERM and SIGHUP raise
    ``SystemExit`` here, so that the children end first.

    Returns:
        For each, what it wrote within *seconds*, and how it ended: ``""`` by itself, ``"SIGSEGV"`` or
        ``"exit status 1"`` otherwise, None if it did not end in time.
    """
    kind: type[_Fork | _Spawn] = _Fork if can_fork() else _Spawn
    children: list[_Fork | _Spawn] = []
    with _signals_raise():
        try:
            with _signals_held() if kind is _Fork else nullcontext():
                for work in works:
                    children.append(kind(work))  # noqa: PERF401 - those started must be known if one fails to start
            deadline = time.monotonic() + seconds + (0 if kind is _Fork else STARTING)
            return [child.read(deadline) for child in children]
        finally:
            for child in children:
                child.kill()
            deadline = time.monotonic() + 2  # a process that the kernel holds cannot be killed: do not wait for it
            for child in children:
                child.wait(deadline)


def can_fork() -> bool:
    """Whether a forked child can use CUDA: the driver has not started here, and no thread may hold a lock."""
    idle = _driver.frozen_count() is None and not _driver.in_bad_fork()
    return sys.platform == "linux" and idle and threading.active_count() == 1


class _Fork:
    def __init__(self, work: Work) -> None:
        self.status: int | None = None
        self.reader, writer = os.pipe()
        with warnings.catch_warnings():
            # Python warns of any thread; those of numpy's library of linear algebra are made for a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _be_child(work, writer)
        os.close(writer)

    def read(self, deadline: float) -> tuple[bytes, str | None]:
        text = b""
        poll = select.poll()  # select() refuses descriptors from 1024 up
        poll.register(self.reader, select.POLLIN)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            piece = os.read(self.reader, 1 << 16)
            if not piece:
                self.wait(time.monotonic() + 1)
                return text, _ending(self.status)
            text += piece
        return text, None

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
    def __init__(self, work: Work) -> None:
        command = [sys.executable, "-c", f"import sys; sys.path[:] = sys.argv[1:]; {work[1]}", *sys.path]
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null)  # noqa: S603 - ours

    def read(self, deadline: float) -> tuple[bytes, str | None]:
        try:
            text = self.process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0]
        except subprocess.TimeoutExpired as error:
            return error.output or b"", None
        return text, _ending(self.process.returncode)

    def kill(self) -> None:
        self.process.kill()

    def wait(self, deadline: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=max(0.1, deadline - time.monotonic()))


def _ending(status: int | None) -> str:
    if not status:
        return ""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"exit status {status}"


def _be_child(work: Work, writer: int) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent takes it, and ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: when the parent is killed, this ends too
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)  # what a library prints must not get between the lines of the report
        work[0](writer)
        status = 0
    finally:
        os._exit(status)


@contextmanager
def _signals_held() -> Generator[None]:
    """Let signals wait: what a handler raises in the hooks that follow a fork is lost, and the child with it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _signals_raise() -> Generator[None]:
    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    numbers = _TO_END if threading.current_thread() is threading.main_thread() else ()
    # What is ignored stays so (nohup), and a handler that is not Python's could not be put back.
    kept = {signal.SIG_IGN, None}
    before = {number: signal.signal(number, stop) for number in numbers if signal.getsignal(number) not in kept}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
