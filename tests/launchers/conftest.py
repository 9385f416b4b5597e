"""The benches that launches run on: this machine, or a Slurm cluster of two nodes, with pretend GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rig
import slurm_cluster
from launch import REQUIRED, Bench, MakeBench, lacking

CLUSTER = Path(slurm_cluster.__file__)
START_LIMIT = 90.0  # seconds

PretendGpus = Callable[[int], dict[str, str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here: each test starts a real launcher."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.launcher)


@pytest.fixture(scope="session")
def need() -> Callable[..., None]:
    """Skip a test whose programs or modules are missing; fail where launchers are required."""

    def check(*programs: str) -> None:
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            lacking(f"not installed: {', '.join(missing)}")

    return check


@pytest.fixture(scope="session")
def pretend_gpus(tmp_path_factory: pytest.TempPathFactory) -> PretendGpus:
    """Return what tells the variables under which a process sees so many pretend GPUs."""
    reason = rig.missing()
    if reason is not None:
        lacking(reason)
    built = rig.Rig(tmp_path_factory.mktemp("pretend_gpu"))

    def variables(count: int) -> dict[str, str]:
        environ = built.environ(gpus=count)
        return {name: environ[name] for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PRETEND_GPUS")}

    return variables


@pytest.fixture
def bench(tmp_path: Path, pretend_gpus: PretendGpus) -> MakeBench:
    """Return what makes a bench on this machine, with so many pretend GPUs."""
    return lambda count: Bench(folder=tmp_path, gpus=pretend_gpus(count), count=count)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, need: Callable[..., None]) -> Iterator[tuple[Path, int]]:
    """Start a Slurm cluster; return its folder, and the process to join by `nsenter`."""
    if not REQUIRED:
        pytest.skip("starts Slurm's daemons: only under SAFEDEV_REQUIRE_LAUNCHERS=1")
    if sys.platform != "linux" or os.geteuid() != 0:
        lacking("a cluster in namespaces needs root on Linux")
    need("unshare", "nsenter", "ip", "munged", "slurmctld", "slurmd", "srun")
    folder = tmp_path_factory.mktemp("slurm")
    spaces = ["--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--mount"]
    with subprocess.Popen(
        ["unshare", *spaces, sys.executable, str(CLUSTER), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as outer:
        assert outer.stdout
        limit = threading.Timer(START_LIMIT, outer.kill)
        limit.start()
        answer = outer.stdout.readline()
        limit.cancel()
        if answer != "ready\n":
            outer.kill()
            pytest.fail(f"no Slurm: {answer}{(folder / 'daemons.log').read_text()[-4000:]}")
        first = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        yield folder, int(first)
        outer.kill()


@pytest.fixture
def slurm(tmp_path: Path, pretend_gpus: PretendGpus, cluster: tuple[Path, int]) -> MakeBench:
    """Return what makes a bench on the cluster's head node, with so many pretend GPUs a node."""
    folder, process = cluster
    joining = ("nsenter", f"--target={process}", "--pid", "--mount", "--net", "--uts", "--")
    extra = {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "MASTER_ADDR": slurm_cluster.NODES["node0"],
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    return lambda count: Bench(folder=tmp_path, gpus=pretend_gpus(count), count=count, joining=joining, extra=extra)
