"""Which launcher is found, and which local rank: recordings, and launches that nobody recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from safedev import launchers
from safedev.errors import LocalRankError
from safedev.launchers import LAUNCHERS, EnvLauncher, Launch, detect_launch, register_launcher

# One launch a line: what its launcher gave to all processes, and to each. Recorded on pretend GPUs with the versions
# named, where `known` says so; else made from the documentation. "unknowable": the environment does not tell.
RECORDED = [json.loads(line) for line in (Path(__file__).parent / "data" / "launches.jsonl").read_text().splitlines()]
PROCESSES = [
    pytest.param({**launch["environ"], **process["environ"]}, process, id=f"{launch['launch']}-{number}")
    for launch in RECORDED
    for number, process in enumerate(launch["processes"])
]

TORCHRUN = {
    "LOCAL_RANK": "1",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "TORCHELASTIC_RUN_ID": "none",
}
BY_HAND = {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}
LIGHTNING = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "4"}
RAY_TRAIN = {
    "LOCAL_RANK": "1",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "NODE_RANK": "0",
    "RAY_JOB_ID": "01000000",
}
DEEPSPEED = {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2", "CROSS_RANK": "0"}


def openmpi(local_rank: int, local_size: int, *, rank: int | None = None, size: int | None = None) -> dict[str, str]:
    """What Open MPI sets: https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html"""
    return {
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "OMPI_COMM_WORLD_RANK": str(local_rank if rank is None else rank),
        "OMPI_COMM_WORLD_SIZE": str(local_size if size is None else size),
    }


def hydra(local_rank: int, local_size: int) -> dict[str, str]:
    """What MPICH's and Intel MPI's mpiexec set, as recorded."""
    return {
        "MPI_LOCALRANKID": str(local_rank),
        "MPI_LOCALNRANKS": str(local_size),
        "PMI_RANK": str(local_rank),
        "PMI_SIZE": str(local_size),
    }


def slurm(local_rank: int, tasks: int, **others: str) -> dict[str, str]:
    """What srun sets in one task of a step on one node: https://slurm.schedmd.com/srun.html"""
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_LOCALID": str(local_rank),
        "SLURM_PROCID": str(local_rank),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_TASKS_PER_NODE": str(tasks),
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": ",".join(map(str, range(tasks))),
        **others,
    }


def flux(local_rank: int, size: int, rank: int | None = None) -> dict[str, str]:
    """What Flux sets, which does not count the tasks of a node."""
    return {
        "FLUX_TASK_LOCAL_ID": str(local_rank),
        "FLUX_TASK_RANK": str(local_rank if rank is None else rank),
        "FLUX_JOB_SIZE": str(size),
    }


def without(environ: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}


def answer(environ: dict[str, str]) -> Launch | None:
    """The launch; None where it is refused as well."""
    try:
        return detect_launch(environ)
    except LocalRankError:
        return None


@pytest.mark.parametrize(("environ", "truth"), PROCESSES)
def test_a_recorded_process_gets_its_local_rank(environ: dict[str, str], truth: dict[str, Any]) -> None:
    """
    Each process of a recorded launch gets the local rank that it had; where the environment does not tell, it gets
    none, and never a wrong one. What else is told agrees with the record.
    """
    expected = None if truth["local_rank"] == "unknowable" else truth["local_rank"]

    launch = answer(environ) if truth["local_rank"] == "unknowable" else detect_launch(environ)

    assert expected == (launch and launch.local_rank)
    if launch is not None:
        assert truth["local_world_size"] in {None, launch.local_world_size} or launch.local_world_size is None
        assert truth["rank"] in {None, launch.rank} or launch.rank is None


@pytest.mark.parametrize(("environ", "truth"), PROCESSES)
def test_a_recorded_process_gets_no_undue_warning(environ: dict[str, str], truth: dict[str, Any]) -> None:
    """
    Only where LOCAL_RANK contradicts the launcher that started the recorded process is there a caution.
    """
    launch = answer(environ)

    cautious = launch is not None and launch.caution is not None
    assert (environ.get("LOCAL_RANK", str(truth["local_rank"])) != str(truth["local_rank"])) == cautious


