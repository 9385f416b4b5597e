"""Everything that is checked, one session each; `.ci/run` calls these and nothing else.

Torch is large. So there are two virtual environments for all sessions that need it, kept between them: `.nox/cpu` for
what any build of torch can show, and `.nox/cuda` for the build that a plain `pip install` brings, with CUDA on Linux.
`.nox/oldest`, which no other session uses, has the oldest that is supported.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "pure", "coverage", "wheel", "docs"]

ROOT = Path(__file__).parent
VENVS = ROOT / ".nox"
DIST = ROOT / "dist"
# Any release will do for the checks that need no CUDA build; one is named, so that a CPU build of it can be provided.
CPU_TORCH = "torch==2.13.0"
OLDEST_TORCH = "torch==2.4.1"  # the oldest that is supported, for Python 3.10 to 3.12
PURE_NEEDS = ["hypothesis>=6.100", "pytest>=8.2", "pytest-timeout>=2.3", "typing-extensions>=4.10"]
MUTMUT = ["mutmut==3.8.*", "pytest<9.2"]  # another version makes other changes; it asks pytest for what 9.2 took away
FRAMEWORKS = ["accelerate", "lightning", "ray[train]"]
# What any build of torch can show: of tests/contract, the fake's half.
ANY_TORCH = ["tests/pure", "tests/torch", "tests/contract"]


class Venv:
    """A virtual environment under `.nox` that several sessions share."""

    def __init__(self, session: nox.Session, name: str, *, python: str = sys.executable, new: bool = False) -> None:
        self.session = session
        self.bin = VENVS / name / ("Scripts" if os.name == "nt" else "bin")
        self.is_new = new or not self.bin.exists()
        if self.is_new:
            session.run(python, "-m", "venv", "--clear", str(self.bin.parent), external=True)

    def run(self, *command: str, **env: str) -> None:
        """Run *command* as in the activated environment, without `PYTHONPATH`: what is found is what is installed."""
        path = os.pathsep.join([str(self.bin), os.environ.get("PATH", "")])
        activated = {"PATH": path, "VIRTUAL_ENV": str(self.bin.parent), "PYTHONPATH": None, **env}
        self.session.run(shutil.which(command[0], path=path) or command[0], *command[1:], env=activated, external=True)

    def install(self, *what: str) -> None:
        """Install with pip."""
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)


def cpu_venv(session: nox.Session) -> Venv:
    """Return the environment with the tools and any build of torch; edits of the package show in it at once."""
    venv = Venv(session, "cpu")
    if venv.is_new:
        venv.install(CPU_TORCH)
        venv.install("--editable", ".[nvml,test,dev]")
    return venv


def cuda_venv(session: nox.Session) -> Venv:
    """Return the environment that the README's commands made, with the package as it is now."""
    venv = Venv(session, "cuda")
    venv.install(".[test]")
    venv.install("--force-reinstall", "--no-deps", ".")
    return venv


def pythons() -> dict[str, str]:
    """Return the supported interpreters of this machine: minor version to program, pyenv's included."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, str] = {}
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        candidates = [
            shutil.which(f"python{version}"),
            *(str(p) for p in pyenv.glob(f"{version}.*/bin/python{version}")),
        ]
        for candidate in filter(None, candidates):
            # A pyenv shim is on the path for versions that cannot be started.
            if not subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode:
                found[version] = candidate
                break
    return found


def shell_blocks(page: Path) -> list[str]:
    """Return the text of each shell block of a Markdown page."""
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and the import contracts."""
    venv = cpu_venv(session)
    venv.run("ruff", "check", ".")
    venv.run("ruff", "format", "--check", ".")
    venv.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, of the package and of its use."""
    venv = cpu_venv(session)
    venv.run("mypy")
    venv.run("pyright")


@nox.session
def pure(session: nox.Session) -> None:
    """Run the pure tests without torch, on each Python that this machine has."""
    found = pythons()
    if not found:
        session.error("no supported Python was found")
    for version, python in found.items():
        session.log(f"Python {version}: {python}")
        venv = Venv(session, f"pure-{version}", python=python)
        venv.install(*PURE_NEEDS)
        venv.install("--force-reinstall", "--no-deps", ".")
        venv.run("python", "-m", "pytest", "tests/pure", *session.posargs)
    session.log(f"pure tests ran on Python {', '.join(found)}")


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the pure tests and those of any build of torch; every branch must be taken."""
    venv = cpu_venv(session)
    venv.run("coverage", "erase")
    venv.run("coverage", "run", "-m", "pytest", *ANY_TORCH, *session.posargs)
    for data in Path().glob(".coverage.*"):
        if not data.stat().st_size:  # of a child that was killed as it began to write
            data.unlink()
    venv.run("coverage", "combine", "--quiet")
    venv.run("coverage", "report")


