"""The rig itself: what crosses from the child, what is kept out of it, and that nothing is left behind."""

from __future__ import annotations

import inspect
import os
import sys
import time
from pathlib import Path

import pytest

import rig as module
from rig import Rig, RigTimeoutError

LEFT = f"rig-child-left-behind-{os.getpid()}"
LEAVE = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)', '{LEFT}'])"


def running(word: str) -> list[str]:
    """Command lines of the processes that hold *word*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text:
            found.append(text)
    return found


def soon(word: str) -> list[str]:
    """What still runs a moment later: a killed process takes one to go."""
    for _ in range(100):
        if not running(word):
            return []
        time.sleep(0.02)
    return running(word)


def test_the_last_expression_is_the_value(rig: Rig) -> None:
    """
    Text gives its last statement, if that is an expression.
    """
    found = [rig.call(text, torch=False).value for text in ("x = 2\nx + 1", "x = 2")]

    assert [3, None] == found


def test_a_function_is_called_with_arguments(rig: Rig) -> None:
    """
    A function crosses as its source, and is called.
    """

    def add(left: int, right: int) -> int:
        return left + right

    found = rig.call(add, 1, 2, torch=False).value

    assert 3 == found


def test_an_error_crosses_with_its_parts(rig: Rig) -> None:
    """
    An error keeps its classes, its message and its attributes; asking for the
    value shows the child's traceback.
    """
    code = "class Odd(ValueError): pass\nerror = Odd('text')\nerror.part = (1, 'two')\nraise error"
    result = rig.call(code, torch=False)

    assert result.error is not None
    assert ("Odd", "ValueError") == result.error.names[:2]
    assert "text" == result.error.message
    assert {"part": [1, "two"]} == result.error.attributes
    with pytest.raises(AssertionError, match="Odd: text"):
        _ = result.value


def test_a_warning_points_at_the_tests_own_line(rig: Rig) -> None:
    """
    A function's warnings have the file and the line that they have here.
    """

    def warn() -> None:
        import warnings

        warnings.warn("text", UserWarning, stacklevel=1)

    (caught,) = rig.call(warn, torch=False).warnings

    assert ("UserWarning", "text", __file__) == (caught.name, caught.message, caught.filename)
    assert inspect.getsourcelines(warn)[1] + 3 == caught.lineno


def test_what_ran_before_is_told_apart(rig: Rig) -> None:
    """
    `before` may start the driver; that is not the snippet's doing.
    """
    start = "import torch; torch.cuda.is_available()"
    before = rig.call("torch.cuda.is_available()", gpus=1, before=start)
    after = rig.call(start, gpus=1)

    assert [False, True] == [before.awake, after.awake]
    assert [("init", True)] == [(event.event, event.before) for event in before.trace]


def test_calls_do_not_see_each_other(rig: Rig) -> None:
    """
    A call that starts the driver leaves the next one's asleep, with an
    environment and modules of its own.
    """
    rig.call("import os, sys, torch; os.environ['LEFT'] = sys.left = 'x'; torch.cuda.init()", gpus=1)
    result = rig.call("import os, sys; (os.environ.get('LEFT'), hasattr(sys, 'left'))", gpus=1)

    assert [None, False] == result.value
    assert () == result.trace


def test_the_environment_is_what_the_test_says(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Variables of the test's own process stay out.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    found = rig.call(
        "import os; (os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['OWN'])", env={"OWN": "1"}, torch=False
    )

    assert [None, "1"] == found.value


@pytest.mark.parametrize(
    ("torch", "fresh", "loaded"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_torch_is_there_or_not(rig: Rig, torch: bool, fresh: bool, loaded: bool) -> None:
    """
    The server has imported torch, unless it was not to; a fresh interpreter has
    not.
    """
    found = rig.call("import sys; 'torch' in sys.modules", torch=torch, fresh=fresh).value

    assert loaded is found


@pytest.mark.parametrize("fresh", [False, True])
def test_a_snippet_that_hangs_is_killed_with_its_children(rig: Rig, fresh: bool) -> None:
    """
    A time limit ends a snippet and the programs it started.
    """
    code = f"{LEAVE}; import time; time.sleep(300)"

    with pytest.raises(RigTimeoutError):
        rig.call(code, torch=False, fresh=fresh, timeout=0.5)
    assert [] == soon(LEFT)


def test_a_command_leaves_no_children(rig: Rig) -> None:
    """
    What a command started is gone when it has ended.
    """
    done = rig.run([sys.executable, "-c", LEAVE])

    assert 0 == done.returncode
    assert [] == soon(LEFT)


def test_a_command_that_hangs_is_killed(rig: Rig) -> None:
    """
    A time limit ends a command.
    """
    with pytest.raises(RigTimeoutError):
        rig.run([sys.executable, "-c", "import time; time.sleep(300)", LEFT], timeout=0.5)
    assert [] == soon(LEFT)


def test_a_command_is_given_input_and_its_output_kept(rig: Rig) -> None:
    """
    A command has a status, an input and two outputs.
    """
    done = rig.run(
        [sys.executable, "-c", "import sys; print(input()); print(2, file=sys.stderr); sys.exit(3)"], stdin="1\n"
    )

    assert (3, "1\n", "2\n") == (done.returncode, done.stdout, done.stderr)


def test_a_process_that_dies_is_an_error(rig: Rig) -> None:
    """
    A snippet whose process dies says so, with what it printed, and the next
    call works.
    """
    with pytest.raises(AssertionError, match=r"died\nlast words"):
        rig.call("import os; print('last words', flush=True); os.abort()", torch=False)
    assert 1 == rig.call("1", torch=False).value


def test_the_script_runs_a_command(rig: Rig) -> None:
    """
    By hand, `rig.py 3 COMMAND` runs a command on three GPUs.
    """
    script = Path(module.__file__)
    code = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(n)); print(n.value)"
    done = rig.run([sys.executable, script, "3", sys.executable, "-c", code])

    assert (0, "3\n") == (done.returncode, done.stdout)


def test_a_missing_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where there is no compiler, the reason says so.
    """
    monkeypatch.setenv("PATH", os.devnull)
    reason = module.missing()

    assert reason is not None
    assert "compiler" in reason
