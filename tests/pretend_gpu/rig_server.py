"""The process behind `rig.Rig.call`: it imports torch once (or not at all) and runs each job in a forked child.

With ``--torch`` or ``--bare`` it serves: one JSON line a job on stdin, one JSON line back when its child has ended.
With a job's folder as argument it runs that job in this interpreter.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

DEPTH = 8


def plain(value: Any, depth: int = 0) -> Any:
    """*value* as JSON can hold it."""
    plainest: Any = None
    if value is None or isinstance(value, (bool, int, str)):
        # Of a class of its own, such as IntEnum or Ordinal, it is still that number or text.
        plainest = value if value is None or isinstance(value, (bool, str)) else int(value)
    elif isinstance(value, float) and math.isfinite(value):
        plainest = float(value)
    elif type(value).__module__ == "torch" and type(value).__name__ == "device":
        plainest = str(value)
    elif isinstance(value, dict) and depth < DEPTH:
        plainest = {str(k): plain(v, depth + 1) for k, v in value.items()}
    elif isinstance(value, (list, tuple, set, frozenset)) and depth < DEPTH:
        plainest = [plain(v, depth + 1) for v in value]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type) and depth < DEPTH:
        fields = {f.name: plain(getattr(value, f.name), depth + 1) for f in dataclasses.fields(value)}
        plainest = {"class": type(value).__name__, **fields}
    else:
        try:
            plainest = repr(value)
        except Exception as error:
            plainest = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return plainest


def names_of(kind: type) -> list[str]:
    return [base.__name__ for base in kind.__mro__ if base is not object]


def error_of(error: BaseException) -> dict[str, Any]:
    return {
        "name": type(error).__name__,
        "names": names_of(type(error)),
        "message": str(error),
        "attributes": plain({k: v for k, v in vars(error).items() if not k.startswith("_")}),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }


def evaluate(text: str, filename: str, namespace: dict[str, Any]) -> Any:
    """Run *text*; if its last statement is an expression, return what that is."""
    tree = ast.parse(text, filename)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, filename, "exec"), namespace)
        return None
    tree.body.pop()
    exec(compile(tree, filename, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), filename, "eval"), namespace)


def lines_in(path: str) -> int:
    return Path(path).read_bytes().count(b"\n") if Path(path).exists() else 0


def run_job(folder: Path) -> None:
    """Do what the order in *folder* says, and write the result beside it."""
    order = json.loads((folder / "order.json").read_text())
    for name in set(os.environ) - order["environ"].keys():
        del os.environ[name]
    os.environ.update(order["environ"])
    trace = order["environ"]["PRETEND_GPU_TRACE"]
    namespace: dict[str, Any] = {"__name__": "snippet"}
    answer, error, before = None, None, 0
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            for step in order["before"]:
                evaluate(step, "<before>", namespace)
            before = lines_in(trace)
            seen.clear()
            answer = evaluate(order["text"], order["filename"], namespace)
            if order["function"]:
                answer = namespace[order["function"]](*order["args"])
        except (Exception, SystemExit) as exception:
            error = error_of(exception)
    result = {
        "pid": os.getpid(),
        "answer": plain(answer) if error is None else None,
        "error": error,
        "before": before,
        "warnings": [
            {
                "name": w.category.__name__,
                "names": names_of(w.category),
                "message": str(w.message),
                "filename": w.filename,
                "lineno": w.lineno,
                "attributes": plain(vars(w.message)),
            }
            for w in seen
        ],
    }
    (folder / "result.new").write_text(json.dumps(result))
    (folder / "result.new").rename(folder / "result.json")


def child(folder: Path) -> None:
    os.setsid()
    os.chdir(folder)
    for number, name in enumerate((os.devnull, "stdout", "stderr")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY, 0o644)
        os.dup2(file, number)
        os.close(file)
    try:
        run_job(folder)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def wait(pid: int, seconds: float) -> bool:
    """Wait for a child's end, kill what is left of its group, and say whether it ended by itself."""
    end = time.monotonic() + seconds
    pause = 0.001
    while not (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(0.02, pause * 1.2)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return ended is not None


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not come between the answers
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(Path(job["job"]))
        print(json.dumps({"timed_out": not wait(pid, job["seconds"])}), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules are none of the code under test
    if sys.argv[1] == "--torch":
        import torch  # noqa: F401 - this is what the server is for
    if sys.argv[1].startswith("--"):
        serve()
    else:
        run_job(Path(sys.argv[1]))