@nox.session
def mutation(session: nox.Session) -> None:
    """Change one thing at a time in the pure modules, or in those named; a test must notice, or a reason be listed."""
    venv = Venv(session, "mutation")
    if venv.is_new:
        venv.install(*MUTMUT, *PURE_NEEDS)
    venv.run("python", "tests/mutation/run.py", *session.posargs)


@nox.session
def oldest(session: nox.Session) -> None:
    """Run the pure tests and those of any build of torch on the oldest that is supported."""
    found = pythons()
    python = next((found[version] for version in ("3.10", "3.11", "3.12") if version in found), None)
    if python is None:
        session.error(f"{OLDEST_TORCH} needs Python 3.10, 3.11 or 3.12")
    venv = Venv(session, "oldest", python=python)
    venv.install(OLDEST_TORCH, ".[test]")
    venv.install("--force-reinstall", "--no-deps", ".")
    # In random programs the fake does not follow older torch to the end: what a refused device does to the next call.
    where = [*ANY_TORCH, "--deselect=tests/contract/test_programs.py"]
    venv.run("python", "-m", "pytest", *where, *session.posargs)


def build(session: nox.Session, source: Path, outdir: Path) -> dict[str, str]:
    """Build the sdist, and the wheel from it; return the SHA-256 of each by its name."""
    last = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    # The time of every file in them: the last commit's, or, without git, a time that is hatchling's own.
    time = os.environ.get("SOURCE_DATE_EPOCH") or last.stdout.strip() or "1580601600"
    cpu_venv(session).run("python", "-m", "build", "--outdir", str(outdir), str(source), SOURCE_DATE_EPOCH=time)
    return {built.name: hashlib.sha256(built.read_bytes()).hexdigest() for built in sorted(outdir.iterdir())}


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the sdist and the wheel, twice and alike, and run the tests against the installed wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    first = build(session, ROOT, DIST)
    (sdist,), (built,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as elsewhere:
        umask = os.umask(0o077)
        try:
            shutil.unpack_archive(sdist, elsewhere)
            second = build(session, Path(elsewhere, sdist.name.removesuffix(".tar.gz")), Path(elsewhere, "dist"))
        finally:
            os.umask(umask)
    if first != second:
        session.error(f"built again, they differ: {first}, {second}")
    session.log("\n".join(f"{digest}  {name}" for name, digest in first.items()))
    venv = Venv(session, "wheel", new=True)
    venv.install(CPU_TORCH)
    venv.install(f"{built}[test]")
    venv.run("python", "-m", "pytest", *ANY_TORCH, *session.posargs, SAFEDEV_DIST=str(DIST))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation, where a warning is an error, and run every block of it."""
    venv = cpu_venv(session)
    venv.install("--editable", ".[docs]")
    venv.run("python", "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html")
    venv.run("python", "-m", "pytest", "tests/docs", *session.posargs)


@nox.session
def readme(session: nox.Session) -> None:
    """Run the README's two commands in a fresh virtual environment, word for word."""
    commands = shell_blocks(ROOT / "README.md")
    venv = Venv(session, "cuda", new=True)
    for command in commands:
        venv.run("bash", "-euc", command, SAFEDEV_REQUIRE_PRETEND_GPU="1")


@nox.session
def pretend_gpu(session: nox.Session) -> None:
    """Run the tests of a CUDA build of torch over pretend GPUs."""
    venv = cuda_venv(session)
    where = ["tests/pretend_gpu", "tests/contract"]
    venv.run("python", "-m", "pytest", *where, *session.posargs, SAFEDEV_REQUIRE_PRETEND_GPU="1")


@nox.session
def launchers(session: nox.Session) -> None:
    """Run the tests that start real launchers: torchrun, MPI, Slurm and the frameworks."""
    venv = cuda_venv(session)
    # The frameworks are to be tested with the torch that is there, not with one of their choice.
    (metadata,) = (VENVS / "cuda").rglob("torch-*.dist-info")
    venv.install(f"torch=={metadata.name.removeprefix('torch-').removesuffix('.dist-info')}", *FRAMEWORKS)
    required = {"SAFEDEV_REQUIRE_PRETEND_GPU": "1", "SAFEDEV_REQUIRE_LAUNCHERS": "1"}
    venv.run("python", "-m", "pytest", "tests/launchers", *session.posargs, **required)
