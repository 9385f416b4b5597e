"""The environments of launched_by are those that the launchers make."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import safedev
from safedev.launchers import LAUNCHERS, detect_launch
from safedev.testing import fake_cuda, launched_by

# Local rank 1 of 2, rank 3 of 4, on the second of two nodes: as it was recorded, or as the launcher documents it.
RECORDED = {
    "torchrun": "LOCAL_RANK=1 RANK=3 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 ROLE_RANK=3 "
    "ROLE_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "
    "TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_USE_AGENT_STORE=True",
    "accelerate": "LOCAL_RANK=1 RANK=3 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 "
    "TORCHELASTIC_RUN_ID=none ACCELERATE_MIXED_PRECISION=no ACCELERATE_DYNAMO_BACKEND=NO",
    "determined": "DET_CHIEF_IP=127.0.0.1 GROUP_RANK=1 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 RANK=3 WORLD_SIZE=4 "
    "USE_TORCH_DISTRIBUTED=True",
    "ray-train": "LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=1 RANK=3 WORLD_SIZE=4 RAY_JOB_ID=01000000 "
    "ACCELERATE_TORCH_DEVICE=cuda:1 CUDA_VISIBLE_DEVICES=0,1",
    "deepspeed": "CROSS_RANK=1 CROSS_SIZE=2 CUDA_VISIBLE_DEVICES=0,1 LOCAL_RANK=1 LOCAL_SIZE=2 MASTER_ADDR=127.0.0.1 "
    "RANK=3 WORLD_SIZE=4",
    "azureml": "LOCAL_RANK=1 NODE_RANK=1 RANK=3 WORLD_SIZE=4",
    "lightning": "LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 NODE_RANK=1 WORLD_SIZE=4",
    "jsrun": "JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_RANK=3 JSM_NAMESPACE_SIZE=4",
    "openmpi": "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 "
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=3",
    "hydra": "MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_RANK=3 PMI_SIZE=4",
    "mvapich": "MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2 MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4",
    "horovod": "HOROVOD_CROSS_RANK=1 HOROVOD_CROSS_SIZE=2 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_RANK=3 "
    "HOROVOD_SIZE=4 HOROVOD_CONTROLLER=gloo",
    "pals": "PALS_LOCAL_RANKID=1 PALS_NODEID=1 PALS_RANKID=3 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2 PMI_RANK=3 PMI_SIZE=4",
    "cray-pmi": "PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2 PMI_RANK=3 PMI_SIZE=4",
    "flux": "FLUX_JOB_NNODES=2 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1 FLUX_TASK_RANK=3 PMI_RANK=3 PMI_SIZE=4",
    "slurm": "SLURM_GTIDS=2,3 SLURM_LOCALID=1 SLURM_NNODES=2 SLURM_NODEID=1 SLURM_NPROCS=4 SLURM_NTASKS=4 "
    "SLURM_NTASKS_PER_NODE=2 SLURM_PROCID=3 SLURM_STEPID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 "
    "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_TASKS_PER_NODE=2(x2) SLURMD_NODENAME=node1",
    "unknown": "LOCAL_RANK=1 RANK=3 WORLD_SIZE=4",
}
OWN = {
    "torchrun": "LOCAL_RANK=0 RANK=3 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=1",
    "flux": "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 FLUX_TASK_LOCAL_ID=1",
    "slurm": "CUDA_VISIBLE_DEVICES=1 GPU_DEVICE_ORDINAL=1 ROCR_VISIBLE_DEVICES=1 ZE_AFFINITY_MASK=1 SLURM_LOCALID=1 "
    "SLURMD_TRES_BIND=gpu:per_task:1 SLURM_GPUS_ON_NODE=2 SLURM_STEP_GPUS=1",
}
NAMES = [pytest.param(row.name, id=row.name) for row in LAUNCHERS]


def pairs(text: str) -> set[tuple[str, ...]]:
    return {tuple(pair.split("=", 1)) for pair in text.split()}


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_is_the_recorded_one(name: str) -> None:
    """
    Each variable that tells a rank has the value that it has in a real launch.
    """
    made = launched_by(name, local_rank=1, local_world_size=2, rank=3)

    assert pairs(RECORDED[name]) <= set(made.items())


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in OWN])
def test_a_device_of_ones_own_is_the_recorded_one(name: str) -> None:
    """
    So it has where the launcher gives each process one device.
    """
    made = launched_by(name, local_rank=1, local_world_size=2, rank=3, devices="per-task")

    assert pairs(OWN[name]) <= set(made.items())


@pytest.mark.parametrize("name", NAMES)
def test_safedev_finds_the_launcher(name: str) -> None:
    """
    Each launcher of the table has its environment, and is found in it.
    """
    launch = detect_launch(launched_by(name, local_rank=2, local_world_size=4, rank=6, world_size=12))

    assert launch is not None
    assert (name, 2) == (launch.launcher, launch.local_rank)


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in OWN])
def test_a_device_of_ones_own_is_the_first(name: str) -> None:
    """
    One line tells what a script does with one device for each task.
    """
    environ = launched_by(name, local_rank=3, local_world_size=4, devices="per-task")
    with fake_cuda(4, environ=environ) as machine:
        device = safedev.set_device()

    assert (torch.device("cuda", 0), (3,)) == (device, machine.visible)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param({}, ("1", "2", "0"), id="first-node-alone"),
        pytest.param({"rank": 5}, ("5", "6", "2"), id="last-node"),
        pytest.param({"world_size": 8}, ("1", "8", "0"), id="first-of-four-nodes"),
        pytest.param({"rank": 3, "world_size": 8}, ("3", "8", "1"), id="second-of-four-nodes"),
    ],
)
def test_what_is_left_out_follows(numbers: dict[str, int], expected: tuple[str, ...]) -> None:
    """
    Rank and world size follow from the local ones; without a rank, it is the first node.
    """
    made = launched_by("torchrun", local_rank=1, local_world_size=2, **numbers)  # type: ignore[arg-type]

    assert expected == (made["RANK"], made["WORLD_SIZE"], made["GROUP_RANK"])


def test_one_node_has_no_times() -> None:
    """
    On one node Slurm writes the count of its tasks alone.
    """
    assert "4" == launched_by("slurm", local_rank=0, local_world_size=4)["SLURM_STEP_TASKS_PER_NODE"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param({"launcher": "slrum"}, "no launcher is named 'slrum'; there are accelerate, azureml", id="name"),
        pytest.param({"local_rank": 2}, "less than the local world size", id="local-rank-too-high"),
        pytest.param({"local_rank": -1}, "counts from 0", id="local-rank-negative"),
        pytest.param({"local_world_size": 0}, "less than the local world size", id="no-process"),
        pytest.param({"rank": 9, "world_size": 4}, "less than the world size", id="rank-too-high"),
        pytest.param({"rank": 2}, "change what launched_by returns", id="rank-elsewhere"),
        pytest.param({"world_size": 3}, "change what launched_by returns", id="uneven-nodes"),
        pytest.param({"launcher": "openmpi", "devices": "per-task"}, "add CUDA_VISIBLE_DEVICES", id="no-such-way"),
        pytest.param({"devices": "own"}, "'own'", id="unknown-way"),
    ],
)
def test_numbers_that_contradict_are_refused(arguments: dict[str, Any], words: str) -> None:
    """
    What no launcher makes is a ValueError that says why.
    """
    given: dict[str, Any] = {"launcher": "torchrun", "local_rank": 1, "local_world_size": 2, **arguments}

    with pytest.raises(ValueError, match=words):
        launched_by(given.pop("launcher"), **given)
