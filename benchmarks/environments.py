"""The environments under which calls are measured."""

from __future__ import annotations

TORCHRUN = {
    "LOCAL_RANK": "1",
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_LOCALID": "1",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_GTIDS": "0,1,2,3",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "4",
    "SLURM_NTASKS_PER_NODE": "4",  # which Lightning wants
    "SUBMITIT_EXECUTOR": "slurm",  # which submitit wants, and sets for its own jobs
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
}
LAUNCHES = {"torchrun": TORCHRUN, "Slurm": SLURM, "Open MPI": OPENMPI, "none": {}}


def fill(number: int) -> dict[str, str]:
    """Variables that nobody reads."""
    return {f"BENCHMARK_FILLER_{n}": f"value {n}" for n in range(number)}


def numbers(count: int) -> str:
    """A mask of numbers, none of them at its own place."""
    return ",".join(str((n + 1) % count) for n in range(count))


def uuids(count: int) -> str:
    """A mask of the pretend driver's UUIDs."""
    return ",".join(f"GPU-{(n + 1) * 0x01010101 & 0xFFFFFFFF:08x}-0000-4000-8000-{n:012x}" for n in range(count))
