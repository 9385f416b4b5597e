"""Has this process devices of its own, or does it share one view of them with its siblings on the node?"""

from __future__ import annotations

from dataclasses import dataclass

from safedev import launchers
from safedev._launch import LOCAL_RANK, UNKNOWN, UNSET, number
from safedev._launcher_table import SLURM
from safedev._nesting import own_devices_bound, same_process
from safedev._quick import quickly
from safedev._text import quoted
from safedev.errors import LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from safedev._launch import Launch
    from safedev._mask import Mask

# Variables that only a container of one rank's own has: Kubernetes, Vertex AI, SageMaker.
# Sources: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables,
# https://cloud.google.com/vertex-ai/docs/training/code-requirements#environment-variables,
# https://github.com/aws/sagemaker-training-toolkit/blob/master/ENVIRONMENT_VARIABLES.md
PODS = ("KUBERNETES_SERVICE_HOST", "CLOUD_ML_JOB_ID", "SM_CURRENT_HOST")


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Whether a process shares its devices, and how that is known.

    Attributes:
        kind: ``"own"``: the devices that this process sees are its own. ``"shared"``: the processes of its launch on
            this node see the same devices. ``"unknown"``: nothing shows which.
        reason: How that is known, in one clause for a message.
        doubt: ``"own"`` by a sign that a shared view could show as well.
        by_mask: The text of the mask showed it, which a driver that has started may not hold to.
    """

    kind: Literal["own", "shared", "unknown"]
    reason: str
    doubt: bool = False
    by_mask: bool = False


_sharing = quickly(Sharing)


def read_launch(
    mask: Mask, count: int, environ: Mapping[str, str]
) -> tuple[Launch | None, LocalRankError | None, Sharing]:
    """Who launched this process, or why that cannot be told; and whether it shares the *count* devices it sees."""
    launch, error = None, None
    try:
        launch = launchers.detect_launch(environ)
    except LocalRankError as problem:
        error = problem.with_traceback(None)  # its frames hold the whole environment
    return launch, error, sharing_of(launch, environ, None if mask.raw is None else mask.entries, count)


def sharing_of(
    launch: Launch | None,
    environ: Mapping[str, str],
    mask_entries: tuple[int | str, ...] | None,
    device_count: int,
) -> Sharing:
    """Judge whether this process shares its devices with its siblings.

    Args:
        launch: Who launched this process; None where nothing did, or the local rank cannot be told.
        environ: Where Slurm, Ray and a pod leave their signs. Read by name, and only what decides.
        mask_entries: What each ordinal stands for under the mask: a physical index (from 0) or a UUID; ``()`` where
            all is hidden; None without a mask.
        device_count: How many devices this process sees, of whichever kind.

    Returns:
        The answer. A mask that hides all or a count of 0 leaves nothing to share, and any answer is right.
    """
    if launch is None:
        return _unlaunched(environ, device_count)
    if mask_entries is None and device_count == 1:
        mask_entries = _intel_mask(environ)
    task = launch if launch.launcher == "slurm" else _slurm_task(launch, environ)
    if task is not None:
        return _of_slurm_task(task, environ, mask_entries, device_count)
    if device_count == 1 and launch.launcher == "jsrun":
        return Sharing(kind="own", reason="jsrun started it in a resource set of one device")
    if device_count == 1 and mask_entries is not None and len(mask_entries) == 1:
        return _behind_one_entry(launch, environ, mask_entries[0])
    if launch.launcher == UNKNOWN and launch.local_world_size is None:
        return Sharing(kind="unknown", reason=f"{launch.source} does not tell how its processes were started")
    return _sharing(kind="shared", reason=f"the workers of {launch.launcher} all see the same devices")


_UNTOLD = Sharing(kind="unknown", reason="no launcher tells whether other processes see the same devices")
_RAY = Sharing(kind="own", reason="Ray gives each task and actor devices of its own")


def _in_ray(environ: Mapping[str, str]) -> bool:
    if environ.get("RAY_JOB_ID") in UNSET:
        return False
    return (environ.get("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES") or "0") in {"0", "false"}


def _unlaunched(environ: Mapping[str, str], device_count: int) -> Sharing:
    if _in_ray(environ):
        return _RAY
    if device_count == 1 and environ.get(LOCAL_RANK) in UNSET:
        for name in PODS:
            if environ.get(name) not in UNSET:
                return Sharing(kind="own", reason=f"{name} shows a pod, and this is the one device in it")
    return _UNTOLD


def _is_virtual(launch: Launch) -> bool:
    """Whether this is no first worker of its group, although its local rank is 0: ``torchrun --virtual-local-rank``."""
    workers, rank, world, group = launch.local_world_size, launch.rank, launch.world_size, launch.node_rank
    if launch.source != LOCAL_RANK or launch.local_rank or workers is None or workers == 1:
        return False
    if rank is None or world is None or group is None:
        return False
    # Ranks are given group by group. The first of group g is g times the workers of a group, if all have as many;
    # else it is at least g, and leaves room for the workers of this group.
    even = group == 0 or (world % workers == 0 and group < world // workers)
    return rank != group * workers if even else not group <= rank <= world - workers


def _slurm_task(launch: Launch, environ: Mapping[str, str]) -> Launch | None:
    """The Slurm task that this process is, although another launcher's names were read (a script set them, or PALS)."""
    if environ.get(SLURM.local_rank) in UNSET:  # looked at already, and nearly always so
        return None
    try:
        task = SLURM.detect(environ)
    except LocalRankError:
        return None
    return task if task is not None and same_process(task, launch) else None