@pytest.mark.parametrize(
    ("environ", "launcher", "local_rank"),
    [
        pytest.param({**TORCHRUN, **openmpi(0, 1), **slurm(0, 1)}, "torchrun", 1, id="torchrun-in-mpirun-in-slurm"),
        pytest.param({**TORCHRUN, **slurm(0, 1)}, "torchrun", 1, id="torchrun-in-one-task-a-node"),
        pytest.param({**RAY_TRAIN, **slurm(0, 1)}, "ray-train", 1, id="ray-started-by-slurm"),
        pytest.param({**TORCHRUN, **flux(0, 2, 1)}, "torchrun", 1, id="torchrun-in-one-flux-task-a-node"),
        pytest.param({**LIGHTNING, **slurm(0, 1)}, "lightning", 1, id="lightning-children-in-a-one-task-step"),
        pytest.param({"LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "1"}, "lightning", 0, id="lightning-alone"),
        pytest.param({**LIGHTNING, "LOCAL_RANK": "0", **slurm(0, 1)}, "lightning", 0, id="lightning-main-process"),
        pytest.param({**slurm(0, 1), "WORLD_SIZE": "1"}, "slurm", 0, id="as-many-processes-as-the-step"),
        pytest.param({**DEEPSPEED, **slurm(0, 1)}, "deepspeed", 1, id="deepspeed-in-a-one-task-step"),
        pytest.param({**DEEPSPEED, **hydra(1, 2)}, "deepspeed", 1, id="deepspeed-through-mpich"),
        pytest.param({**openmpi(2, 4), **slurm(0, 1)}, "openmpi", 2, id="mpirun-daemon-is-a-slurm-task"),
        pytest.param({**hydra(2, 4), **openmpi(0, 1)}, "hydra", 2, id="mpiexec-inside-a-single-openmpi-process"),
        pytest.param({**openmpi(1, 2), "WORLD_SIZE": "8"}, "openmpi", 1, id="beside-a-world-size-left-over"),
        pytest.param({**flux(1, 2), **slurm(0, 1)}, "flux", 1, id="flux-inside-slurm"),
        pytest.param(
            {
                "MV2_COMM_WORLD_LOCAL_RANK": "1",
                "MV2_COMM_WORLD_LOCAL_SIZE": "2",
                "MV2_COMM_WORLD_RANK": "1",
                "MV2_COMM_WORLD_SIZE": "2",
                **slurm(0, 1),
            },
            "mvapich",
            1,
            id="mvapich-rsh-in-slurm",
        ),
        pytest.param({**hydra(1, 2), **slurm(0, 1)}, "hydra", 1, id="mvapich-under-hydra-has-hydras-names"),
        pytest.param(
            {"PALS_LOCAL_RANKID": "1", "PALS_RANKID": "1", "PALS_NODEID": "0", "PMI_LOCAL_SIZE": "2", **slurm(1, 2)},
            "pals",
            1,
            id="srun-cray-shasta-sets-both",
        ),
        pytest.param({"PALS_RANKID": "3", **slurm(1, 2)}, "slurm", 1, id="pals-rank-without-a-local-one"),
        pytest.param({"PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}, "cray-pmi", 1, id="cray-pmi-without-pals"),
        pytest.param(
            {"JSM_NAMESPACE_LOCAL_RANK": "1", "JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2", **openmpi(1, 2)},
            "jsrun",
            1,
            id="jsrun-sets-openmpis-names-too",
        ),
        pytest.param({**BY_HAND, "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, "unknown", 1, id="beside-a-left-over"),
        pytest.param({**BY_HAND, **slurm(1, 2)}, "slurm", 1, id="a-script-passes-slurms-local-rank-on"),
        pytest.param({"LOCAL_RANK": "1", **slurm(1, 2)}, "slurm", 1, id="a-hook-passes-slurms-local-rank-on"),
        pytest.param({**BY_HAND, **openmpi(0, 1)}, "unknown", 1, id="by-hand-inside-a-single-process"),
        pytest.param(without(slurm(1, 2), "SLURM_GTIDS"), "slurm", 1, id="site-unsets-gtids"),
        pytest.param(slurm(1, 2, SLURM_HET_SIZE="2", SLURM_NTASKS="8"), "slurm", 1, id="heterogeneous-job"),
    ],
)
def test_the_inner_launcher_is_believed(environ: dict[str, str], launcher: str, local_rank: int) -> None:
    """
    Where one launcher runs inside another, or two names tell the same, the inner one's local rank holds, and nothing
    is in doubt. The values of each row are those that the launchers are recorded or documented to set.
    """
    launch = detect_launch(environ)

    assert launch is not None
    assert (launcher, local_rank, None) == (launch.launcher, launch.local_rank, launch.caution)


@pytest.mark.parametrize(
    ("environ", "local_rank", "names"),
    [
        pytest.param({**TORCHRUN, **slurm(3, 8)}, 1, "SLURM_LOCALID='3'", id="srun-once-for-each-gpu"),
        pytest.param({**TORCHRUN, **openmpi(1, 2)}, 1, "COMM_WORLD_LOCAL_RANK='1'", id="same-number-other-size"),
        pytest.param({**TORCHRUN, **flux(1, 8, 6)}, 1, "FLUX_TASK_LOCAL_ID='1'", id="neighbours-told-by-the-rank"),
        pytest.param(
            {**TORCHRUN, **openmpi(0, 1, rank=9), "OMPI_COMM_WORLD_SIZE": "x", **slurm(3, 8)},
            1,
            "SLURM_LOCALID='3'",
            id="srun-around-an-unreadable-mpirun",
        ),
        pytest.param({**RAY_TRAIN, **slurm(0, 2)}, 1, "SLURM_LOCALID='0'", id="two-ray-nodes-on-this-node"),
        pytest.param({"LOCAL_RANK": "7", **openmpi(1, 2)}, 1, "LOCAL_RANK='7'", id="mpirun-x-local-rank"),
        pytest.param({**BY_HAND, **slurm(0, 2)}, 0, "LOCAL_RANK='1'", id="exported-before-srun"),
        pytest.param({"LOCAL_RANK": "7", **openmpi(0, 1)}, 7, "LOCAL_RANK='7'", id="alone-beside-a-single-process"),
        pytest.param({**LIGHTNING, **flux(0, 2)}, 1, "FLUX_TASK_LOCAL_ID='0'", id="lightning-in-flux"),
        pytest.param({**LIGHTNING, **openmpi(0, 2)}, 0, "LOCAL_RANK='1'", id="lightning-counts-nobody-here"),
        pytest.param(
            {**DEEPSPEED, "LOCAL_RANK": "0", "LOCAL_SIZE": "1", **openmpi(1, 2)},
            1,
            "LOCAL_RANK='0'",
            id="deepspeed-counts-one-here",
        ),
        pytest.param({"LOCAL_RANK": "7", **flux(1, 2)}, 1, "LOCAL_RANK='7'", id="exported-before-flux-run"),
        pytest.param(
            {"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "2", **openmpi(1, 2)}, 1, "LOCAL_RANK='5'", id="contradicts-itself"
        ),
        pytest.param({**openmpi(0, 1), **slurm(1, 2)}, 1, "LOCAL_RANK='0' (openmpi", id="srun-inside-one-mpi-process"),
        pytest.param({**slurm(0, 1), "WORLD_SIZE": "4"}, 0, "WORLD_SIZE='4'", id="more-processes-than-the-step"),
    ],
)
def test_what_looks_left_over_is_said(environ: dict[str, str], local_rank: int, names: str) -> None:
    """
    Where the launcher that is believed has neighbours that disagree, or another's variables look left over, the
    caution names them and what to unset.
    """
    launch = detect_launch(environ)

    assert launch is not None
    assert local_rank == launch.local_rank
    assert names in (launch.caution or "")
    assert "unset" in (launch.caution or "")


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({**openmpi(1, 2), **hydra(0, 2)}, id="openmpi-and-hydra"),
        pytest.param({**openmpi(1, 2), **slurm(0, 2)}, id="openmpi-and-slurm"),
        pytest.param({**openmpi(0, 2), **slurm(0, 4)}, id="same-number-by-chance"),
        pytest.param({**flux(0, 4), **slurm(3, 4)}, id="flux-and-slurm"),
        pytest.param({**DEEPSPEED, **slurm(0, 4)}, id="deepspeed-and-slurm"),
        pytest.param({**BY_HAND, **flux(0, 4)}, id="by-hand-and-an-uncounted-flux"),
    ],
)
def test_a_conflict_that_cannot_be_settled_is_refused(environ: dict[str, str]) -> None:
    """
    Two launchers that both count several processes and disagree: neither is guessed, both are named.
    """
    with pytest.raises(LocalRankError, match=r"disagree.*unset") as caught:
        detect_launch(environ)

    assert 2 == len(caught.value.launcher.split(" and "))
    assert caught.value.value == environ[caught.value.variable]


@pytest.mark.parametrize(
    ("environ", "fix"),
    [
        pytest.param({**openmpi(0, 1), **slurm(1, 2)}, "unset OMPI_COMM_WORLD_LOCAL_RANK", id="the-one-around"),
        pytest.param(
            {"LOCAL_RANK": "7", **openmpi(0, 1)},
            "unset LOCAL_RANK if it is left over, or OMPI_COMM_WORLD_LOCAL_RANK if that is",
            id="either",
        ),
        pytest.param(
            {"LOCAL_RANK": "7", **openmpi(1, 2)},
            "unset LOCAL_RANK before the program is started",
            id="local-rank",
        ),
    ],
)
def test_a_caution_ends_with_the_variables_to_unset(environ: dict[str, str], fix: str) -> None:
    """
    What to unset is named by its variable, not by its launcher.
    """
    launch = detect_launch(environ)

    assert launch is not None
    assert fix == (launch.caution or "").partition("\n  fix: ")[2]


@pytest.mark.parametrize(
    ("environ", "both", "variables"),
    [
        pytest.param(
            {**openmpi(1, 2), **hydra(0, 3)},
            "OMPI_COMM_WORLD_LOCAL_RANK='1' (openmpi, one of 2 here) and MPI_LOCALRANKID='0' (hydra, one of 3 here) ",
            "OMPI_COMM_WORLD_LOCAL_RANK or MPI_LOCALRANKID, ",
            id="counted",
        ),
        pytest.param(
            {**BY_HAND, **flux(0, 4)},
            "LOCAL_RANK='1' (unknown) and FLUX_TASK_LOCAL_ID='0' (flux) ",
            "LOCAL_RANK or FLUX_TASK_LOCAL_ID, ",
            id="uncounted",
        ),
    ],
)
def test_a_conflict_shows_both_sides(environ: dict[str, str], both: str, variables: str) -> None:
    """
    Each side with its variable, its value, its launcher and, where it is told, the count; then what to unset.
    """
    with pytest.raises(LocalRankError) as caught:
        detect_launch(environ)

    reason, remedy = str(caught.value).splitlines()
    assert reason.startswith(f"{both}disagree")
    assert remedy.startswith(f"  that is {variables}")


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"LOCAL_RANK": "", "RANK": "", "WORLD_SIZE": ""}, id="empty-is-unset"),
        pytest.param({"LOCAL_RANK": "-1", "WORLD_SIZE": "-1"}, id="minus-one-is-unset"),
        pytest.param({"WORLD_SIZE": "1", "RANK": "0"}, id="a-world-of-one"),
        pytest.param({"WORLD_SIZE": "many"}, id="unreadable-left-over-count"),
        pytest.param({"WORLD_SIZE": "9" * 5000}, id="more-digits-than-python-reads"),
        pytest.param({"OMPI_COMM_WORLD_LOCAL_RANK": "5"}, id="one-lone-variable"),
        pytest.param({"OMPI_COMM_WORLD_LOCAL_RANK": "x"}, id="one-lone-unreadable-variable"),
        pytest.param({"OMPI_COMM_WORLD_SIZE": "8"}, id="a-lone-count"),
        pytest.param({"PMIX_RANK": "1"}, id="prterun-counts-nothing"),
        pytest.param({"RANK": "3"}, id="rank-alone"),
        pytest.param({"JOB_COMPLETION_INDEX": "3"}, id="number-of-a-pod"),
        pytest.param({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}, id="batch-script"),
        pytest.param({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"}, id="salloc-shell-on-the-submit-host"),
        pytest.param(slurm(0, 4, SLURM_STEP_ID="4294967290"), id="interactive-step"),
        pytest.param(slurm(0, 4, SLURM_STEP_ID="4294967280"), id="first-pseudo-step"),
        pytest.param(slurm(0, 4, SLURM_STEP_ID=""), id="no-step"),
        pytest.param({"SLURM_LOCALID": "x", "SLURM_STEP_ID": "4294967290"}, id="unreadable-outside-a-step"),
        pytest.param(openmpi(0, 1) | {"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, id="contradicts-itself"),
        pytest.param(
            without(slurm(9, 4), "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"), id="slurm-beyond-the-list"
        ),
    ],
)
def test_what_no_launcher_started_has_no_launch(environ: dict[str, str]) -> None:
    """
    Left-overs, shells and numbers that are no local rank are no launch.
    """
    assert detect_launch(environ) is None


@pytest.mark.parametrize("launcher", [pytest.param(row, id=row.name) for row in LAUNCHERS if row.name != "unknown"])
def test_a_local_rank_without_the_rest_of_its_launcher_is_left_over(launcher: EnvLauncher) -> None:
    """
    No launcher but the unknown one behind LOCAL_RANK counts by the variable of its local rank alone.
    """
    assert launcher.detect({launcher.local_rank: "1"}) is None


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"WORLD_SIZE": "4", "RANK": "3"}, id="rank-and-world-size"),
        pytest.param({"WORLD_SIZE": "2"}, id="debug-launcher"),
        pytest.param({"PMI_RANK": "1", "PMI_SIZE": "4"}, id="gforker"),
        pytest.param(without(openmpi(1, 2), "OMPI_COMM_WORLD_LOCAL_RANK"), id="openmpi-without-a-local-rank"),
        pytest.param(without(slurm(1, 2), "SLURM_LOCALID"), id="slurm-without-a-local-rank"),
        pytest.param(slurm(1, 4, SLURM_PROCID="3"), id="slurm-of-two-tasks"),
        pytest.param(slurm(0, 4, SLURM_PROCID="3"), id="slurm-of-two-tasks-local-rank-0"),
        pytest.param(slurm(9, 4), id="slurm-beyond-the-list"),
        pytest.param(openmpi(5, 2, rank=0), id="openmpi-contradicts-itself"),
        pytest.param({"LOCAL_RANK": "-1", "WORLD_SIZE": "4"}, id="minus-one-of-four"),
    ],
)
def test_several_processes_without_a_local_rank_are_refused(environ: dict[str, str]) -> None:
    """
    A count above one and no local rank: the error lists the names that were looked for.
    """
    with pytest.raises(LocalRankError, match="counts several processes") as caught:
        detect_launch(environ)

    assert all(name in str(caught.value) for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"))
    assert "looked for: LOCAL_RANK, JSM_NAMESPACE_LOCAL_RANK, " in str(caught.value)
    assert ("unknown", "LOCAL_RANK") == (caught.value.launcher, caught.value.variable)
    assert environ.get("LOCAL_RANK") == caught.value.value


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        pytest.param(
            {"SLURM_LOCALID": "2", "SLURM_NTASKS": "4", "SLURM_PROCID": "2"},
            "not believed: SLURM_LOCALID='2', since",
            id="incomplete",
        ),
        pytest.param(
            {"SLURM_LOCALID": "2", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "5"},
            "not believed: OMPI_COMM_WORLD_LOCAL_RANK='5', SLURM_LOCALID='2', since",
            id="two-of-them",
        ),
        pytest.param(
            openmpi(5, 2, rank=0), "not believed: OMPI_COMM_WORLD_LOCAL_RANK='5', since", id="contradicts-itself"
        ),
        pytest.param(
            {"WORLD_SIZE": "2"}, "a variable without the others of its launcher is left over", id="none-is-set"
        ),
    ],
)
def test_a_local_rank_that_is_set_and_not_believed_is_named(environ: dict[str, str], told: str) -> None:
    """
    The error does not say that there is none, without a word of the one that is there.
    """
    with pytest.raises(LocalRankError) as caught:
        detect_launch(environ)

    assert told in str(caught.value).splitlines()[-1]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("abc", id="word"),
        pytest.param("-2", id="negative"),
        pytest.param("+1", id="sign"),
        pytest.param(" 1 ", id="blanks"),
        pytest.param("1\n", id="newline"),
        pytest.param("1.0", id="fraction"),
        pytest.param("0x1", id="hexadecimal"),
        pytest.param("1_0", id="underscore"),
        pytest.param("²", id="superscript"),
        pytest.param("\uff10", id="fullwidth-digit"),
        pytest.param("1(x2)", id="slurm-list"),
        pytest.param("1" * 5_000, id="more-digits-than-int-takes"),
        pytest.param("x" * 1_000_000, id="a-million-characters"),
        pytest.param("1\x00\x1b[31m", id="control-characters"),
        pytest.param("\udc80", id="undecodable-byte"),
    ],
)
@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        pytest.param({}, "LOCAL_RANK", id="alone"),
        pytest.param(TORCHRUN, "LOCAL_RANK", id="torchrun"),
        pytest.param(TORCHRUN, "LOCAL_WORLD_SIZE", id="torchrun-size"),
        pytest.param(openmpi(0, 2), "LOCAL_RANK", id="beside-openmpi"),
        pytest.param(openmpi(0, 2), "OMPI_COMM_WORLD_LOCAL_RANK", id="openmpi"),
        pytest.param(openmpi(0, 2), "OMPI_COMM_WORLD_LOCAL_SIZE", id="openmpi-size"),
        pytest.param(openmpi(0, 2), "OMPI_COMM_WORLD_RANK", id="openmpi-rank"),
        pytest.param({"LOCAL_RANK": "0", **openmpi(0, 2)}, "OMPI_COMM_WORLD_RANK", id="openmpi-rank-with-local-rank"),
        pytest.param(slurm(0, 2), "SLURM_LOCALID", id="slurm"),
        pytest.param(slurm(0, 2), "SLURM_STEP_ID", id="slurm-step"),
    ],
)
def test_what_is_no_number_is_refused(environ: dict[str, str], variable: str, value: str) -> None:
    """
    LOCAL_RANK, or a variable of a launcher that is otherwise complete, holds no number in ASCII digits: the error
    names the variable and its value, on one short line, and what to unset.
    """
    with pytest.raises(LocalRankError) as caught:
        detect_launch({**environ, variable: value})

    assert (variable, value) == (caught.value.variable, caught.value.value)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(variable + "=")
    assert "unset" in first
    assert len(first) < 400
    assert first.isprintable()


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        pytest.param({"LOCAL_RANK": "x"}, "LOCAL_RANK='x' is not a local rank: ", id="local-rank"),
        pytest.param(
            {**openmpi(0, 2), "OMPI_COMM_WORLD_LOCAL_RANK": "x"},
            "OMPI_COMM_WORLD_LOCAL_RANK='x' is not a local rank: ",
            id="local-rank-of-a-launcher",
        ),
        pytest.param({**TORCHRUN, "WORLD_SIZE": "x"}, "WORLD_SIZE='x' is not a number from 0: ", id="count"),
    ],
)
def test_what_should_be_there_is_told(environ: dict[str, str], said: str) -> None:
    """
    A local rank, or a number.
    """
    with pytest.raises(LocalRankError) as caught:
        detect_launch(environ)

    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "2"}, id="beyond-the-node"),
        pytest.param({"LOCAL_RANK": "5", "WORLD_SIZE": "4", "RANK": "1"}, id="beyond-the-world"),
        pytest.param({**TORCHRUN, "LOCAL_RANK": "4"}, id="torchrun"),
        pytest.param({**TORCHRUN, "LOCAL_RANK": "4", **openmpi(1, 2)}, id="torchrun-in-mpirun"),
        pytest.param({**TORCHRUN, "RANK": "8"}, id="rank-beyond-the-world"),
        pytest.param({**TORCHRUN, "WORLD_SIZE": "3", "RANK": "1"}, id="node-larger-than-the-world"),
        pytest.param({"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "2", **openmpi(0, 1)}, id="beside-a-single-process"),
        pytest.param({"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "2", "SLURM_LOCALID": "0"}, id="beside-a-left-over"),
    ],
)
def test_a_local_rank_that_contradicts_its_companions_is_refused(environ: dict[str, str]) -> None:
    """
    Both sides of the contradiction are named, with what to unset.
    """
    with pytest.raises(LocalRankError, match=r"contradict each other: unset both") as caught:
        detect_launch(environ)

    assert ("LOCAL_RANK", environ["LOCAL_RANK"]) == (caught.value.variable, caught.value.value)


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [
        pytest.param({**TORCHRUN, "LOCAL_RANK": "4"}, "torchrun", id="contradicts-itself"),
        pytest.param({"LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "2"}, "unknown", id="contradicts-itself-unsigned"),
        pytest.param({**openmpi(0, 2), "OMPI_COMM_WORLD_RANK": "x"}, "openmpi", id="unreadable"),
    ],
)
def test_an_error_names_the_launcher_at_fault(environ: dict[str, str], launcher: str) -> None:
    """
    As an attribute, for whoever catches it.
    """
    with pytest.raises(LocalRankError) as caught:
        detect_launch(environ)

    assert launcher == caught.value.launcher


def test_the_first_of_several_faults_is_named() -> None:
    """
    Of two unreadable variables of one launcher, the error names the first.
    """
    environ = {**openmpi(0, 2), "OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "y"}

    with pytest.raises(LocalRankError, match="OMPI_COMM_WORLD_RANK='x'"):
        detect_launch(environ)


def test_companions_of_an_unsigned_local_rank_may_be_unreadable() -> None:
    """
    A LOCAL_RANK that no launcher signed is read although RANK beside it is not.
    """
    launch = detect_launch({"LOCAL_RANK": "1", "RANK": "x"})

    assert launch is not None
    assert (1, None) == (launch.local_rank, launch.rank)


def test_what_is_around_torchrun_may_be_unreadable() -> None:
    """
    torchrun's workers are the inner ones: a fault in another launcher's variables does not concern them.
    """
    launch = detect_launch({**TORCHRUN, **openmpi(0, 1), "OMPI_COMM_WORLD_RANK": "x"})

    assert launch is not None
    assert ("torchrun", None) == (launch.launcher, launch.caution)


@pytest.mark.parametrize(
    ("outer", "source"),
    [
        pytest.param(
            {"HOROVOD_LOCAL_RANK": "2", "HOROVOD_LOCAL_SIZE": "4", "HOROVOD_RANK": "2", "HOROVOD_SIZE": "4"},
            "HOROVOD_LOCAL_RANK='2'",
            id="horovod",
        ),
        pytest.param(
            {"PMI_LOCAL_RANK": "2", "PMI_LOCAL_SIZE": "4", "PMI_RANK": "2", "PMI_SIZE": "4"},
            "PMI_LOCAL_RANK='2'",
            id="cray-pmi",
        ),
        pytest.param(
            {"JSM_NAMESPACE_LOCAL_RANK": "2", "JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "4"},
            "JSM_NAMESPACE_LOCAL_RANK='2'",
            id="jsrun",
        ),
        pytest.param(openmpi(2, 4), "OMPI_COMM_WORLD_LOCAL_RANK='2'", id="openmpi"),
    ],
)
def test_one_torchrun_in_each_of_several_processes_is_told(outer: dict[str, str], source: str) -> None:
    """
    Each gives its only worker local rank 0, so that all would take the first device: whatever started them.
    """
    alone = {**TORCHRUN, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "RANK": "0", "WORLD_SIZE": "1", "GROUP_RANK": "0"}
    launch = detect_launch({**alone, **outer})

    assert launch is not None
    assert launch.caution is not None
    assert source in launch.caution


def test_torchrun_in_tasks_with_devices_of_their_own_is_no_cause_for_warning() -> None:
    """
    Where Slurm gives each of several tasks on a node devices of its own, a torchrun in each is sound.
    """
    launch = detect_launch({**TORCHRUN, **slurm(1, 2, SLURMD_TRES_BIND="gpu:per_task:4")})

    assert launch is not None
    assert launch.caution is None


@pytest.mark.parametrize(
    ("environ", "confirmed"),
    [
        pytest.param({"LOCAL_RANK": "1"}, False, id="alone"),
        pytest.param({"LOCAL_RANK": "7", **openmpi(0, 1)}, False, id="beside-a-single-process"),
        pytest.param({"LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}, True, id="with-the-sign-of-torchrun"),
        pytest.param(BY_HAND, True, id="with-its-companions"),
        pytest.param({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, True, id="with-a-count"),
        pytest.param({"LOCAL_RANK": "1", **slurm(1, 2)}, True, id="slurm-says-the-same"),
        pytest.param(openmpi(1, 2), True, id="openmpi"),
    ],
)
def test_a_lone_local_rank_is_unconfirmed(environ: dict[str, str], confirmed: bool) -> None:
    """
    LOCAL_RANK without any sign of a launcher may be left over in a shell.
    """
    launch = detect_launch(environ)

    assert launch is not None
    assert confirmed == launch.confirmed


def test_all_values_come_from_one_launcher_with_their_variables() -> None:
    """
    A launch tells every value that its launcher sets, and the variable of each; the local rank comes first.
    """
    launch = detect_launch({**TORCHRUN, **openmpi(0, 1, rank=1, size=2)})

    expected = Launch(
        launcher="torchrun",
        local_rank=1,
        local_world_size=4,
        rank=5,
        world_size=8,
        node_rank=1,
        sources=(
            ("local_rank", "LOCAL_RANK"),
            ("rank", "RANK"),
            ("world_size", "WORLD_SIZE"),
            ("node_rank", "GROUP_RANK"),
            ("local_world_size", "LOCAL_WORLD_SIZE"),
        ),
    )
    assert expected == launch
    assert "LOCAL_RANK" == expected.source


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        pytest.param(slurm(1, 2), "SLURM_GTIDS", id="the-tasks-themselves"),
        pytest.param(without(slurm(1, 2), "SLURM_GTIDS"), "SLURM_STEP_TASKS_PER_NODE", id="their-number"),
    ],
)
def test_a_count_that_stood_in_a_list_has_its_variable_too(environ: dict[str, str], variable: str) -> None:
    """
    Slurm's number of tasks on this node is known from one of two lists.
    """
    launch = detect_launch(environ)

    assert launch is not None
    assert ("local_world_size", variable) == launch.sources[-1]


@pytest.mark.parametrize(
    ("lists", "count"),
    [
        pytest.param({"SLURM_GTIDS": "0,2,3"}, 3, id="gtids"),
        pytest.param({"SLURM_GTIDS": "0"}, 1, id="gtids-of-one"),
        pytest.param({"SLURM_GTIDS": "x,y", "SLURM_STEP_TASKS_PER_NODE": "2"}, 2, id="unreadable-gtids"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "4"}, 4, id="one-node"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "1,3", "SLURM_NODEID": "1"}, 3, id="uneven-nodes"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "1"}, 2, id="repeated"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "2"}, 1, id="behind-the-repeated"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "2(x999999999999)", "SLURM_NODEID": "9"}, 2, id="not-expanded"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "2"}, None, id="node-beyond-the-list"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "2(xy)"}, None, id="unreadable-list"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "two"}, None, id="unreadable-entry"),
        pytest.param({"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": ""}, None, id="unknown-node"),
        pytest.param({}, None, id="no-list"),
    ],
)
def test_slurms_lists_give_the_local_world_size(lists: dict[str, str], count: int | None) -> None:
    """
    The tasks on this node are counted in SLURM_GTIDS, or looked up in SLURM_STEP_TASKS_PER_NODE. What cannot be read
    there is not told: the local rank does not depend on it.
    """
    names = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_GTIDS")

    launch = detect_launch({**without(slurm(0, 8), *names), **lists})

    assert launch is not None
    assert count == launch.local_world_size


