"""The launchers, one row each: the variables they set, and the address of their documentation."""

from __future__ import annotations

from safedev._launch import LOCAL_RANK, EnvLauncher, SlurmLauncher


def _elastic(name: str, documentation: str, *marks: str) -> EnvLauncher:
    """A row for torchrun, or for a launcher that starts torchrun and leaves *marks* of its own."""
    return EnvLauncher(
        name=name,
        local_rank=LOCAL_RANK,
        local_world_size="LOCAL_WORLD_SIZE",
        rank="RANK",
        world_size="WORLD_SIZE",
        node_rank="GROUP_RANK",
        requires=(*marks, "TORCHELASTIC_RUN_ID"),
        innermost=True,
        documentation=documentation,
    )


# SLURM_NTASKS and SLURM_NTASKS_PER_NODE are not read: they are the job's, and may be more than the step's.
SLURM = SlurmLauncher(
    name="slurm",
    local_rank="SLURM_LOCALID",
    local_world_size=("SLURM_GTIDS", "SLURM_STEP_TASKS_PER_NODE"),
    rank="SLURM_PROCID",
    world_size="SLURM_STEP_NUM_TASKS",
    node_rank="SLURM_NODEID",
    requires=("SLURM_STEP_ID", "SLURM_PROCID"),
    shares=False,
    documentation="https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",
)

