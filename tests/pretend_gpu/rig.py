"""Run code on a pretend machine: a real CUDA build of torch over pretend NVIDIA GPUs, with no GPU and no driver.

``driver/`` holds three small C libraries that answer for libcudart, libcuda and NVML; its ``README.md`` lists what they
model and the ``PRETEND_*`` settings. They must be in place before a process starts, so the code under test runs in
processes of its own. The fixture ``rig`` (``conftest.py``) compiles the libraries once a session and is one of these::

    def test_something(rig: Rig) -> None:
        result = rig.call("import torch; torch.cuda.device_count()", gpus=4, env={"CUDA_VISIBLE_DEVICES": "2,1"})

        assert 2 == result.value

`Rig.call` runs a snippet in a child forked from a server that has imported torch once (some milliseconds a call, where
a fresh process takes seconds). The child's environment is empty but for what Python needs, ``PRETEND_GPUS`` and what
``env`` and ``settings`` say; its driver is asleep. The snippet is

- text: its last statement, if that is an expression, is the result; or
- a function that needs nothing around it (it imports what it uses): it is called with ``args``, and warnings point at
  its own lines in the test's file.

``before`` is text that runs first: what it starts is told apart from what the snippet starts. The result crosses as
JSON: tuples become lists, dataclasses become dictionaries, ``torch.device`` its text, anything else its ``repr``. The
fields of `Result`::

    result.value            the result; AssertionError with the child's traceback if it raised
    result.error            None, or .name .names (of the class and its bases) .message .attributes .traceback
    result.warnings         each with .name .names .message .filename .lineno
    result.trace            what the driver did in all processes: .pid .event .value (.before: during `before`)
    result.events("set")    physical indices (or values) of the snippet's own process, during the snippet
    result.awake            the snippet started the driver in its own process, or tried to
    result.nvml             names of the NVML functions that were called
    result.stdout .stderr   text

`Rig.call` with ``torch=False`` forks from a server that has not imported torch (the quickest of all); with
``fresh=True`` it takes a new interpreter, for what an import or the start of one does. `Rig.run` runs a command of any
kind (a launcher, ``[sys.executable, "-m", "safedev"]``) and returns `Completed`: ``.returncode``, ``.stdout``,
``.stderr``, ``.trace``. ``machine=`` chooses which libraries there are: ``"full"``, ``"no-nvml"`` (libnvidia-ml cannot
be loaded), ``"no-driver"`` (libcuda cannot), ``"bare"`` (neither), ``"no-symbol"`` (a libcuda without
cuDeviceGetCount).

Everything has a time limit (``timeout``, in seconds; `RigTimeoutError`), after which the process and all of its group
are killed. By hand::

    python tests/pretend_gpu/rig.py 4 python train.py
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SERVER = HERE / "rig_server.py"
# What a machine of each kind has of the two libraries that are found by name.
MACHINES = {
    "full": ("libcuda.so.1", "libnvidia-ml.so.1"),
    "no-nvml": ("libcuda.so.1",),
    "no-driver": ("libnvidia-ml.so.1",),
    "bare": (),
    "no-symbol": ("libcuda-without-count.so.1", "libnvidia-ml.so.1"),
}
# What a process needs to run at all. All other variables are left out, so that a test says what it depends on.
KEPT = re.compile(r"PATH|HOME|LANG|LC_.*|TMPDIR|VIRTUAL_ENV|PYTHON.*|COVERAGE.*|COV_CORE.*|LD_PRELOAD|LD_LIBRARY_PATH")


class RigTimeoutError(AssertionError):
    """The code did not come back in time; its processes were killed."""


class RigError(Exception):
    """The pretend machine itself does not work."""


@dataclass(frozen=True)
class Event:
    """One line of the trace."""

    pid: int
    event: str
    value: int
    before: bool = False


@dataclass(frozen=True)
class Caught:
    """A warning, or an error, as it was in the child."""

    name: str
    names: tuple[str, ...]
    message: str
    attributes: dict[str, Any] = field(default_factory=dict)
    traceback: str = ""
    filename: str = ""
    lineno: int = 0


@dataclass(frozen=True)
class Result:
    """What came of a snippet; see the top of this file."""

    pid: int
    answer: Any
    error: Caught | None
    warnings: tuple[Caught, ...]
    trace: tuple[Event, ...]
    nvml: tuple[str, ...]
    stdout: str
    stderr: str

    @property
    def value(self) -> Any:
        if self.error is not None:
            raise AssertionError(f"the snippet raised {self.error.name}\n{self.error.traceback}")
        return self.answer

    def events(self, name: str) -> list[int]:
        return [e.value for e in self.trace if e.pid == self.pid and e.event == name and not e.before]

    @property
    def awake(self) -> bool:
        return bool(self.events("init") or self.events("init-failed"))


@dataclass(frozen=True)
class Completed:
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str
    trace: tuple[Event, ...]


def missing() -> str | None:
    """Say why there can be no pretend machine here, or None."""
    if not sys.platform.startswith("linux"):
        return "the pretend GPUs are for Linux"
    if compiler() is None:
        return "no C compiler (gcc or cc) to build the pretend driver with"
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return "torch is not installed"
    version = Path(spec.origin).with_name("version.py")
    # Read, not imported: importing torch takes seconds, and the tests' own process does not need it.
    if not re.search(r"^cuda\b[^=]*= *'\d", version.read_text(), re.MULTILINE):
        return "this build of torch has no CUDA"
    return None


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def build(out: Path) -> None:
    """Compile the libraries into *out*, and lay out a folder for each kind of machine."""
    cc = compiler()
    assert cc is not None
    for source, name, soname, *options in (
        ("libcudart.c", "libpretend_cudart.so", "libpretend_cudart.so"),
        ("libcuda.c", "libcuda.so.1", "libcuda.so.1"),
        ("libcuda.c", "libcuda-without-count.so.1", "libcuda.so.1", "-DWITHOUT_DEVICE_COUNT"),
        ("libnvidia_ml.c", "libnvidia-ml.so.1", "libnvidia-ml.so.1"),
    ):
        command = [cc, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", *options]
        command += [f"-Wl,-soname,{soname}", "-o", str(out / name), str(HERE / "driver" / source), "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RigError(f"{source} does not compile:\n{done.stderr}")
    for machine, present in MACHINES.items():
        folder = out / machine
        folder.mkdir()
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            found = [p for p in present if p.startswith(name.removesuffix(".so.1"))]
            if found:
                (folder / name).symlink_to(out / found[0])
            else:
                # A file that is no library: the search ends here, and does not go on to a real one of this machine.
                (folder / name).write_text("no library\n")


def on_host(folder: Path, *, bus: int, nodes: Sequence[int] = (), loaded: bool = True) -> str:
    """Lay out what a host shows of its devices: so many on the bus, and these nodes in /dev.

    It returns the beginning of a snippet: safedev looks there, and not at this machine.
    """
    for number in range(bus):
        device = folder / "bus" / f"0000:{number + 1:02x}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    for name in ("bus", "dev", "driver"):
        (folder / name).mkdir(exist_ok=True)
    for node in nodes:
        (folder / "dev" / f"nvidia{node}").touch()
    if loaded:
        (folder / "driver" / "version").touch()
    places = {"BUS": "bus", "NODES": "dev", "DRIVER": "driver", "MOUNTS": "mounts"}
    lines = [f"_isolation.{name} = pathlib.Path({str(folder / place)!r})\n" for name, place in places.items()]
    return "import pathlib\nfrom safedev import _isolation\n_isolation.MARKS = ()\n" + "".join(lines)


def source_of(code: str | Callable[..., Any]) -> tuple[str, str, str | None]:
    """The text of a snippet, the file it claims to come from, and the function to call in it."""
    if isinstance(code, str):
        return textwrap.dedent(code), "<snippet>", None
    lines, first = inspect.getsourcelines(code)
    text = textwrap.dedent("".join(lines))
    definition = ast.parse(text).body[0]
    assert isinstance(definition, ast.FunctionDef), "a snippet is text, or a function with def"
    definition.decorator_list.clear()
    return "\n" * (first - 1) + text, inspect.getsourcefile(code) or "<snippet>", definition.name


class _Server:
    """A process that forks a child for each job; with ``--torch`` it has imported torch."""

    def __init__(self, environ: dict[str, str], python: str, kind: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [python, str(SERVER), kind],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if self._answer(120) != {"ready": True}:
            raise RigError("the server does not start")

    def _answer(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise RigError(f"the server does not answer in {seconds:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RigError(f"the server died with status {self._process.wait(10)}")
        return json.loads(line)

    def run(self, job: Path, seconds: float) -> Any:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"job": str(job), "seconds": seconds}).encode() + b"\n")
            self._process.stdin.flush()
            return self._answer(seconds + 30)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            kill_group(self._process.pid)
            self._process.wait(5)
        if self._process.stdout is not None:
            self._process.stdout.close()


def kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class Rig:
    """Pretend machines, compiled into *folder*; see the top of this file."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self._folder = folder
        self._python = python
        self._servers: dict[tuple[str, bool], _Server] = {}
        build(folder)

    def call(
        self,
        code: str | Callable[..., Any],
        *args: Any,
        gpus: int = 0,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        before: str | Sequence[str] = (),
        machine: str = "full",
        torch: bool = True,
        fresh: bool = False,
        timeout: float = 60,
    ) -> Result:
        """Run a snippet on a machine with *gpus* GPUs."""
        text, filename, function = source_of(code)
        steps = [before] if isinstance(before, str) else list(before)
        with tempfile.TemporaryDirectory(prefix="rig-", ignore_cleanup_errors=True) as name:
            job = Path(name)
            environ = self.environ(gpus=gpus, env=env, settings=settings, machine=machine, folder=job)
            order = {
                "environ": environ,
                "before": [textwrap.dedent(step) for step in steps],
                "text": text,
                "filename": filename,
                "function": function,
                "args": args,
            }
            (job / "order.json").write_text(json.dumps(order))
            if fresh:
                command = [self._python, str(SERVER), str(job)]
                self._finish(command, environ, job, timeout, None)
            else:
                key = machine, torch
                if key not in self._servers:
                    start = self.environ(machine=machine, folder=self._folder)
                    self._servers[key] = _Server(start, self._python, "--torch" if torch else "--bare")
                ended = self._servers[key].run(job, timeout)
                if ended["timed_out"]:
                    ending = read(job / "trace")[-500:] + read(job / "stderr")[-2000:]
                    raise RigTimeoutError(f"no answer in {timeout:g} s\n{ending}")
            return self._result(job)

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        gpus: int = 0,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        machine: str = "full",
        stdin: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float = 120,
    ) -> Completed:
        """Run a command on a machine with *gpus* GPUs."""
        with tempfile.TemporaryDirectory(prefix="rig-", ignore_cleanup_errors=True) as name:
            job = Path(name)
            environ = self.environ(gpus=gpus, env=env, settings=settings, machine=machine, folder=job)
            status = self._finish([os.fspath(part) for part in command], environ, job, timeout, stdin, cwd)
            return Completed(status, read(job / "stdout"), read(job / "stderr"), events(read(job / "trace"), 0))

    def environ(
        self,
        *,
        gpus: int = 0,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        machine: str = "full",
        folder: Path | None = None,
    ) -> dict[str, str]:
        """The whole environment of a process on such a machine; with *folder*, the traces go there."""
        kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
        if "PYTHONPATH" in kept:  # the processes run elsewhere
            kept["PYTHONPATH"] = os.pathsep.join(
                str(Path(p).absolute()) for p in kept["PYTHONPATH"].split(os.pathsep) if p
            )
        kept["LD_PRELOAD"] = str(self._folder / "libpretend_cudart.so")
        kept["LD_LIBRARY_PATH"] = str(self._folder / machine)
        kept["PRETEND_GPUS"] = str(gpus)
        if folder is not None:
            kept["PRETEND_GPU_TRACE"] = str(folder / "trace")
            kept["PRETEND_GPU_TRACE_NVML"] = str(folder / "trace-nvml")
        for name, value in {**(settings or {}), **(env or {})}.items():
            kept[name] = str(value)
        return kept

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def _finish(
        self, command: list[str], environ: dict[str, str], job: Path, seconds: float, stdin: str | None, cwd: Any = None
    ) -> int:
        # Output goes to files: a grandchild that holds a pipe open could keep us waiting.
        (job / "stdin").write_text(stdin or "")
        with (job / "stdin").open() as i, (job / "stdout").open("w") as o, (job / "stderr").open("w") as e:
            process = subprocess.Popen(
                command, env=environ, stdin=i, stdout=o, stderr=e, cwd=cwd or job, start_new_session=True
            )
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                kill_group(process.pid)
                process.wait(10)
                raise RigTimeoutError(
                    f"{command} did not end in {seconds:g} s\n{read(job / 'stderr')[-2000:]}"
                ) from None
            finally:
                kill_group(process.pid)

    def _result(self, job: Path) -> Result:
        try:
            made = json.loads((job / "result.json").read_text())
        except FileNotFoundError:
            raise AssertionError(f"the snippet's process died\n{read(job / 'stdout')}{read(job / 'stderr')}") from None
        error = made["error"] and caught(made["error"])
        nvml = tuple(line.split()[2] for line in read(job / "trace-nvml").splitlines())
        return Result(
            pid=made["pid"],
            answer=made["answer"],
            error=error,
            warnings=tuple(caught(warning) for warning in made["warnings"]),
            trace=events(read(job / "trace"), made["before"]),
            nvml=nvml,
            stdout=read(job / "stdout"),
            stderr=read(job / "stderr"),
        )


def read(path: Path) -> str:
    return path.read_text(errors="backslashreplace") if path.exists() else ""


def caught(parts: dict[str, Any]) -> Caught:
    return Caught(**{**parts, "names": tuple(parts["names"])})


def events(text: str, before: int) -> tuple[Event, ...]:
    """The trace; its first *before* lines were there when the snippet began."""
    found = []
    for number, line in enumerate(text.splitlines()):
        pid, event, value = line.split()
        found.append(Event(int(pid), event, int(value), number < before))
    return tuple(found)


def main(argv: Sequence[str]) -> int:
    if len(argv) < 2 or not argv[0].isdecimal():
        print("usage: rig.py NUMBER_OF_GPUS COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="rig-") as name:
        rig = Rig(Path(name))
        ours = rig.environ(gpus=int(argv[0]))
        environ = {**os.environ, **{name: ours[name] for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PRETEND_GPUS")}}
        return subprocess.run(list(argv[1:]), env=environ, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