def test_the_first_of_two_variables_of_a_field_counts() -> None:
    """
    hydra gives PMI_RANK, or PMI_ID with -pmi-port; a PMI_ID beside PMI_RANK does not count twice.
    """
    launch = detect_launch({**hydra(1, 2), "PMI_ID": "0"})

    assert launch is not None
    assert (1, [("rank", "PMI_RANK")]) == (launch.rank, [pair for pair in launch.sources if pair[0] == "rank"])


class ByNameOnly(dict[str, str]):
    """An environment that says which names were read, and cannot be copied or searched."""

    def __init__(self, environ: dict[str, str]) -> None:
        super().__init__(environ)
        self.read: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        self.read.append(name)
        return super().get(name, default)

    def __iter__(self) -> Any:
        raise AssertionError("the environment was searched")

    keys = items = values = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("environ", "reads"),
    [
        pytest.param({}, 15, id="none"),
        pytest.param(TORCHRUN, 18, id="torchrun"),
        pytest.param(openmpi(1, 2), 15, id="openmpi"),
        pytest.param(slurm(1, 2), 17, id="slurm"),
    ],
)
def test_few_variables_are_read_and_all_by_name(environ: dict[str, str], reads: int) -> None:
    """
    The names of each launcher's local rank are read, and more only of a launcher that is there. An absent variable
    costs a microsecond: there are ten local ranks, and a launcher has up to eight variables.
    """
    watched = ByNameOnly(environ)

    detect_launch(watched)

    assert reads >= len(watched.read)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in LAUNCHERS if isinstance(row, EnvLauncher)])
