"""check_launcher and check_policy say what is missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch

import safedev
from safedev import policies
from safedev.errors import LocalRankError
from safedev.launchers import LAUNCHERS, EnvLauncher, Launch
from safedev.testing import check_launcher, check_policy, launched_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from safedev._diagnosis import Diagnosis

ENVIRON = {"ACME_LOCAL_RANK": "1", "ACME_JOB": "7", "ACME_RANK": "5", "ACME_SIZE": "2"}
ACME_RANK = (("local_rank", "ACME_LOCAL_RANK"),)


class Acme:
    """A launcher with logic of its own, whose parts a test may break."""

    name: Any = "acme"

    def __init__(self, detect: Callable[[Mapping[str, str]], Any]) -> None:
        self.detect: Any = detect


def sound(environ: Mapping[str, str], **changed: Any) -> Launch | None:
    text = environ.get("ACME_LOCAL_RANK", "")
    if text in {"", "-1"} or "ACME_JOB" not in environ:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise LocalRankError("acme", "ACME_LOCAL_RANK", text, "no number")
    told: dict[str, Any] = {
        "launcher": "acme",
        "local_rank": int(text),
        "sources": (("local_rank", "ACME_LOCAL_RANK"),),
    }
    return Launch(**{**told, **changed})


@pytest.mark.parametrize("name", [pytest.param(row.name, id=row.name) for row in LAUNCHERS])
def test_the_launchers_of_the_table_pass(name: str) -> None:
    """
    Each row of the table reads the environment of its launcher.
    """
    row = next(row for row in LAUNCHERS if row.name == name)

    check_launcher(row, environ=launched_by(name, local_rank=1, local_world_size=4, rank=5), local_rank=1)


# From the documentation of each launcher, not from the table.
@pytest.mark.parametrize(
    "variable",
    [
        *("RANK", "PMI_RANK", "PMI_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "FLUX_TASK_RANK"),
        *("JSM_NAMESPACE_RANK", "HOROVOD_RANK", "MV2_COMM_WORLD_RANK"),
        *("NODE_RANK", "GROUP_RANK", "CROSS_RANK", "HOROVOD_CROSS_RANK", "PALS_NODEID", "SLURM_NODEID"),
    ],
)
def test_a_rank_in_the_whole_job_is_refused_as_a_local_rank(variable: str) -> None:
    """
    On the first node it is right by chance; on the next it is not, and neither is the number of a node.
    """
    launcher = EnvLauncher(name="acme", local_rank=variable, requires=("ACME_JOB",))

    with pytest.raises(AssertionError, match=f"^launcher 'acme': it reads {variable}, a rank in the whole job or"):
        check_launcher(launcher, environ={variable: "1", "ACME_JOB": "7"}, local_rank=1)


@pytest.mark.parametrize("variable", ["ACME_RANK", "OMPI_COMM_WORLD_NODE_RANK", "LOCAL_RANK"])
def test_a_variable_that_is_no_known_rank_may_be_a_local_rank(variable: str) -> None:
    """
    A name of the launcher's own, one that only sounds like a node's number, and the name that all share.
    """
    launcher = EnvLauncher(name="acme", local_rank=variable, requires=("ACME_JOB",))

    check_launcher(launcher, environ={variable: "1", "ACME_JOB": "7"}, local_rank=1)


def test_a_launcher_with_logic_passes() -> None:
    """
    An object with a name and a detect method is enough.
    """
    check_launcher(Acme(sound), environ=ENVIRON, local_rank=1)


def read(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in ENVIRON if name in environ}


def sizes(environ: Mapping[str, str]) -> dict[str, Any]:
    size = environ["ACME_SIZE"]
    told = int(size) if size.isdigit() and size.isascii() and len(size) < 9 else None
    return {"local_world_size": told, "sources": (*ACME_RANK, ("local_world_size", "ACME_SIZE"))}


def lenient(environ: Mapping[str, str]) -> Launch | None:
    try:
        return sound(environ)
    except LocalRankError:
        return sound({**read(environ), "ACME_LOCAL_RANK": "0"})


@pytest.mark.parametrize(
    ("detect", "words"),
    [
        pytest.param(lambda e: sound(ENVIRON), "in an empty environment it says Launch", id="always"),
        pytest.param(lambda e: None, "it sees no launch in the environment given", id="never"),
        pytest.param(lambda e: sound(dict(e)), "do not copy or search it", id="copies"),
        pytest.param(lambda e: sound(e, local_rank=5), "it says local rank 5, and the process has 1", id="the-rank"),
        pytest.param(lambda e: sound(e, launcher="emca"), "its launch is named 'emca'", id="another-name"),
        pytest.param(lambda e: sound(e, sources=()), "begin Launch", id="no-source"),
        pytest.param(
            lambda e: sound(e, sources=(("local_rank", "ACME_ID"),)), "ACME_ID for local_rank", id="absent-source"
        ),
        pytest.param(lenient, "takes ACME_LOCAL_RANK='x1' for a local rank", id="takes-anything"),
        pytest.param(
            lambda e: sound({**read(e), "ACME_LOCAL_RANK": "0"}) if e.get("ACME_LOCAL_RANK") == "" else sound(e),
            "sees a launch under ACME_LOCAL_RANK='', which means unset",
            id="takes-empty",
        ),
        pytest.param(
            lambda e: sound({"ACME_LOCAL_RANK": "1", **read(e)}) if "ACME_JOB" in e else None,
            "sees a launch without ACME_LOCAL_RANK",
            id="without-its-source",
        ),
        pytest.param(
            lambda e: sound({**read(e), "ACME_JOB": "1"}), "believes ACME_LOCAL_RANK alone", id="believes-a-left-over"
        ),
        pytest.param(
            lambda e: sound(e, local_world_size=1, sources=(*ACME_RANK, ("rank", "ACME_RANK"))),
            "it says local rank 1 of 1, and they count from 0",
            id="a-local-rank-past-the-end",
        ),
        pytest.param(
            lambda e: sound(e) and sound(e, rank=int(e["ACME_RANK"]), sources=(*ACME_RANK, ("rank", "ACME_RANK"))),
            "under ACME_RANK='', detect.. raised ValueError",
            id="garbled-beside-the-local-rank",
        ),
        pytest.param(
            lambda e: sound(e) and sound(e, **sizes(e)),
            "under ACME_LOCAL_RANK='999' it says local rank 999 of 2",
            id="a-size-that-does-not-agree",
        ),
        pytest.param(
            lambda e: sound(e) and int(e["ACME_LOCAL_RANK"]),
            "in the environment given, detect.. returned no Launch",
            id="no-launch",
        ),
        pytest.param(
            lambda e: int(e["ACME_LOCAL_RANK"]), "in an empty environment, detect.. raised KeyError", id="bare-error"
        ),
    ],
)
def test_a_faulty_launcher_is_told_what_is_missing(detect: Callable[[Mapping[str, str]], Any], words: str) -> None:
    """
    Each fault has a sentence of its own.
    """
    with pytest.raises(AssertionError, match=words):
        check_launcher(Acme(detect), environ=ENVIRON, local_rank=1)


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        pytest.param("name", "", "it has no name", id="no-name"),
        pytest.param("name", 3, "it has no name", id="name-is-no-text"),
        pytest.param("detect", None, "it has no method detect", id="no-detect"),
        pytest.param("local_rank", "ACME_ID", "attribute local_rank is to name", id="attribute-of-another-variable"),
    ],
)
def test_a_launcher_that_lacks_a_part_is_told(attribute: str, value: object, words: str) -> None:
    """
    A launcher has a name, a detect method, and says no wrong thing about itself.
    """
    launcher = Acme(sound)
    setattr(launcher, attribute, value)

    with pytest.raises(AssertionError, match=words):
        check_launcher(launcher, environ=ENVIRON, local_rank=1)


def test_a_row_without_a_second_variable_is_told() -> None:
    """
    The commonest omission of a row of data: it believes one lone variable.
    """
    row = EnvLauncher(name="acme", local_rank="ACME_LOCAL_RANK")

    with pytest.raises(AssertionError, match="require another variable that it always sets"):
        check_launcher(row, environ=ENVIRON, local_rank=1)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policies.first_device, id="first-device"),
        pytest.param(policies.cpu, id="cpu"),
        pytest.param(policies.refuse, id="refuse"),
        pytest.param(policies.share, id="share"),
        pytest.param(policies.first_of(policies.share, policies.cpu), id="first-of"),
        pytest.param(lambda diagnosis: torch.device("cpu"), id="a-device"),
        pytest.param("cuda:0", id="name-of-the-default"),
        pytest.param("cpu", id="name-of-the-cpu"),
        pytest.param("raise", id="name-of-none"),
    ],
)
def test_a_sound_policy_passes(policy: policies.Fallback) -> None:
    """
    The policies of safedev, their names, and those made of them, answer or decline everywhere.
    """
    check_policy(policy)


@pytest.mark.parametrize(
    ("policy", "error"), [pytest.param("gpu", ValueError, id="no-name"), pytest.param(None, TypeError, id="nothing")]
)
def test_what_is_no_policy_is_refused_as_by_select_device(policy: Any, error: type[Exception]) -> None:
    """
    With the same words, which list the names.
    """
    with pytest.raises(error, match="'cuda:0', 'cpu' or 'raise', or a callable") as checked:
        check_policy(policy)
    with pytest.raises(error) as selected:
        safedev.select_device("cpu", fallback=policy)

    assert str(selected.value) == str(checked.value)


def writes(diagnosis: Diagnosis) -> str:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    return "cpu"


def starts(diagnosis: Diagnosis) -> str:
    torch.cuda.is_available()
    return "cpu"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        pytest.param(lambda diagnosis: 1 // 0, "it raises ZeroDivisionError", id="raises"),
        pytest.param(lambda: "cpu", "it raises TypeError", id="takes-no-diagnosis"),
        pytest.param(lambda diagnosis: "cuda:0", "answers 'cuda:0', which cannot be had there", id="without-a-device"),
        pytest.param(lambda diagnosis: True, "what is no device: True is no device", id="true"),
        pytest.param(lambda diagnosis: "gpu0", "what is no device: 'gpu0' is no device", id="no-form-of-ours"),
        pytest.param(writes, "changes os.environ", id="writes"),
        pytest.param(starts, "calls torch.cuda.is_available, which starts the driver", id="starts"),
    ],
)
def test_a_faulty_policy_is_told_what_is_wrong(policy: policies.FallbackPolicy, words: str) -> None:
    """
    The sentence names the fault, and what the policy was asked about.
    """
    with pytest.raises(AssertionError, match=words) as caught:
        check_policy(policy)

    assert "asked about: " in str(caught.value)
