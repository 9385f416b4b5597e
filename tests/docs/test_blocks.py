"""Every block of the documentation is run, and prints what the page says.

A comment above a block (a line that begins with `%`, which Sphinx leaves out) tells how it is run:

    % machine: 8; CUDA_VISIBLE_DEVICES=4,5; torchrun local_rank=1 local_world_size=2; driver=too-old
                            from here on, until the next such line: the pretended machine, and the environment
    % file: train.py        the block is a file, which a shell block runs
    % run                   the shell block is run
    % not run: REASON       the block is not run
    % shown: REASON         the text is not what the block before it prints

What a Python or shell block prints, warns and raises is the text block that comes next. A line `...` there stands for
any number of lines.
To write into the pages what their blocks print now: `python tests/docs/test_blocks.py docs/index.md ...`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from safedev import _isolation, _nvml, launchers
from safedev._snapshot import PhysicalDevice
from safedev.testing import fake_cuda, launched_by

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@dataclass
class Block:
    """One fenced block, with the comments above it."""

    place: str
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    fence = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence:
            if line.strip() == fence:
                fence = ""
            else:
                found[-1].text += line + "\n"
        elif opening := re.match(r"(`{3,}|:{3,})(.*)", line):
            fence = opening[1]
            place = f"{page.relative_to(ROOT)}:{number}"
            found.append(Block(place=place, language=opening[2].strip(), text="", marks=marks))
            marks = {}
        elif comment := re.match(r"%\s*(machine|file|run|not run|shown)(?::\s*(.*))?$", line):
            marks[comment[1]] = comment[2] or ""
        elif line.strip():
            marks = {}
    return found


@contextmanager
def machine(description: str) -> Iterator[None]:
    """Pretend the machine that a comment describes."""
    count, *items = [item.strip() for item in description.split(";")]
    environ: dict[str, str] = {}
    options: dict[str, Any] = {}
    special = ""
    for item in items:
        name, _, value = item.partition("=")
        if item.split()[0] in {launcher.name for launcher in launchers.LAUNCHERS}:
            launcher, *given = item.split()
            words = dict(one.split("=") for one in given)
            environ |= launched_by(launcher, **{k: int(v) if v.isdecimal() else v for k, v in words.items()})
        elif name.isupper():
            environ[name] = value
        elif name == "names":
            options["names"] = [model.strip() for model in value.split("|")]
        elif name == "faults":
            options["faults"] = {int(one.partition(":")[0]): one.partition(":")[2] for one in value.split(",")}
        elif name in {"driver", "nvml"}:
            options[name] = value
        else:
            special = item
    with ExitStack() as until_the_end:
        until_the_end.callback(_agree_with_libraries)
        until_the_end.enter_context(mock.patch.object(launchers, "LAUNCHERS", launchers.LAUNCHERS))
        until_the_end.enter_context(fake_cuda(int(count), environ=environ, **options))
        if special:
            SPECIAL[special](until_the_end)
        yield


def _agree_with_libraries() -> None:
    """Undo `os.putenv`, which passes `os.environ` over."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        if name not in os.environ:
            os.unsetenv(name)


def _no_torch(until_the_end: ExitStack) -> None:
    folder = until_the_end.enter_context(tempfile.TemporaryDirectory())
    words = "libcudart.so.13: cannot open shared object file: No such file or directory"
    (Path(folder) / "torch.py").write_text(f"raise ImportError({words!r})\n", encoding="utf-8")
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    until_the_end.enter_context(mock.patch.dict(os.environ, PYTHONPATH=path))


def _cpu_build(until_the_end: ExitStack) -> None:
    until_the_end.enter_context(mock.patch.object(torch.version, "cuda", None))
    until_the_end.enter_context(mock.patch.object(torch.cuda, "_is_compiled", return_value=False))


def _rocm(until_the_end: ExitStack) -> None:
    until_the_end.enter_context(mock.patch.object(torch.version, "cuda", None))
    until_the_end.enter_context(mock.patch.object(torch.version, "hip", "7.0"))
    until_the_end.enter_context(mock.patch.object(torch.cuda, "device_count", return_value=0))
    for name in ("count", "inventory", "cuda_version"):
        until_the_end.enter_context(mock.patch.object(_nvml, name, return_value=None))


def _mig(until_the_end: ExitStack, release: str = "535.261.03") -> None:
    instances = ("MIG-7c9d0a1e-5b7e-5c6f-9d5e-1f2a3b4c5d6e", "MIG-0b6f3c52-9d1a-5e47-8c30-6a7b8c9d0e1f")
    divided = PhysicalDevice(
        index=0, uuid="GPU-11111111-fa4e", name="NVIDIA A100", mig=True, instances=instances, gpu_instances=2
    )
    until_the_end.enter_context(mock.patch.object(_nvml, "inventory", return_value=(divided,)))
    until_the_end.enter_context(mock.patch.object(_nvml, "vitals", return_value=(release, None, {})))
    until_the_end.enter_context(mock.patch.object(torch.cuda, "device_count", return_value=1))


def _mig_since_570(until_the_end: ExitStack) -> None:
    _mig(until_the_end, "580.65.06")


def _rocm_counted(until_the_end: ExitStack) -> None:
    _rocm(until_the_end)
    until_the_end.enter_context(mock.patch.object(torch.cuda, "device_count", return_value=2))


def _no_nodes(until_the_end: ExitStack) -> None:
    seen = _isolation.Isolation(on_bus=4, loaded=True, nodes=())
    until_the_end.enter_context(mock.patch.object(_isolation, "read", return_value=seen))


def _some_nodes(until_the_end: ExitStack) -> None:
    seen = _isolation.Isolation(on_bus=8, loaded=True, nodes=(4, 5))
    until_the_end.enter_context(mock.patch.object(_isolation, "read", return_value=seen))