def test_a_row_made_of_another_reads_like_it(row: EnvLauncher) -> None:
    """
    Who derives a row from one of the table gets the same answers, with as many readings.
    """
    derived = replace(row, documentation="https://example.org")

    for process in PROCESSES:
        environ = process.values[0]
        by_table, by_derived = ByNameOnly(environ), ByNameOnly(environ)  # type: ignore[arg-type]
        assert outcome(row, by_table) == outcome(derived, by_derived)
        assert by_table.read == by_derived.read


def outcome(row: EnvLauncher, environ: dict[str, str]) -> Launch | str | None:
    try:
        return row.detect(environ)
    except LocalRankError as error:
        return str(error)


def test_a_row_asks_for_its_mark() -> None:
    """
    A variable that holds no number, and that the launcher always sets, has to be there.
    """
    row = EnvLauncher(name="mine", local_rank="MINE_LOCAL_RANK", requires=("MINE_JOB",))

    assert row.detect({"MINE_LOCAL_RANK": "1"}) is None
    assert row.detect({"MINE_LOCAL_RANK": "1", "MINE_JOB": "any text"}) is not None


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards what a test registers."""
    monkeypatch.setattr(launchers, "LAUNCHERS", LAUNCHERS)


SITE = EnvLauncher(
    name="site", local_rank="SITE_LOCAL", local_world_size="SITE_LOCAL_SIZE", requires=("SITE_LOCAL_SIZE",)
)
SITE_ENVIRON = {"SITE_LOCAL": "1", "SITE_LOCAL_SIZE": "2"}


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("environ", "launcher"),
    [
        pytest.param(SITE_ENVIRON, "site", id="alone"),
        pytest.param({**SITE_ENVIRON, **openmpi(1, 2)}, "site", id="before-those-of-its-kind"),
        pytest.param({**SITE_ENVIRON, **slurm(0, 1)}, "site", id="inside-slurm"),
        pytest.param({**SITE_ENVIRON, **TORCHRUN}, "torchrun", id="behind-local-rank"),
        pytest.param({"SITE_LOCAL": "1"}, None, id="left-over"),
    ],
)
def test_a_row_adds_a_launcher(environ: dict[str, str], launcher: str | None) -> None:
    """
    A registered row comes before the launchers of its kind, and behind those that set LOCAL_RANK.
    """
    register_launcher(SITE)

    launch = detect_launch(environ)

    assert launcher == (launch and launch.launcher)


@pytest.mark.usefixtures("registry")
def test_a_row_for_local_rank_comes_first() -> None:
    """
    A registered row whose variable is LOCAL_RANK comes before all others.
    """
    register_launcher(EnvLauncher(name="mine", local_rank="LOCAL_RANK", requires=("MINE",)))

    launch = detect_launch({**TORCHRUN, "MINE": "yes"})

    assert launch is not None
    assert "mine" == launch.launcher
    assert "mine" == launchers.LAUNCHERS[0].name


@pytest.mark.usefixtures("registry")
def test_any_other_row_goes_behind_those_for_local_rank() -> None:
    """
    The last one for LOCAL_RANK is the unknown launcher; a launcher that tells no variable is of the other kind.
    """
    register_launcher(Pool())
    register_launcher(SITE)

    names = [launcher.name for launcher in launchers.LAUNCHERS]
    assert ["unknown", "site", "pool", "jsrun"] == names[names.index("unknown") :][:4]


class Pool:
    """A launcher with logic of its own, that tells no variable."""

    name = "pool"

    def detect(self, environ: Any, /) -> Launch | None:
        slot = environ.get("POOL_SLOT")
        return None if slot is None else Launch(launcher=self.name, local_rank=int(slot) - 1, local_world_size=4)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("environ", "local_rank"),
    [pytest.param({"POOL_SLOT": "3"}, 2, id="there"), pytest.param({}, None, id="not-there")],
)
def test_an_object_adds_a_launcher(environ: dict[str, str], local_rank: int | None) -> None:
    """
    An object with a name and a detect method is asked each time, since nothing says which variable it needs.
    """
    register_launcher(Pool())

    launch = detect_launch(environ)

    assert local_rank == (launch and launch.local_rank)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    "others",
    [pytest.param(slurm(0, 4), id="slurm"), pytest.param(DEEPSPEED, id="deepspeed")],
)
def test_a_launcher_without_a_variable_is_named_in_a_conflict(others: dict[str, str]) -> None:
    """
    A launcher that tells no variable is named by its name, and the error still tells what it can.
    """
    register_launcher(Pool())

    with pytest.raises(LocalRankError, match=r"local rank 2 \(pool, one of 4 here\)"):
        detect_launch({"POOL_SLOT": "3", **others})


@pytest.mark.usefixtures("registry")
def test_a_launcher_without_a_variable_is_not_looked_for_by_one() -> None:
    """
    Where no local rank is found, the names that were looked for are those of the others.
    """
    register_launcher(Pool())

    with pytest.raises(LocalRankError, match="looked for: LOCAL_RANK, JSM_NAMESPACE_LOCAL_RANK, "):
        detect_launch({"WORLD_SIZE": "4"})


class Script:
    """A launcher with logic of its own, that reads LOCAL_RANK."""

    name = "script"
    local_rank = "LOCAL_RANK"

    def detect(self, environ: Any, /) -> Launch | None:
        return Launch(launcher=self.name, local_rank=int(environ["LOCAL_RANK"]))


@pytest.mark.usefixtures("registry")
def test_an_object_may_read_local_rank() -> None:
    """
    It is asked before the rows of the table.
    """
    register_launcher(Script())

    assert Launch(launcher="script", local_rank=5) == detect_launch({"LOCAL_RANK": "5"})


@pytest.mark.usefixtures("registry")
def test_an_object_that_reads_local_rank_need_not_be_the_inner_launcher() -> None:
    """
    As of a row without such a promise: a launcher that counts several processes here and disagrees is believed.
    """
    register_launcher(Script())

    launch = detect_launch({"LOCAL_RANK": "5", **openmpi(1, 2)})

    assert launch is not None
    assert ("openmpi", 1) == (launch.launcher, launch.local_rank)


@pytest.mark.usefixtures("registry")
def test_an_object_for_local_rank_is_settled_like_a_row() -> None:
    """
    Where what it says contradicts itself, a launcher that counts several processes is believed.
    """

    class Strict(Script):
        def detect(self, environ: Any, /) -> Launch | None:
            raise LocalRankError(self.name, "LOCAL_RANK", environ["LOCAL_RANK"], "more than there are: unset it")

    register_launcher(Strict())

    launch = detect_launch({"LOCAL_RANK": "5", **openmpi(1, 2)})

    assert launch is not None
    assert ("openmpi", 1) == (launch.launcher, launch.local_rank)
    assert "LOCAL_RANK='5' looks left over" in (launch.caution or "")


@pytest.mark.usefixtures("registry")
def test_a_variable_that_is_not_set_is_shown_as_empty() -> None:
    """
    A launcher of one's own may name a source that is no variable of this environment; the conflict is still told.
    """

    class Elsewhere(Pool):
        def detect(self, environ: Any, /) -> Launch | None:
            launch = super().detect(environ)
            return launch and replace(launch, sources=(("local_rank", "POOL_FILE"),))

    register_launcher(Elsewhere())

    with pytest.raises(LocalRankError, match=r"^POOL_FILE='' \(pool, one of 4 here\) and SLURM_LOCALID='0'"):
        detect_launch({"POOL_SLOT": "3", **slurm(0, 4)})


@pytest.mark.usefixtures("registry")
def test_a_name_is_registered_once() -> None:
    """
    A second launcher of one name is refused, and the table stays as it was.
    """
    register_launcher(SITE)
    before = launchers.LAUNCHERS

    with pytest.raises(ValueError, match="there is a launcher named 'site' already"):
        register_launcher(EnvLauncher(name="site", local_rank="ANOTHER_LOCAL_RANK"))

    assert before is launchers.LAUNCHERS


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param("torchrun", id="text"),
        pytest.param(object(), id="no-name"),
        pytest.param(type("Nameless", (), {"name": "", "detect": print})(), id="empty-name"),
        pytest.param(type("Deaf", (), {"name": "deaf"})(), id="no-detect"),
    ],
)
def test_what_is_no_launcher_is_refused(launcher: Any) -> None:
    """
    A launcher has a name and a detect method.
    """
    with pytest.raises(TypeError, match="a launcher has a name and a method detect"):
        register_launcher(launcher)


@pytest.mark.parametrize("empty", ["name", "local_rank"])
def test_a_row_without_a_name_is_refused(empty: str) -> None:
    """
    Nothing could be read by it, or it could not be named in a message.
    """
    row = {"name": "acme", "local_rank": "ACME_LOCAL_RANK"} | {empty: ""}

    with pytest.raises(ValueError, match=rf"{empty}=''.*: neither may be empty"):
        EnvLauncher(**row)


def test_a_row_whose_requirements_lack_their_comma_is_refused() -> None:
    """
    A text would be read letter by letter, and the launcher never seen; what the error tells to write is right.
    """
    with pytest.raises(TypeError, match=r"requires is a tuple of names") as caught:
        EnvLauncher(name="acme", local_rank="ACME_LOCAL_RANK", requires="ACME_JOB")  # type: ignore[arg-type]

    assert str(caught.value).endswith("write requires=('ACME_JOB',)")


def test_every_launcher_names_its_documentation() -> None:
    """
    Each row gives the address of the page that names its variables, and no name is used twice.
    """
    rows = [launcher for launcher in LAUNCHERS if isinstance(launcher, EnvLauncher)]

    assert len(LAUNCHERS) == len({row.name for row in rows})
    assert [] == [row.name for row in rows if not row.documentation.startswith("https://")]


def test_the_environment_of_this_process_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without an argument, os.environ is read.
    """
    monkeypatch.setenv("LOCAL_RANK", "3")

    launch = detect_launch()

    assert launch is not None
    assert 3 == launch.local_rank


