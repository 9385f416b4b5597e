"""Child processes under a time limit: what they tell, and that none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from safedev import _child
from safedev._child import in_children

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks are for Linux")

LONG = 60.0  # seconds that no test waits for


def says(text: bytes) -> Callable[[int], object]:
    return lambda writer: os.write(writer, text)


def hangs(_: int) -> None:
    time.sleep(LONG)


def says_and_hangs(writer: int) -> None:
    os.write(writer, b"first words")
    time.sleep(LONG)


def dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)  # as deadly as a segmentation fault, and nobody dumps anything


def raises(_: int) -> None:
    raise ValueError


def prints(writer: int) -> None:
    os.write(1, b"chatter")
    os.write(2, b"chatter")
    os.write(writer, b"words")


@pytest.fixture(params=["forked", "spawned"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of children."""
    monkeypatch.setattr(_child, "can_fork", lambda: request.param == "forked")
    return str(request.param)


def children() -> set[int]:
    """Children of this process, those that have ended and were not waited for included."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text(encoding="ascii").split()}


@pytest.fixture
def of_others() -> set[int]:
    """Children that this process has already: what other tests of the session have started may still run."""
    return children()


@pytest.mark.usefixtures("kind")
def test_each_child_is_heard() -> None:
    """
    What each writes comes back in the order in which they were started.
    """
    works = [(says(b"one"), "print('one', end='')"), (says(b"two"), "print('two', end='')")]

    assert [(b"one", ""), (b"two", "")] == in_children(works, LONG)


def test_a_child_that_hangs_does_not_keep_the_others(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first hangs, and is given up at the limit; what the second said is there.
    """
    monkeypatch.setattr(_child, "STARTING", 0.0)
    works = [(hangs, "import time; time.sleep(60)"), (says(b"two"), "print('two', end='')")]

    first, second = in_children(works, 1.0)

    assert (b"", None) == first
    assert (b"two", "") == second


def test_what_a_child_said_before_it_hung_is_kept() -> None:
    """
    A device that names itself and hangs later is still named.
    """
    assert [(b"first words", None)] == in_children([(says_and_hangs, "")], 0.5)


@pytest.mark.parametrize(
    ("work", "code", "ending"),
    [
        pytest.param(dies, "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)", "SIGUSR1", id="by-a-signal"),
        pytest.param(raises, "raise SystemExit(1)", "exit status 1", id="by-an-error"),
    ],
)
@pytest.mark.usefixtures("kind")
def test_a_child_that_dies_is_told_from_one_that_ends(work: Callable[[int], object], code: str, ending: str) -> None:
    """
    A crash inside the driver is reported, with the signal, and ends nothing else.
    """
    assert [(b"", ending)] == in_children([(work, code)], LONG)


def test_what_a_library_prints_is_no_part_of_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """
    Standard output and error of a forked child lead nowhere.
    """
    assert [(b"words", "")] == in_children([(prints, "")], LONG)
    assert ("", "") == capfd.readouterr()


@pytest.mark.usefixtures("kind")
def test_no_child_is_left(monkeypatch: pytest.MonkeyPatch, of_others: set[int]) -> None:
    """
    A child that hangs is killed and waited for.
    """
    monkeypatch.setattr(_child, "STARTING", 0.0)
    in_children([(hangs, "import time; time.sleep(60)"), (says(b""), "")], 0.3)

    assert set() == children() - of_others


def test_no_child_is_left_if_one_cannot_be_started(monkeypatch: pytest.MonkeyPatch, of_others: set[int]) -> None:
    """
    The children that were started end with the error of the one that was not.
    """
    fork, pids = os.fork, iter([True, False])

    def refuse() -> int:
        if next(pids):
            return fork()
        raise OSError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)

    with pytest.raises(OSError, match="no more processes"):
        in_children([(hangs, ""), (hangs, "")], LONG)

    assert set() == children() - of_others


def test_a_child_that_the_kernel_holds_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A process inside a driver that hangs cannot be killed; the report does not wait for it.
    """
    kill, left = os.kill, []
    monkeypatch.setattr(os, "kill", lambda pid, _: left.append(pid))
    told = in_children([(hangs, "")], 0.1)
    (pid,) = left
    kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    assert [(b"", None)] == told


def test_a_signal_that_ends_the_program_is_raised(of_others: set[int]) -> None:
    """
    What `finally` and `with` have to put right in the caller is put right too.
    """
    with pytest.raises(SystemExit) as raised:
        in_children([(lambda _: os.kill(os.getppid(), signal.SIGTERM), ""), (hangs, "")], LONG)

    assert 128 + signal.SIGTERM == raised.value.code
    assert set() == children() - of_others


def test_another_thread_leaves_the_signals_alone() -> None:
    """
    Only the main thread may have handlers.
    """
    told: list[object] = []
    asking = threading.Thread(target=lambda: told.append(in_children([(says(b""), "print('words', end='')")], LONG)))
    asking.start()
    asking.join()

    assert [[(b"words", "")]] == told


PROGRAM = """
import os, signal, sys, time
from safedev._child import in_children
signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background inherits that they are ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
def work(writer):
    print(os.getpid(), file=told, flush=True)
    time.sleep(60)
told = os.fdopen(os.dup(1), "w")
in_children([(work, "")] * 2, 60.0)
"""


@pytest.mark.parametrize(
    "number", [pytest.param(getattr(signal, name), id=name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL")]
)
def test_the_children_end_with_their_parent(number: signal.Signals) -> None:
    """
    Whatever ends the command, Ctrl-C and SIGKILL included, its children end too.
    """
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.send_signal(number)
        parent.wait(LONG)

    deadline = time.monotonic() + LONG
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert [] == list(filter(is_alive, pids))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and awaits its parent does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def test_the_handlers_of_the_program_are_put_back() -> None:
    """
    A program that calls the audit keeps its own handling of signals.
    """
    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    in_children([(says(b""), "")], LONG)

    assert before == {name: signal.getsignal(name) for name in before}


def test_a_signal_that_is_ignored_stays_so() -> None:
    """
    Under ``nohup`` a hang-up is ignored, and the audit goes on; what is not ignored ends it.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _child._signals_raise():
            hangup, end = signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert signal.SIG_IGN == hangup
    assert callable(end)
