"""What is distributed: the metadata, and the files of the wheel and the sdist."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

DIST = os.environ.get("SAFEDEV_DIST")  # where `nox -s wheel` built them
ROOT = Path(__file__).parents[2]

needs_dist = pytest.mark.skipif(DIST is None, reason="SAFEDEV_DIST names no folder with a wheel: `nox -s wheel` does")


def distribution() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution("safedev")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("safedev is not installed, only on the path")


def wheel_files() -> dict[str, int]:
    (wheel,) = Path(DIST or "").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.file_size for entry in archive.infolist()}


def test_the_package_needs_torch_and_typing_extensions_and_nothing_else() -> None:
    """
    Whoever installs safedev gets two distributions with it; NVML is an extra.
    """
    required = {line for line in distribution().requires or [] if "extra ==" not in line}

    assert {"torch>=2.4", "typing-extensions>=4.10"} == required


def test_the_package_has_four_extras() -> None:
    """
    The extras are those of the documentation.
    """
    assert ["dev", "docs", "nvml", "test"] == sorted(distribution().metadata.get_all("Provides-Extra") or [])


@pytest.mark.parametrize(
    ("group", "value"),
    [
        pytest.param("console_scripts", "safedev._audit:main", id="the-command"),
        pytest.param("pytest11", "safedev.testing._plugin", id="the-pytest-plug-in"),
    ],
)
def test_the_package_brings_its_entry_points(group: str, value: str) -> None:
    """
    The command and the fixture are there for whoever installs the package.
    """
    entry_points = {entry.value for entry in distribution().entry_points if entry.group == group}

    assert {value} == entry_points


def test_the_changelog_knows_the_version() -> None:
    """
    The version that is installed is the newest that the changelog names, unless it is still to be released.
    """
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert headings[0] in {"Unreleased", distribution().version}


def test_the_readme_has_two_shell_commands() -> None:
    """
    One installs the package and does its main job, one runs its tests; CI runs both as they stand.
    """
    blocks = re.findall(
        r"^```(?:sh|bash|shell|console)\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )

    assert ["pip install . && python -m safedev\n", 'pip install ".[test]" && pytest\n'] == blocks


@needs_dist
def test_the_tests_run_against_the_wheel() -> None:
    """
    What is tested here is what was installed, and not the source tree.
    """
    import safedev

    assert ROOT / "src" not in Path(safedev.__file__ or "").resolve().parents


@needs_dist
def test_the_wheel_holds_the_package_and_nothing_else() -> None:
    """
    No tests, no documentation, no second top-level name.
    """
    tops = {name.split("/")[0] for name in wheel_files()}

    assert {"safedev", f"safedev-{distribution().version}.dist-info"} == tops


@needs_dist
def test_the_wheel_holds_every_file_of_the_source() -> None:
    """
    No module of `src` was left out, and the marker that says the package is typed is there.
    """
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }

    assert source == {name for name in wheel_files() if name.startswith("safedev/")}
    assert "safedev/py.typed" in source


@needs_dist
def test_the_wheel_brings_its_licence() -> None:
    """
    The text of the licence travels with the code.
    """
    assert f"safedev-{distribution().version}.dist-info/licenses/LICENSE" in wheel_files()


@needs_dist
@pytest.mark.parametrize(
    "name",
    [
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "noxfile.py",
        "src/safedev/py.typed",
        "tests/conftest.py",
    ],
)
def test_the_sdist_can_be_built_and_tested(name: str) -> None:
    """
    Whoever has the sdist alone can build the wheel and run the tests.
    """
    (sdist,) = Path(DIST or "").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.split("/", 1)[1] for member in archive.getnames() if "/" in member}

    assert name in names


def test_the_package_can_be_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """
    ``python -m safedev`` is the command.
    """
    monkeypatch.setattr(sys, "argv", ["safedev", "--version"])

    with pytest.raises(SystemExit) as ended:
        importlib.import_module("safedev.__main__")

    assert 0 == ended.value.code
    assert "safedev" in capsys.readouterr().out