def test_a_rank_of_slurms_alone_is_no_local_rank() -> None:
    """
    A container that was given a task's rank and count, and no local rank, is one of several.
    """
    with pytest.raises(LocalRankError, match="SLURM_NTASKS='4' counts several"):
        detect_launch({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"})


def test_a_batch_script_is_no_task_of_several() -> None:
    """
    A batch script has the job's count, and number 0: nothing launched several of it.
    """
    assert detect_launch({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}) is None


def test_the_same_launcher_may_be_registered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A notebook's cell that registers a launcher can be run twice; another launcher of that name is refused.
    """
    monkeypatch.setattr(launchers, "LAUNCHERS", launchers.LAUNCHERS)
    row = {"name": "kubefarm", "local_rank": "KUBEFARM_LOCAL_RANK"}
    launchers.register_launcher(launchers.EnvLauncher(**row))
    known = launchers.LAUNCHERS

    launchers.register_launcher(launchers.EnvLauncher(**row))

    assert known == launchers.LAUNCHERS
    with pytest.raises(ValueError, match="kubefarm"):
        launchers.register_launcher(launchers.EnvLauncher(**row, rank="KUBEFARM_RANK"))


@pytest.mark.parametrize("text", ["4", "4 ", " 4", "+4", "\u0664"])
def test_a_count_is_read_as_a_script_reads_it(text: str) -> None:
    """
    By ``int()``: a shell of Windows leaves a blank behind it, and torch takes that for 4.
    """
    with pytest.raises(LocalRankError, match="counts several processes"):
        detect_launch({"RANK": "2", "WORLD_SIZE": text})


@pytest.mark.parametrize("rank", [127, 128, 4095, 10**17])
def test_ranks_of_any_size_are_read(rank: int) -> None:
    """
    The largest jobs have more processes than any table of small numbers.
    """
    launch = detect_launch({**TORCHRUN, "LOCAL_RANK": "0", "RANK": str(rank), "WORLD_SIZE": str(rank + 1)})

    assert launch is not None
    assert (rank, rank + 1) == (launch.rank, launch.world_size)


def test_a_local_rank_as_large_as_the_world_contradicts_it() -> None:
    """
    Where no rank is told, the local rank alone shows it: it counts from 0.
    """
    with pytest.raises(LocalRankError, match="contradict each other"):
        detect_launch({"LOCAL_RANK": "2", "WORLD_SIZE": "2"})