SPECIAL = {
    "no-nodes": _no_nodes,
    "some-nodes": _some_nodes,
    "cpu-build": _cpu_build,
    "rocm": _rocm,
    "rocm-counted": _rocm_counted,
    "mig": _mig,
    "mig-since-570": _mig_since_570,
    "no-torch": _no_torch,
}


def run_python(block: Block, names: dict[str, Any]) -> str:
    """Run a Python block; return what it prints, warns and raises."""
    out = io.StringIO()

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        out.write(f"{category.__name__}: {message}\n")

    with redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show  # type: ignore[assignment]  # the documented way to take them
        try:
            exec(compile(block.text, block.place, "exec"), names)
        except Exception as error:  # what it raises is part of what is shown
            out.write("".join(traceback.format_exception_only(error)))
    return out.getvalue()


# On a busy machine gloo's own threads may abort a worker that has done its work and is leaving.
GLOO_ABORTED = "terminate called without an active exception"


def run_shell(block: Block, folder: Path) -> str:
    """Run a shell block, as on a machine without a GPU; return what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    quiet = "ignore:Failed to initialize NumPy:UserWarning"  # torch runs without it, and says so at import
    always = {"PATH": path, "PYTHONWARNINGS": quiet, "OMP_NUM_THREADS": "1"}
    environ = {"CUDA_VISIBLE_DEVICES": "-1", **os.environ, **always}
    for _ in range(3):
        done = subprocess.run(
            ["bash", "-euc", block.text], cwd=folder, env=environ, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if GLOO_ABORTED not in done.stdout:
            break
    return done.stdout


def agrees(expected: str, printed: str) -> bool:
    """Whether *printed* is the text *expected*, in which a line `...` stands for any lines."""
    want, have = expected.rstrip().splitlines(), printed.rstrip().splitlines()
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line.rstrip()) + r"\n" for line in want)
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in have)) is not None


def outputs(page: Path, folder: Path) -> Iterator[tuple[Block, str, Block | None]]:
    """Run the blocks of a page; yield each, what it printed, and the block that shows it."""
    found = blocks(page)
    names: dict[str, Any] = {"__name__": "__main__"}
    with ExitStack() as world:
        world.enter_context(machine("2"))
        for block, follower in zip(found, [*found[1:], None], strict=False):
            if "machine" in block.marks:
                world.close()
                world.enter_context(machine(block.marks["machine"]))
            if "not run" in block.marks:
                continue
            if "file" in block.marks:
                (folder / block.marks["file"]).write_text(block.text, encoding="utf-8")
                continue
            if block.language == "python":
                printed = run_python(block, names)
            elif block.language == "sh" and "run" in block.marks:
                printed = run_shell(block, folder)
            else:
                continue
            shows = follower is not None and follower.language == "text" and "shown" not in follower.marks
            yield block, printed, follower if shows else None


def disagreements(page: Path, folder: Path) -> list[str]:
    """Run the blocks of a page; return where it shows what is not printed."""
    wrong = []
    for block, printed, shown in outputs(page, folder):
        expected = shown.text if shown is not None else ""
        if not agrees(expected, printed):
            wrong.append(f"{block.place} prints\n{printed}\nand the page says\n{expected}")
    return wrong


def rewrite(page: Path, folder: Path) -> None:
    """Write into a page what its blocks print now, but where it leaves lines out. Read the difference."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for _, printed, shown in reversed(list(outputs(page, folder))):
        if shown is not None and not agrees(shown.text, printed) and "..." not in shown.text.splitlines():
            first = int(shown.place.rpartition(":")[2])
            lines[first : first + len(shown.text.splitlines())] = map(str.rstrip, printed.rstrip().splitlines())
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def unaccounted(page: Path) -> list[str]:
    """Return the places of blocks that nothing runs or checks, and that do not say why."""
    lost, before = [], None
    for block in blocks(page):
        runs = block.language == "python" or "run" in block.marks
        if block.language == "sh" and not runs and not block.marks.get("not run"):
            lost.append(f"{block.place}: a shell block says `% run`, or `% not run:` with the reason")
        if block.language == "text" and "shown" not in block.marks and not before:
            lost.append(f"{block.place}: the text is no output of the block before it, and has no `% shown:`")
        if "not run" in block.marks and not block.marks["not run"]:
            lost.append(f"{block.place}: not run, without a reason")
        before = runs and not block.marks.keys() & {"file"}
    return lost


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_a_page_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    """
    Each block of the page runs, and its output is the one that the page shows.
    """
    assert "" == "\n".join(disagreements(page, tmp_path))


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_no_block_escapes(page: Path) -> None:
    """
    A block that is not run says why.
    """
    assert [] == unaccounted(page)


def test_the_readme_runs(tmp_path: Path) -> None:
    """
    The README's Python runs as it stands, on two devices; its shell blocks have a session of their own.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    with machine("2"):
        printed = [run_python(block, names) for block in blocks(ROOT / "README.md") if block.language == "python"]

    assert [] == [text for text in printed if "Error" in text or "Warning" in text]


def test_the_readme_shows_the_message_of_the_first_page() -> None:
    """
    The README's one message is that of `docs/index.md`, which is compared with what is printed.
    """
    shown = [block.text for block in blocks(ROOT / "README.md") if block.language == "text"]

    assert 1 == len(shown)
    assert shown[0] in [block.text for block in blocks(ROOT / "docs" / "index.md")]


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    """
    The checks above can fail: a page that says what its block does not print is caught.
    """
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    with mock.patch(f"{__name__}.ROOT", tmp_path):
        wrong = disagreements(page, tmp_path)

    assert 1 == len(wrong)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            rewrite(Path(name).resolve(), Path(scratch))
