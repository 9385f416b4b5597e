"""Who has devices of its own, and who shares them with the other processes on the node."""

from __future__ import annotations

import pytest

from safedev._mask import parse_mask
from safedev._sharing import read_launch, sharing_of
from safedev.errors import LocalRankError
from safedev.launchers import Launch, detect_launch


def torchrun(
    local_rank: int, workers: int, *, rank: int | None = None, world: int | None = None, group: int = 0
) -> dict[str, str]:
    """What torchrun sets: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""
    return {
        "TORCHELASTIC_RUN_ID": "none",
        "LOCAL_RANK": str(local_rank),
        "RANK": str(local_rank if rank is None else rank),
        "WORLD_SIZE": str(workers if world is None else world),
        "LOCAL_WORLD_SIZE": str(workers),
        "GROUP_RANK": str(group),
    }


def openmpi(local_rank: int, size: int) -> dict[str, str]:
    return {"OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank), "OMPI_COMM_WORLD_LOCAL_SIZE": str(size)}


def slurm(local_rank: int, tasks: int, **others: str) -> dict[str, str]:
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_LOCALID": str(local_rank),
        "SLURM_PROCID": str(local_rank),
        "SLURM_GTIDS": ",".join(map(str, range(tasks))),
        **others,
    }


def jsrun(local_rank: int) -> dict[str, str]:
    return {
        "JSM_NAMESPACE_LOCAL_RANK": str(local_rank),
        "JSM_NAMESPACE_RANK": str(local_rank),
        "JSM_NAMESPACE_SIZE": "6",
    }


def flux(local_rank: int) -> dict[str, str]:
    return {"FLUX_TASK_LOCAL_ID": str(local_rank), "FLUX_TASK_RANK": str(local_rank), "FLUX_JOB_SIZE": "4"}


def pals(local_rank: int) -> dict[str, str]:
    return {"PALS_LOCAL_RANKID": str(local_rank), "PALS_RANKID": str(local_rank), "PMI_LOCAL_SIZE": "4"}


RAY_NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
RAY = {"RAY_JOB_ID": "01000000"}
RAY_TRAIN = {**RAY, "LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"}
BY_HAND = {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}
LIGHTNING = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
POD_RANK = {"RANK": "1", "WORLD_SIZE": "3"}
PER_TASK = {"SLURMD_TRES_BIND": "gpu:per_task:1"}


def judge(environ: dict[str, str], mask: tuple[int | str, ...] | None, count: int) -> tuple[str, bool]:
    try:
        launch = detect_launch(environ)
    except LocalRankError:
        launch = None
    sharing = sharing_of(launch, environ, mask, count)
    assert sharing.reason.isprintable()
    return sharing.kind, sharing.doubt


@pytest.mark.parametrize(
    ("environ", "mask", "count"),
    [
        pytest.param(slurm(1, 2, **PER_TASK), (1,), 1, id="slurm-per-task"),
        pytest.param(slurm(0, 2, **PER_TASK), (0,), 1, id="slurm-per-task-local-rank-0"),
        pytest.param(slurm(1, 2, **PER_TASK), (0,), 1, id="slurm-per-task-under-a-cgroup"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gpu:per_task:2", SLURM_GPUS_ON_NODE="4"), (2, 3), 2, id="two-each"),
        pytest.param(slurm(1, 4, SLURMD_TRES_BIND="gpu:single:2", SLURM_GPUS_ON_NODE="2"), (0,), 1, id="single-2"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gpu:single:2", SLURM_GPUS_ON_NODE="1"), (0,), 1, id="two-to-one"),
        pytest.param(slurm(0, 2, SLURMD_TRES_BIND="gpu:map_gpu:3,1"), (3,), 1, id="map-gpu"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gpu:mask_gpu:0x3,0xc"), (2, 3), 2, id="mask-gpu"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gres/nic:closest+gres/gpu:per_task:1"), (0,), 1, id="tres-bind"),
        pytest.param(slurm(1, 2, SLURM_STEP_GPUS="1", SLURM_GPUS_ON_NODE="2"), (1,), 1, id="one-of-two-step-gpus"),
        pytest.param(slurm(0, 2, SLURM_STEP_GPUS="0", SLURM_GPUS_ON_NODE="2"), (0,), 1, id="one-of-two-local-rank-0"),
        pytest.param(slurm(1, 2, SLURM_STEP_GPUS="0,1", SLURM_GPUS_ON_NODE="2"), (1,), 1, id="mask-made-in-the-task"),
        pytest.param({**slurm(1, 2, **PER_TASK), "LOCAL_RANK": "1"}, (1,), 1, id="a-hook-sets-local-rank-in-a-task"),
        pytest.param({**slurm(1, 4, **PER_TASK), **pals(1)}, (1,), 1, id="cray-names-in-a-slurm-task"),
        pytest.param({**slurm(1, 4, **PER_TASK), **pals(1)}, (0,), 1, id="cray-names-in-a-slurm-task-under-a-cgroup"),
        pytest.param(
            {**slurm(1, 2, **PER_TASK), **BY_HAND, "LOCAL_WORLD_SIZE": "2"}, (0,), 1, id="a-script-counts-in-a-task"
        ),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gpu:single:1"), (0,), 1, id="single-of-an-untold-number"),
        pytest.param(
            {**slurm(1, 2, SLURMD_TRES_BIND="gpu:single:1", SLURM_GPUS_ON_NODE="2"), "SLURM_GTIDS": ""},
            (0,),
            1,
            id="single-for-an-untold-number",
        ),
        pytest.param(RAY, (4,), 1, id="ray-task"),
        pytest.param({**RAY, RAY_NOSET: "0"}, (4,), 1, id="ray-task-that-says-0"),
        pytest.param({**RAY, RAY_NOSET: "false"}, (4,), 1, id="ray-task-that-says-false"),
        pytest.param(RAY, (2, 3), 2, id="ray-task-of-two"),
        pytest.param({**RAY, **BY_HAND}, (0,), 1, id="ray-actor-that-sets-local-rank"),
        pytest.param(torchrun(0, 4, rank=2), (2,), 1, id="virtual-local-rank"),
        pytest.param(torchrun(0, 2, rank=3, world=4, group=1), (1,), 1, id="virtual-on-the-second-node"),
        pytest.param(torchrun(0, 2, rank=3, world=6, group=1), (1,), 1, id="virtual-on-the-node-in-the-middle"),
        pytest.param(torchrun(0, 3, rank=3, world=4, group=1), (1,), 1, id="virtual-in-an-uneven-group"),
        pytest.param(torchrun(0, 2, rank=1, world=5), (1,), 1, id="virtual-in-the-first-of-uneven-groups"),
        pytest.param(jsrun(3), (3,), 1, id="resource-set-of-one"),
        pytest.param(jsrun(3), None, 1, id="resource-set-of-one-without-a-mask"),
        pytest.param({**POD, **POD_RANK}, None, 1, id="one-gpu-pod"),
        pytest.param({"CLOUD_ML_JOB_ID": "1", **POD_RANK}, None, 1, id="vertex-ai"),
        pytest.param(flux(1), (1,), 1, id="flux-per-task"),
        pytest.param({**pals(1), "ZE_AFFINITY_MASK": "1"}, None, 1, id="a-mask-of-intels-for-each-rank"),
        pytest.param(BY_HAND, (1,), 1, id="by-hand-with-its-own-mask"),
    ],
)
def test_devices_of_its_own_are_known_by_a_sign(
    environ: dict[str, str], mask: tuple[int | str, ...] | None, count: int
) -> None:
    """
    A process that was given devices of its own is known by what its launcher left, and there is no doubt about it.
    """
    assert ("own", False) == judge(environ, mask, count)


# Source: https://slurm.schedmd.com/srun.html#OPT_gpu-bind; Slurm 22.05 gives device 0 to both tasks of the first row.
@pytest.mark.parametrize(
    ("bound", "tasks", "allotted"),
    [
        pytest.param("gpu:single:1", 2, "1", id="two-tasks-and-one-device"),
        pytest.param("gpu:single:1", 4, "2", id="four-tasks-and-two-devices"),
        pytest.param("gpu:single:2", 5, "2", id="five-tasks-two-to-a-device"),
    ],
)
def test_a_binding_that_went_round_gives_nobody_a_device_of_its_own(bound: str, tasks: int, allotted: str) -> None:
    """
    ``single:N`` promises a device to N tasks; where there are more tasks than that, some share one unawares.
    """
    environ = slurm(1, tasks, SLURMD_TRES_BIND=bound, SLURM_GPUS_ON_NODE=allotted, SLURM_STEP_GPUS="0,1")

    assert ("shared", False) == judge(environ, (0,), 1)


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param(torchrun(3, 4), id="torchrun"),
        pytest.param(openmpi(3, 4), id="openmpi"),
        pytest.param({**LIGHTNING, "LOCAL_RANK": "3", "WORLD_SIZE": "4"}, id="lightning-counts-by-its-rank"),
    ],
)
def test_a_mask_of_its_own_under_a_launcher_that_shares_is_doubtful(environ: dict[str, str]) -> None:
    """
    A mask of one entry that equals the local rank may have been set for this process, or for all of them.
    """
    assert ("own", True) == judge(environ, (3,), 1)


@pytest.mark.parametrize(
    ("environ", "mask", "count"),
    [
        pytest.param(torchrun(1, 4), None, 2, id="torchrun-without-a-mask"),
        pytest.param(torchrun(0, 4), None, 1, id="torchrun-on-one-device"),
        pytest.param(torchrun(0, 4), (4, 5), 2, id="torchrun-behind-two-entries"),
        pytest.param(torchrun(2, 4), (0,), 1, id="torchrun-inherits-one-entry"),
        pytest.param(torchrun(1, 4), ("GPU-1234",), 1, id="torchrun-inherits-a-uuid"),
        pytest.param(openmpi(1, 2), (0,), 1, id="mpirun-inherits-one-entry"),
        pytest.param(LIGHTNING, (0,), 1, id="lightning-inherits-one-entry"),
        pytest.param({**BY_HAND, "LOCAL_WORLD_SIZE": "2"}, (0,), 1, id="unsigned-and-counted"),
        pytest.param({**torchrun(0, 2), "SLURM_GPUS_ON_NODE": "1"}, (0,), 1, id="slurm-counts-one-device"),
        pytest.param({**torchrun(1, 2), "SLURM_GPUS_ON_NODE": "1"}, (1,), 1, id="slurm-counts-the-entry-alone"),
        pytest.param({**torchrun(0, 4), **slurm(0, 1, **PER_TASK)}, (0, 1), 2, id="torchrun-in-a-bound-task"),
        pytest.param({**torchrun(2, 4), **slurm(0, 1, **PER_TASK)}, (0,), 1, id="torchrun-in-a-task-of-one-device"),
        pytest.param(RAY_TRAIN, (0, 1), 2, id="ray-train-sees-the-nodes-devices"),
        pytest.param(slurm(1, 2), None, 1, id="slurm-gave-no-devices"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gpu:closest"), None, 1, id="closest-is-not-bound"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gres/nic:per_task:1"), None, 1, id="bound-to-a-network-card"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gpu:closest", SLURM_GPUS_ON_NODE="2"), (0, 1), 2, id="closest"),
        pytest.param(slurm(1, 2, SLURMD_TRES_BIND="gpu:none", SLURM_GPUS_ON_NODE="2"), None, 2, id="bind-none"),
        pytest.param(slurm(1, 2, SLURM_STEP_GPUS="0", SLURM_GPUS_ON_NODE="1"), (0,), 1, id="two-tasks-one-device"),
        pytest.param(slurm(0, 2, SLURM_STEP_GPUS="0", SLURM_GPUS_ON_NODE="1"), (0,), 1, id="two-tasks-local-rank-0"),
        pytest.param(slurm(1, 2, SLURM_GPUS_ON_NODE="2", **PER_TASK), None, 2, id="bound-for-another-vendor"),
        pytest.param(slurm(1, 2, SLURM_GPUS_ON_NODE="2", **PER_TASK), (0, 1), 2, id="unbound-again-in-the-task"),
        pytest.param({**pals(1), "ZE_AFFINITY_MASK": "0,1"}, None, 1, id="a-mask-of-intels-with-two-entries"),
        pytest.param({**pals(1), "ZE_AFFINITY_MASK": ""}, None, 1, id="an-empty-mask-of-intels"),
        pytest.param(pals(1), None, 4, id="pals-without-a-mask"),
        pytest.param(flux(1), (0, 1), 2, id="flux-by-default"),
        pytest.param(jsrun(1), (0, 1), 2, id="resource-set-of-two"),
    ],
)
def test_workers_that_see_the_same_devices_share(
    environ: dict[str, str], mask: tuple[int | str, ...] | None, count: int
) -> None:
    """
    A launcher's workers share one view unless something shows the contrary.
    """
    assert ("shared", False) == judge(environ, mask, count)


@pytest.mark.parametrize(
    ("environ", "mask", "count"),
    [
        pytest.param(torchrun(0, 4), (0,), 1, id="local-rank-0-behind-one-entry"),
        pytest.param(torchrun(0, 3, rank=1, world=4, group=1), (0,), 1, id="first-of-an-uneven-group"),
        pytest.param(torchrun(0, 2, rank=2, world=4, group=1), (0,), 1, id="first-of-the-second-group"),
        pytest.param(torchrun(0, 3, rank=1, world=7, group=1), (0,), 1, id="first-of-three-behind-a-lone-worker"),
        pytest.param(torchrun(0, 2, rank=2, world=4, group=2), (0,), 1, id="first-of-two-behind-two-lone-workers"),
        pytest.param({**torchrun(0, 1), "SLURM_GPUS_ON_NODE": "1"}, (0,), 1, id="one-worker"),
        pytest.param(torchrun(0, 1, rank=3, world=4, group=1), (0,), 1, id="one-worker-behind-a-larger-group"),
        pytest.param({**torchrun(0, 4), "GROUP_RANK": "", "RANK": "2"}, (0,), 1, id="group-untold"),
        pytest.param({**torchrun(0, 4), "RANK": ""}, (0,), 1, id="rank-untold"),
        pytest.param({**torchrun(0, 2, rank=2, group=1), "WORLD_SIZE": ""}, (0,), 1, id="world-untold"),
        pytest.param(BY_HAND, (0,), 1, id="unsigned"),
        pytest.param(BY_HAND, None, 1, id="unsigned-without-a-mask"),
        pytest.param(BY_HAND, None, 4, id="unsigned-and-several-devices"),
        pytest.param({**pals(1), "ZE_AFFINITY_MASK": "0.1"}, None, 1, id="a-tile-for-each-rank"),
        pytest.param(pals(1), (2,), 1, id="pals-sites-mask-in-reverse"),
        pytest.param(flux(1), (5,), 1, id="flux-on-later-devices"),
        pytest.param(RAY_TRAIN, (0,), 1, id="ray-train-with-half-a-device-each"),
        pytest.param({**slurm(1, 2), "LOCAL_RANK": "1"}, ("MIG-1",), 1, id="slurm-with-an-instance"),
        pytest.param(slurm(1, 2, SLURM_STEP_GPUS="0,1", SLURM_GPUS_ON_NODE="2"), (0,), 1, id="mask-made-in-the-task"),
        pytest.param(slurm(1, 2, SLURM_GPUS_ON_NODE="2"), (0,), 1, id="two-devices-and-none-named"),
        pytest.param({**BY_HAND, "SLURM_LOCALID": "x", "SLURM_STEP_ID": "0"}, (0,), 1, id="beside-a-slurm-left-over"),
        pytest.param({}, None, 2, id="nothing-launched-it"),
        pytest.param(POD_RANK, None, 1, id="rank-outside-a-pod"),
        pytest.param({**POD, **POD_RANK}, None, 2, id="pod-of-two-devices"),
        pytest.param({**POD, "LOCAL_RANK": "x"}, None, 1, id="pod-with-an-unreadable-local-rank"),
        pytest.param({**RAY, RAY_NOSET: "1"}, None, 4, id="ray-leaves-the-mask"),
    ],
)
def test_without_a_sign_it_is_unknown(environ: dict[str, str], mask: tuple[int | str, ...] | None, count: int) -> None:
    """
    Where nothing tells, neither is claimed: behind one entry, local rank 0 never knows.
    """
    assert ("unknown", False) == judge(environ, mask, count)


def test_a_reason_names_the_variable_that_tells() -> None:
    """
    The reason is one clause with the variable and its value.
    """
    environ = slurm(1, 2, **PER_TASK)

    sharing = sharing_of(detect_launch(environ), environ, (1,), 1)

    assert "SLURMD_TRES_BIND='gpu:per_task:1' gives each task devices of its own" == sharing.reason


@pytest.mark.parametrize(
    ("environ", "mask", "entry"),
    [
        pytest.param(torchrun(2, 4), (7,), "'7'", id="inherited"),
        pytest.param(torchrun(2, 4), ("GPU-1234",), "'GPU-1234'", id="inherited-uuid"),
        pytest.param(torchrun(0, 4), (7,), "'7'", id="of-local-rank-0"),
        pytest.param({**pals(1), "ZE_AFFINITY_MASK": "0.1"}, None, "'0.1'", id="a-tile-of-intels"),
    ],
)
def test_a_reason_names_the_entry_of_the_mask(
    environ: dict[str, str], mask: tuple[int | str, ...] | None, entry: str
) -> None:
    """
    Behind a mask of one entry, the reason shows that entry as it is written.
    """
    assert entry in sharing_of(detect_launch(environ), environ, mask, 1).reason


def test_a_launch_of_an_unlisted_launcher_is_not_said_to_share() -> None:
    """
    A launcher of one's own may call its launches as it likes: nothing is known of them.
    """
    assert "unknown" == sharing_of(Launch(launcher="elsewhere", local_rank=1), {}, (0,), 1).kind


def test_an_unreadable_slurm_task_is_no_evidence() -> None:
    """
    A step whose number cannot be read tells nothing of the devices of a process that torchrun launched.
    """
    environ = {**torchrun(1, 2), **slurm(1, 2, SLURM_STEP_ID="x", **PER_TASK)}

    assert ("shared", False) == judge(environ, (0,), 1)


def test_a_launch_is_read_with_what_it_shares() -> None:
    """
    One reading tells both; nothing is wrong.
    """
    launch, error, sharing = read_launch(parse_mask(None), 2, torchrun(1, 2))

    assert detect_launch(torchrun(1, 2)) == launch
    assert error is None
    assert sharing_of(launch, torchrun(1, 2), None, 2) == sharing


def test_a_launch_that_cannot_be_told_is_no_error_yet() -> None:
    """
    Only a request that needs the local rank is hurt by it; and the error holds no frame, which would hold variables.
    """
    launch, error, sharing = read_launch(parse_mask(None), 2, {"WORLD_SIZE": "2"})

    assert launch is None
    assert isinstance(error, LocalRankError)
    assert error.__traceback__ is None
    assert "unknown" == sharing.kind


@pytest.mark.parametrize(
    ("mask", "kind"), [pytest.param("1", "own", id="of-this-rank"), pytest.param("0", "unknown", id="of-another")]
)
@pytest.mark.parametrize("environ", [slurm(1, 2), {"LOCAL_RANK": "1"}], ids=["slurm", "by-hand"])
def test_the_entries_of_the_mask_tell_whose_a_device_is(mask: str, kind: str, environ: dict[str, str]) -> None:
    """
    And that it was the text of the mask that told, which a driver that has started may not hold to.
    """
    _, _, sharing = read_launch(parse_mask(mask), 1, environ)

    assert (kind, kind == "own") == (sharing.kind, sharing.by_mask)


def test_without_a_mask_there_is_no_entry_to_tell() -> None:
    """
    One device, no mask and no count of Slurm's: all tasks see that device.
    """
    _, _, sharing = read_launch(parse_mask(None), 1, slurm(1, 2))

    assert "shared" == sharing.kind