def _of_slurm_task(
    task: Launch, environ: Mapping[str, str], mask_entries: tuple[int | str, ...] | None, device_count: int
) -> Sharing:
    bound = own_devices_bound(environ, task)
    allotted = _devices_allotted(environ)
    sees_all = allotted is not None and device_count >= allotted
    # Bound by another vendor's variable, or unbound again by the script: who sees all of several devices shares them.
    if bound is not None and not (sees_all and device_count > 1):
        if _goes_round(bound, allotted, task):
            reason = f"SLURMD_TRES_BIND={quoted(bound)} has {task.local_world_size} tasks here, and {allotted} devices"
            return Sharing(kind="shared", reason=reason)
        return Sharing(kind="own", reason=f"SLURMD_TRES_BIND={quoted(bound)} gives each task devices of its own")
    if device_count == 1 and allotted is not None and not sees_all:
        step = environ.get("SLURM_STEP_GPUS", "")
        if step not in UNSET and "," not in step:
            reason = (
                f"SLURM_STEP_GPUS={quoted(step)} is one of {allotted} devices that Slurm gave this job on this node"
            )
            return Sharing(kind="own", reason=reason)
    if device_count != 1 or sees_all or (mask_entries is None and allotted is None):
        return Sharing(kind="shared", reason="Slurm bound no devices to single tasks: all on this node see the same")
    if task.local_rank and mask_entries == (task.local_rank,):
        reason = f"the mask holds the device of this local rank, {task.local_rank}, alone"
        return Sharing(kind="own", reason=reason, by_mask=True)
    return Sharing(kind="unknown", reason="Slurm does not tell whether the one device is this task's own")


def _goes_round(bound: str, allotted: int | None, task: Launch) -> bool:
    """Whether ``single:N`` had to give a device to more than N tasks: there are too few devices for the tasks here.

    Source:
        https://slurm.schedmd.com/srun.html#OPT_gpu-bind
    """
    each, workers = number(bound.partition("single:")[2]), task.local_world_size
    return each is not None and allotted is not None and workers is not None and workers > allotted * each


def _behind_one_entry(launch: Launch, environ: Mapping[str, str], entry: int | str) -> Sharing:
    """One device is visible behind a mask of one entry: the launcher's own view, or a mask for this process."""
    if launch.local_world_size != 1 and _devices_allotted(environ) == 1:
        return Sharing(kind="shared", reason="SLURM_GPUS_ON_NODE='1' counts one device for all processes of this node")
    if _is_virtual(launch):
        return Sharing(
            kind="own", reason=f"the local rank of rank {launch.rank} is virtual: torchrun gave it one device"
        )
    if launch.launcher == UNKNOWN and _in_ray(environ):
        return _RAY
    shares = _shares_by_default(launch)
    if launch.local_rank and entry == launch.local_rank:
        reason = f"the mask holds the device of this local rank, {launch.local_rank}, alone"
        return Sharing(kind="own", reason=reason, doubt=shares, by_mask=True)
    if launch.local_rank and shares:
        return _sharing(
            kind="shared",
            reason=f"the workers of {launch.launcher} inherit its mask, which leaves {quoted(str(entry))}",
        )
    return Sharing(
        kind="unknown", reason=f"the mask {quoted(str(entry))} may be this process's own, or its siblings' too"
    )


def _intel_mask(environ: Mapping[str, str]) -> tuple[int | str, ...] | None:
    """The mask of Intel's devices, by which sites give each rank a tile: ``3`` or ``3.1``; None without one."""
    text = environ.get("ZE_AFFINITY_MASK")
    if text is None or text in UNSET:
        return None
    return tuple(entry if (value := number(entry)) is None else value for entry in text.split(","))


def _devices_allotted(environ: Mapping[str, str]) -> int | None:
    """How many devices of this node Slurm gave the job; None where it gave none, or does not tell."""
    return number(environ.get("SLURM_GPUS_ON_NODE", "")) or None


def _shares_by_default(launch: Launch) -> bool:
    if launch.launcher == UNKNOWN:
        return launch.local_world_size is not None
    row = next((known for known in launchers.LAUNCHERS if known.name == launch.launcher), None)
    return bool(getattr(row, "shares", False))
