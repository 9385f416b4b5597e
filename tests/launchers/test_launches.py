"""Real launchers: every worker gets a device of its own, and none gets another's without a word.

Each launch starts four workers, which take their device, meet, and add up their ranks; and the same launch on fewer
devices than workers, where each of the four must fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from launch import Bench, Launched, MakeBench, free_port

WORKERS = 4
RANKS = [0, 1, 2, 3]
Launch = Callable[[Callable[[Bench], Launched], str, int, list[str]], Launched]


def torchrun(bench: Bench, *options: str) -> list[str]:
    """Return torchrun's command up to its worker; its logs go into the test's folder."""
    return [sys.executable, "-m", "torch.distributed.run", f"--log-dir={bench.folder}/log", *options, "--no-python"]


def torchrun_one_node(bench: Bench) -> Launched:
    return bench.run([*torchrun(bench, "--nproc-per-node=4"), *bench.worker(WORKERS)])


def torchrun_virtual(bench: Bench) -> Launched:
    return bench.run([*torchrun(bench, "--nproc-per-node=4", "--virtual-local-rank"), *bench.worker(WORKERS)])


def torchrun_two_agents(bench: Bench) -> Launched:
    meeting = ["--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    agents = [[*torchrun(bench, *meeting, f"--node-rank={node}"), *bench.worker(WORKERS)] for node in (0, 1)]
    return bench.run(*agents)


def open_mpi(bench: Bench) -> Launched:
    options = ["--allow-run-as-root", "--oversubscribe", "-np", "4"]
    return bench.run(["mpirun.openmpi", *options, *bench.worker(WORKERS)])


def mpich(bench: Bench) -> Launched:
    return bench.run(["mpiexec.hydra", "-n", "4", *bench.worker(WORKERS)])


def srun(bench: Bench, *options: str) -> Launched:
    tasks = ["--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--time=3"]
    return bench.run(["srun", *tasks, *options, *bench.worker(WORKERS)])


def srun_node(bench: Bench) -> Launched:
    return srun(bench, f"--gpus-per-node={bench.count}")


def srun_task(bench: Bench) -> Launched:
    return srun(bench, "--gpus-per-task=1")


def srun_single(bench: Bench) -> Launched:
    return srun(bench, f"--gpus-per-node={bench.count}", "--gpu-bind=single:1")


def srun_unbound(bench: Bench) -> Launched:
    return srun(bench, f"--gpus-per-node={bench.count}", "--gpu-bind=none")


def srun_torchrun(bench: Bench) -> Launched:
    tasks = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", f"--gpus-per-node={bench.count}", "--time=3"]
    meeting = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29400", "--rdzv-id=1"]
    return bench.run(["srun", *tasks, *torchrun(bench, *meeting), *bench.worker(WORKERS)])


def salloc_open_mpi(bench: Bench) -> Launched:
    tasks = ["--nodes=2", "--ntasks=4", "--ntasks-per-node=2", f"--gpus-per-node={bench.count}", "--time=3"]
    return bench.run(["salloc", *tasks, "mpirun.openmpi", "--allow-run-as-root", *bench.worker(WORKERS)])


LAUNCHES = [
    pytest.param(torchrun_one_node, "bench", 4, [], id="torchrun-one-node"),
    pytest.param(torchrun_two_agents, "bench", 2, [], id="torchrun-two-agents"),
    pytest.param(torchrun_virtual, "bench", 4, [], id="torchrun-virtual-local-rank"),
    pytest.param(open_mpi, "bench", 4, ["mpirun.openmpi"], id="open-mpi"),
    pytest.param(mpich, "bench", 4, ["mpiexec.hydra"], id="mpich"),
    pytest.param(srun_node, "slurm", 2, [], id="srun-gpus-per-node"),
    pytest.param(srun_task, "slurm", 2, [], id="srun-gpus-per-task"),
    pytest.param(srun_single, "slurm", 2, [], id="srun-bind-single"),
    pytest.param(srun_unbound, "slurm", 2, [], id="srun-bind-none"),
    pytest.param(srun_torchrun, "slurm", 2, [], id="torchrun-in-srun"),
    pytest.param(salloc_open_mpi, "slurm", 2, ["mpirun.openmpi"], id="open-mpi-in-salloc"),
]


@pytest.fixture
def launched(request: pytest.FixtureRequest, need: Callable[..., None]) -> Launch:
    """Return what starts a launch on so many GPUs a node, where it belongs and its programs are there."""

    def start(launch: Callable[[Bench], Launched], where: str, count: int, programs: list[str]) -> Launched:
        need(*programs)
        make: MakeBench = request.getfixturevalue(where)
        return launch(make(count))

    return start


@pytest.mark.parametrize(("launch", "where", "workers", "programs"), LAUNCHES)
def test_every_worker_gets_a_gpu_of_its_own(
    launch: Callable[[Bench], Launched], where: str, workers: int, programs: list[str], launched: Launch
) -> None:
    """
    On as many GPUs as workers a node, no two workers of a node land on one GPU, each one's device is current, nobody is
    warned, and the job adds up its ranks.
    """
    done = launched(launch, where, workers, programs)
    landed = set(zip(done.column("node_rank"), done.column("gpu"), strict=True))

    assert 0 == done.status, done.output
    assert RANKS == done.column("rank")
    assert WORKERS == len(landed), done.reports
    assert done.column("device") == [f"cuda:{ordinal}" for ordinal in done.column("current")]
    assert [[]] * WORKERS == done.column("warnings")
    assert [sum(RANKS)] * WORKERS == done.column("sum")


# Launchers that give each worker one GPU by its number, and hide the others from it, whether the machine has it or not.
ONE_EACH = ("srun-gpus-per-task", "torchrun-virtual-local-rank")


@pytest.mark.parametrize(
    ("launch", "where", "workers", "programs"), [row for row in LAUNCHES if row.id not in ONE_EACH]
)
def test_every_worker_is_refused_where_gpus_are_too_few(
    launch: Callable[[Bench], Launched], where: str, workers: int, programs: list[str], launched: Launch
) -> None:
    """
    With one GPU less than workers on a node, every worker fails with `oversubscribed`, also those whose own number is
    among the GPUs, and the launch ends.
    """
    done = launched(launch, where, workers - 1, programs)

    assert 0 != done.status
    assert RANKS == done.column("rank"), done.output
    assert ["oversubscribed"] * WORKERS == [(codes or ["none"])[0] for codes in done.column("codes")], done.reports


@pytest.mark.parametrize(
    ("launch", "where", "count", "devices"),
    [
        pytest.param(srun_task, "slurm", 1, ["cuda:0", "cpu", "cuda:0", "cpu"], id="srun-gpus-per-task"),
        pytest.param(torchrun_virtual, "bench", 3, ["cuda:0"] * 3 + ["cpu"], id="torchrun-virtual-local-rank"),
    ],
)
def test_a_worker_whose_own_gpu_is_missing_takes_no_other(
    launch: Callable[[Bench], Launched], where: str, count: int, devices: list[str], launched: Launch
) -> None:
    """
    Where each worker was given a GPU by its number, the worker whose GPU the machine has not runs on the CPU and says
    so; no two workers meet on one GPU. (Slurm itself starts no task for which it knows no GPU.)
    """
    done = launched(launch, where, count, [])
    warned = ["mask-unknown-device" in "".join(warnings) for warnings in done.column("warnings")]
    landed = [(node, gpu) for node, gpu in zip(done.column("node_rank"), done.column("gpu"), strict=True) if gpu]

    assert devices == done.column("device"), done.output
    assert [device == "cpu" for device in devices] == warned
    assert len(set(landed)) == len(landed)
