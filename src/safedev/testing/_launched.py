"""The environments that launchers make, as they were recorded or are documented."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

_TORCH = "LOCAL_RANK={local_rank} RANK={rank} WORLD_SIZE={world_size} MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
_ELASTIC = (
    _TORCH + "LOCAL_WORLD_SIZE={local_world_size} GROUP_RANK={node_rank} GROUP_WORLD_SIZE={nodes} ROLE_RANK={rank} "
    "ROLE_WORLD_SIZE={world_size} TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 "
    "TORCHELASTIC_USE_AGENT_STORE=True "
)
_SLURM = (
    "SLURM_LOCALID={local_rank} SLURM_PROCID={rank} SLURM_STEP_NUM_TASKS={world_size} SLURM_NTASKS={world_size} "
    "SLURM_NPROCS={world_size} SLURM_NTASKS_PER_NODE={local_world_size} SLURM_NODEID={node_rank} SLURM_NNODES={nodes} "
    "SLURM_STEP_NUM_NODES={nodes} SLURM_STEP_TASKS_PER_NODE={tasks} SLURM_TASKS_PER_NODE={tasks} SLURM_GTIDS={ranks} "
    "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURMD_NODENAME=node{node_rank} "
)
# By the name of the launcher in `safedev.launchers`. Recorded: torchrun 2.13, accelerate 1.15, Ray 2.60, DeepSpeed
# 0.19, Lightning 2.6, Open MPI 5.0.11, MPICH 5.0.2, Horovod 0.28.1, Slurm 22.05.8. The others as documented.
_MADE_BY = {
    "determined": _ELASTIC + "DET_CHIEF_IP=127.0.0.1 USE_TORCH_DISTRIBUTED=True",
    "accelerate": _ELASTIC + "ACCELERATE_MIXED_PRECISION=no ACCELERATE_DYNAMO_BACKEND=NO",
    "torchrun": _ELASTIC,
    "ray-train": _TORCH + "LOCAL_WORLD_SIZE={local_world_size} NODE_RANK={node_rank} RAY_JOB_ID=01000000 "
    "ACCELERATE_TORCH_DEVICE=cuda:{local_rank} CUDA_VISIBLE_DEVICES={all}",
    "deepspeed": _TORCH + "LOCAL_SIZE={local_world_size} CROSS_RANK={node_rank} CROSS_SIZE={nodes} "
    "CUDA_VISIBLE_DEVICES={all}",
    "azureml": _TORCH + "NODE_RANK={node_rank}",
    "lightning": "LOCAL_RANK={local_rank} WORLD_SIZE={world_size} NODE_RANK={node_rank} MASTER_ADDR=127.0.0.1 "
    "MASTER_PORT=29500",
    "unknown": _TORCH,
    "jsrun": "JSM_NAMESPACE_LOCAL_RANK={local_rank} JSM_NAMESPACE_RANK={rank} JSM_NAMESPACE_SIZE={world_size} "
    "LSB_JOBID=1",
    "openmpi": "OMPI_COMM_WORLD_LOCAL_RANK={local_rank} OMPI_COMM_WORLD_LOCAL_SIZE={local_world_size} "
    "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={world_size} OMPI_COMM_WORLD_NODE_RANK={local_rank} "
    "OMPI_UNIVERSE_SIZE={world_size} PMIX_RANK={rank}",
    "hydra": "MPI_LOCALRANKID={local_rank} MPI_LOCALNRANKS={local_world_size} PMI_RANK={rank} PMI_SIZE={world_size} "
    "PMI_FD=9",
    "mvapich": "MV2_COMM_WORLD_LOCAL_RANK={local_rank} MV2_COMM_WORLD_LOCAL_SIZE={local_world_size} "
    "MV2_COMM_WORLD_RANK={rank} MV2_COMM_WORLD_SIZE={world_size}",
    "horovod": "HOROVOD_LOCAL_RANK={local_rank} HOROVOD_LOCAL_SIZE={local_world_size} HOROVOD_RANK={rank} "
    "HOROVOD_SIZE={world_size} HOROVOD_CROSS_RANK={node_rank} HOROVOD_CROSS_SIZE={nodes} HOROVOD_CONTROLLER=gloo",
    "pals": "PALS_LOCAL_RANKID={local_rank} PALS_RANKID={rank} PALS_NODEID={node_rank} PMI_LOCAL_RANK={local_rank} "
    "PMI_LOCAL_SIZE={local_world_size} PMI_RANK={rank} PMI_SIZE={world_size}",
    "cray-pmi": "PMI_LOCAL_RANK={local_rank} PMI_LOCAL_SIZE={local_world_size} PMI_RANK={rank} PMI_SIZE={world_size}",
    "flux": "FLUX_TASK_LOCAL_ID={local_rank} FLUX_TASK_RANK={rank} FLUX_JOB_SIZE={world_size} FLUX_JOB_NNODES={nodes} "
    "FLUX_JOB_ID=1 PMI_RANK={rank} PMI_SIZE={world_size}",
    "slurm": _SLURM,
}
# The same with one device for each task: torchrun --virtual-local-rank, flux -o gpu-affinity=per-task,
# srun --gpus-per-task=1.
_OWN_DEVICE = {
    "torchrun": "LOCAL_RANK=0 CUDA_VISIBLE_DEVICES={local_rank}",
    "flux": "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={local_rank}",
    "slurm": "SLURMD_TRES_BIND=gpu:per_task:1 SLURM_GPUS_ON_NODE={local_world_size} SLURM_STEP_GPUS={local_rank} "
    "CUDA_VISIBLE_DEVICES={local_rank} ROCR_VISIBLE_DEVICES={local_rank} GPU_DEVICE_ORDINAL={local_rank} "
    "ZE_AFFINITY_MASK={local_rank}",
}


def launched_by(
    launcher: str,
    *,
    local_rank: int,
    local_world_size: int,
    rank: int | None = None,
    world_size: int | None = None,
    devices: Literal["shared", "per-task"] = "shared",
) -> dict[str, str]:
    """The environment that a launcher gives to one of its processes, for ``fake_cuda(..., environ=launched_by(...))``.

    All nodes have *local_world_size* processes, and the ranks count through one node after another.

    Args:
        launcher: Its name in ``safedev.launchers``: ``"torchrun"``, ``"openmpi"``, ``"slurm"`` ...
        local_rank: Position of the process on its node, from 0.
        local_world_size: Processes on each node, from 1.
        rank: Position in the whole launch, from 0; by default that of the first node.
        world_size: Processes of the launch; by default the fewest that *rank* allows.
        devices: ``"shared"``: what the launcher does unless told otherwise. ``"per-task"``: a device for each process
            (``torchrun --virtual-local-rank``, ``srun --gpus-per-task=1``, ``flux run -o gpu-affinity=per-task``).

    Returns:
        The variables that tell a rank, and those that mask devices; a launcher sets more.

    Raises:
        ValueError: No such launcher, no such way to give devices, or numbers that cannot be true together.

    Example:
        >>> launched_by("hydra", local_rank=1, local_world_size=2)["MPI_LOCALRANKID"]
        '1'

    Source:
        The documentation named in each row of ``safedev.launchers``, and runs of the versions named in this file.
    """
    if launcher not in _MADE_BY:
        raise ValueError(f"no launcher is named {launcher!r}; there are {', '.join(sorted(_MADE_BY))}")
    if devices not in {"shared", "per-task"} or (devices == "per-task" and launcher not in _OWN_DEVICE):
        raise ValueError(
            f"{launcher} does not give devices {devices!r}: 'shared' is for all launchers, 'per-task' for "
            f"{', '.join(sorted(_OWN_DEVICE))}; elsewhere add CUDA_VISIBLE_DEVICES to what launched_by returns"
        )
    rank = local_rank if rank is None else rank
    node_rank = rank // local_world_size if local_world_size > 0 else 0
    world_size = (node_rank + 1) * local_world_size if world_size is None else world_size
    _refuse_contradictions(local_rank, local_world_size, rank, world_size)
    first, nodes = node_rank * local_world_size, world_size // local_world_size
    template = _MADE_BY[launcher] + " " + (_OWN_DEVICE[launcher] if devices == "per-task" else "")
    text = template.format(
        local_rank=local_rank,
        local_world_size=local_world_size,
        rank=rank,
        world_size=world_size,
        node_rank=node_rank,
        nodes=nodes,
        ranks=",".join(map(str, range(first, first + local_world_size))),
        tasks=local_world_size if nodes == 1 else f"{local_world_size}(x{nodes})",
        all=",".join(map(str, range(local_world_size))),
    )
    return dict(pair.split("=", 1) for pair in text.split())


def _refuse_contradictions(local_rank: int, local_world_size: int, rank: int, world_size: int) -> None:
    if not 0 <= local_rank < local_world_size:
        rule = "a local rank counts from 0, and is less than the local world size"
    elif not 0 <= rank < world_size:
        rule = "a rank counts from 0, and is less than the world size"
    elif rank % local_world_size != local_rank or world_size % local_world_size:
        rule = (
            "the ranks count through one node after another, and each has local_world_size of them; "
            "for another layout, change what launched_by returns"
        )
    else:
        return
    given = f"local_rank={local_rank}, local_world_size={local_world_size}, rank={rank}, world_size={world_size}"
    raise ValueError(f"{given}: {rule}")