TABLE: tuple[EnvLauncher, ...] = (
    # LOCAL_RANK comes first: those who set it are started by the launchers below, and not the other way round. Among
    # them, the one with the most certain sign comes first. Determined and accelerate start torchrun: before it.
    _elastic(
        "determined",
        "https://github.com/determined-ai/determined/blob/main/harness/determined/launch/torch_distributed.py",
        "DET_CHIEF_IP",
    ),
    _elastic(
        "accelerate",
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py",
        "ACCELERATE_MIXED_PRECISION",
    ),
    # torchrun and torch.distributed.launch write their names anew for each worker.
    _elastic(
        "torchrun",
        "https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables",
    ),
    # A worker of Ray is started by Ray's daemon, and not by whatever started the daemon.
    EnvLauncher(
        name="ray-train",
        local_rank=LOCAL_RANK,
        rank="RANK",
        world_size="WORLD_SIZE",
        requires=("RAY_JOB_ID", "LOCAL_WORLD_SIZE"),
        local_world_size="LOCAL_WORLD_SIZE",
        node_rank="NODE_RANK",
        innermost=True,
        shares=False,
        documentation="https://github.com/ray-project/ray/blob/master/python/ray/train/torch/config.py",
    ),
    EnvLauncher(
        name="deepspeed",
        local_rank=LOCAL_RANK,
        rank="RANK",
        world_size="WORLD_SIZE",
        requires=("LOCAL_SIZE",),
        local_world_size="LOCAL_SIZE",
        node_rank="CROSS_RANK",
        documentation="https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/launch.py",
    ),
    EnvLauncher(
        name="azureml",
        local_rank=LOCAL_RANK,
        rank="RANK",
        world_size="WORLD_SIZE",
        requires=("NODE_RANK", "RANK", "WORLD_SIZE"),
        local_world_size="LOCAL_WORLD_SIZE",
        node_rank="NODE_RANK",
        documentation="https://learn.microsoft.com/en-us/azure/machine-learning/how-to-train-distributed-gpu",
    ),
    # Lightning's own children: no RANK.
    EnvLauncher(
        name="lightning",
        local_rank=LOCAL_RANK,
        requires=("NODE_RANK", "WORLD_SIZE"),
        world_size="WORLD_SIZE",
        node_rank="NODE_RANK",
        documentation="https://lightning.ai/docs/fabric/stable/_modules/lightning/fabric/plugins/environments/lightning.html",
    ),
    # Whoever else sets it: enroot's Slurm hook, a script, a shell in which it was left over.
    EnvLauncher(
        name="unknown",
        local_rank=LOCAL_RANK,
        rank="RANK",
        world_size="WORLD_SIZE",
        local_world_size="LOCAL_WORLD_SIZE",
        shares=False,
        documentation="https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.get_node_local_rank",
    ),
    # jsrun sets Open MPI's names as well, and its own say more: before Open MPI.
    EnvLauncher(
        name="jsrun",
        local_rank="JSM_NAMESPACE_LOCAL_RANK",
        rank="JSM_NAMESPACE_RANK",
        world_size="JSM_NAMESPACE_SIZE",
        requires=("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
        shares=False,
        documentation="https://lightning.ai/docs/pytorch/stable/api/pytorch_lightning.plugins.environments.LSFEnvironment.html",
    ),
    # OMPI_COMM_WORLD_NODE_RANK is no node's number: it is the local rank over all jobs.
    EnvLauncher(
        name="openmpi",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        rank="OMPI_COMM_WORLD_RANK",
        world_size="OMPI_COMM_WORLD_SIZE",
        requires=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        documentation="https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html",
    ),
    # MPICH's and Intel MPI's process manager. Its -pmi-port gives PMI_ID for PMI_RANK.
    EnvLauncher(
        name="hydra",
        local_rank="MPI_LOCALRANKID",
        local_world_size="MPI_LOCALNRANKS",
        rank=("PMI_RANK", "PMI_ID"),
        world_size="PMI_SIZE",
        requires=("MPI_LOCALNRANKS",),
        documentation="https://github.com/pmodels/mpich/blob/068d6ea8926d1a5393566874be3c0671cd23be69/src/pm/hydra/proxy/pmip_cb.c",
    ),
    EnvLauncher(
        name="mvapich",
        local_rank="MV2_COMM_WORLD_LOCAL_RANK",
        local_world_size="MV2_COMM_WORLD_LOCAL_SIZE",
        rank="MV2_COMM_WORLD_RANK",
        world_size="MV2_COMM_WORLD_SIZE",
        requires=("MV2_COMM_WORLD_LOCAL_SIZE",),
        documentation="https://github.com/nmorey/mvapich2/blob/d8dc7133c2c8255f194e1fa5e550ef1bd4796bf6/src/pm/mpirun/mpispawn.c",
    ),
    EnvLauncher(
        name="horovod",
        local_rank="HOROVOD_LOCAL_RANK",
        local_world_size="HOROVOD_LOCAL_SIZE",
        rank="HOROVOD_RANK",
        world_size="HOROVOD_SIZE",
        node_rank="HOROVOD_CROSS_RANK",
        requires=("HOROVOD_LOCAL_SIZE",),
        documentation="https://github.com/horovod/horovod/blob/master/horovod/runner/gloo_run.py",
    ),
    # srun --mpi=cray_shasta of Slurm 22.05 gives the rank without the local rank, newer ones both.
    EnvLauncher(
        name="pals",
        local_rank="PALS_LOCAL_RANKID",
        local_world_size="PMI_LOCAL_SIZE",
        rank="PALS_RANKID",
        world_size="PMI_SIZE",
        node_rank="PALS_NODEID",
        requires=("PALS_RANKID",),
        shares=False,  # sites wrap the program in a script that masks
        documentation="https://github.com/SchedMD/slurm/blob/master/src/plugins/mpi/cray_shasta/mpi_cray_shasta.c",
    ),
    EnvLauncher(
        name="cray-pmi",
        local_rank="PMI_LOCAL_RANK",
        local_world_size="PMI_LOCAL_SIZE",
        rank="PMI_RANK",
        world_size="PMI_SIZE",
        requires=("PMI_LOCAL_SIZE",),
        shares=False,
        documentation="https://github.com/SchedMD/slurm/blob/master/src/plugins/mpi/cray_shasta/mpi_cray_shasta.c",
    ),
    EnvLauncher(
        name="flux",
        local_rank="FLUX_TASK_LOCAL_ID",
        rank="FLUX_TASK_RANK",
        world_size="FLUX_JOB_SIZE",
        requires=("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
        shares=False,
        documentation="https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man7/flux-environment.html",
    ),
    # Slurm comes last: inside an allocation every launcher above starts one daemon a node as a task of Slurm's.
    SLURM,
)
