"""What is chosen when the wanted device cannot be had."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from importlib import import_module
from typing import Any, SupportsIndex, get_args

import pytest

from safedev import policies
from safedev._diagnosis import Diagnosis
from safedev._mask import parse_mask
from safedev._request import request_for
from safedev._rules import judge
from safedev._sharing import Sharing
from safedev._snapshot import Snapshot
from safedev.errors import LocalRankError
from safedev.launchers import Launch

OWN = Sharing(kind="own", reason="a Ray task")
IN_DOUBT = Sharing(kind="own", reason="a mask of one entry", doubt=True)
SHARED = Sharing(kind="shared", reason="torchrun's workers share")
NO_RANK = LocalRankError("mpi", "OMPI_COMM_WORLD_LOCAL_RANK", None, "no local rank")


TWO_XPUS = {"accelerator": "xpu", "accelerator_count": 2}


def case(count: int, preferred: object = 99, **more: Any) -> Diagnosis:
    """The diagnosis of a request that cannot be had."""
    return judge(request_for(preferred), Snapshot(mask=parse_mask(None), device_count=count, **more))


def rank(local_rank: int, workers: int | None = None, world_size: int | None = None) -> Launch:
    return Launch(launcher="torchrun", local_rank=local_rank, local_world_size=workers, world_size=world_size)


@pytest.mark.parametrize(
    ("diagnosis", "answer"),
    [
        pytest.param(case(2), "cuda:0", id="alone"),
        pytest.param(case(0), "cpu", id="no-device"),
        pytest.param(case(0, launch=rank(1, 4)), "cpu", id="no-device-under-a-launcher"),
        pytest.param(case(2, launch=rank(0, 1)), "cuda:0", id="the-only-worker"),
        pytest.param(case(2, launch=rank(0)), "cuda:0", id="the-first-worker-of-nobody-knows-how-many"),
        pytest.param(case(2, launch=rank(0, 2)), None, id="the-first-of-two-workers"),
        pytest.param(case(2, launch=rank(1, 2)), None, id="the-second-of-two-workers"),
        pytest.param(case(2, launch=rank(1)), None, id="the-second-of-nobody-knows-how-many"),
        pytest.param(case(2, launch=rank(0, None, 2)), None, id="two-workers-somewhere"),
        pytest.param(case(2, launch=rank(0, 1, 2)), "cuda:0", id="one-worker-on-each-node"),
        pytest.param(case(2, launch=rank(0, 2), sharing=SHARED), None, id="a-shared-view"),
        pytest.param(case(2, launch=rank(1, 2), sharing=OWN), "cuda:0", id="devices-of-its-own"),
        pytest.param(case(2, launch=rank(1, 2), sharing=IN_DOUBT), None, id="devices-of-its-own-in-doubt"),
        pytest.param(case(2, launch_error=NO_RANK, sharing=IN_DOUBT), None, id="in-doubt-and-unknown-rank"),
        pytest.param(case(2, launch_error=NO_RANK), None, id="launched-with-an-unknown-rank"),
        pytest.param(case(2, "cuda", launch=rank(1, 4), sharing=SHARED), None, id="oversubscribed"),
        pytest.param(case(0, "xpu", launch=rank(3, 4), sharing=SHARED, **TWO_XPUS), None, id="oversubscribed-xpu"),
        pytest.param(case(0, None, launch=rank(3, 4), sharing=SHARED, **TWO_XPUS), None, id="oversubscribed-any"),
        pytest.param(case(0, "xpu:9", launch=rank(0, 2), **TWO_XPUS), "cpu", id="an-xpu-past-the-last"),
        pytest.param(case(2, launch_error=NO_RANK, sharing=OWN), "cuda:0", id="devices-of-its-own-and-unknown-rank"),
        pytest.param(
            case(2, 0, driver_count=2, refusal="lost", refused=("cuda:0",)), None, id="the-first-device-refused"
        ),
        pytest.param(
            case(2, 1, driver_count=2, refusal="lost", refused=("cuda:1",)), "cuda:0", id="another-device-refused"
        ),
        pytest.param(case(2, 0, refusal="too old", refused=("cuda:0",)), "cpu", id="the-driver-does-not-start"),
        pytest.param(
            case(2, 1, refusal="too old", refused=("cuda:1",)), "cpu", id="the-driver-does-not-start-for-another"
        ),
        pytest.param(case(0, forked=True), "cpu", id="forked"),
        pytest.param(
            case(2, launch=rank(1, 2), refusal="too old", refused=("cuda:1",)), "cpu", id="no-driver-under-a-launcher"
        ),
    ],
)
def test_the_first_device_unless_others_end_up_there(diagnosis: Diagnosis, answer: str | None) -> None:
    """
    The default policy: the CPU where no CUDA device can be used; it declines where siblings would follow, or where
    the first device is the one that refused.
    """
    assert answer == policies.first_device(diagnosis)


def test_the_cpu_whatever_there_is() -> None:
    """
    "cpu" chooses the CPU.
    """
    assert "cpu" == policies.cpu(case(4))


def test_refusing_declines() -> None:
    """
    "raise" chooses nothing.
    """
    assert policies.refuse(case(4)) is None


@pytest.mark.parametrize(
    ("diagnosis", "answer"),
    [
        pytest.param(case(2, launch=rank(0, 4)), "cuda:0", id="rank-0"),
        pytest.param(case(2, launch=rank(1, 4)), "cuda:1", id="rank-1"),
        pytest.param(case(2, launch=rank(2, 4)), "cuda:0", id="rank-2-begins-again"),
        pytest.param(case(3, launch=rank(5, 6)), "cuda:2", id="rank-5-of-3-devices"),
        pytest.param(case(2), None, id="no-launcher"),
        pytest.param(case(0, launch=rank(1, 4)), None, id="no-device"),
        pytest.param(case(0, "xpu", launch=rank(2, 4), **TWO_XPUS), "xpu:0", id="xpu-rank-2-begins-again"),
        pytest.param(case(0, None, launch=rank(3, 4), **TWO_XPUS), "xpu:1", id="xpu-rank-3"),
        pytest.param(case(0, "xpu", **TWO_XPUS), None, id="xpu-and-no-launcher"),
        pytest.param(case(2, launch=rank(3, 4), **TWO_XPUS), "cuda:1", id="cuda-comes-first"),
    ],
)
def test_sharing_is_the_local_rank_modulo_the_count(diagnosis: Diagnosis, answer: str | None) -> None:
    """
    The opt-in policy for several workers on each device.
    """
    assert answer == policies.share(diagnosis)


def test_the_first_answer_counts() -> None:
    """
    A policy that declines is passed over; those behind the first answer are not asked.
    """

    def never(_: Diagnosis) -> str:
        raise AssertionError("asked for nothing")

    chosen = policies.first_of("raise", policies.share, lambda _: 0, never)

    assert 0 == chosen(case(2))


def test_a_chain_is_called_what_it_is_written_as() -> None:
    """
    In a message that says which policy declined, the whole chain is named.
    """
    chain = policies.first_of("raise", policies.share)

    assert "first_of('raise', share) declined" == policies.declined(case(1), chain)


def test_policies_that_all_decline_decline_together() -> None:
    """
    No answer is no answer.
    """
    assert policies.first_of("raise", policies.refuse)(case(2)) is None


def test_a_chain_of_nothing_is_refused() -> None:
    """
    It would always decline, which has a name of its own.
    """
    with pytest.raises(ValueError, match="at least one, or 'raise' in its place"):
        policies.first_of()


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param("cuda:0", policies.first_device, id="cuda-0"),
        pytest.param("cpu", policies.cpu, id="cpu"),
        pytest.param("raise", policies.refuse, id="raise"),
        pytest.param(policies.share, policies.share, id="a-callable-is-one"),
    ],
)
def test_a_policy_has_a_name(name: Any, policy: object) -> None:
    """
    Each name stands for its function.
    """
    assert policy is policies.named(name)


@pytest.mark.parametrize("name", ["", "cup", "cuda:1", "CPU", "share", "x" * 10**6, "\n"])
def test_an_unknown_name_is_a_value_error(name: str) -> None:
    """
    The error lists the names there are, in one line.
    """
    with pytest.raises(ValueError, match=r"^no policy is named [ -~]{0,120}: give 'cuda:0', 'cpu' or 'raise'[ -~]+$"):
        policies.named(name)


@pytest.mark.parametrize("fallback", [None, 0, True, b"cpu", ["cpu"]])
def test_what_is_no_policy_is_a_type_error(fallback: Any) -> None:
    """
    Neither text nor callable: the error names what is taken, and the type of what was given.
    """
    given = type(fallback).__name__

    with pytest.raises(TypeError, match=f"'cuda:0', 'cpu' or 'raise', or a callable; not a value of type {given}$"):
        policies.named(fallback)


@pytest.mark.parametrize(
    ("wrong", "error"), [pytest.param("cup", ValueError, id="name"), pytest.param(None, TypeError, id="no-policy")]
)
def test_a_chain_with_a_slip_fails_at_once(wrong: Any, error: type[Exception]) -> None:
    """
    And not on the day when it is asked.
    """
    with pytest.raises(error):
        policies.first_of("cpu", wrong)


@pytest.mark.parametrize(
    ("diagnosis", "fallback", "words"),
    [
        pytest.param(
            case(2, launch=rank(1, 4)),
            "cuda:0",
            "'cuda:0' declined, since other workers of this launch would be on cuda:0 too",
            id="siblings-would-follow",
        ),
        pytest.param(
            case(2, launch=rank(1, 4)),
            policies.first_device,
            "first_device declined, since other workers of this launch would be on cuda:0 too",
            id="siblings-would-follow-by-the-function",
        ),
        pytest.param(case(2), "cuda:0", "'cuda:0' declined", id="for-another-reason"),
        pytest.param(case(2, launch=rank(1, 4)), policies.share, "share declined", id="another-policy"),
        pytest.param(case(2), partial(policies.share), "partial declined", id="a-callable-without-a-name"),
        pytest.param(case(2), "raise", "", id="nobody-was-to-be-asked"),
        pytest.param(case(2), policies.refuse, "", id="nobody-was-to-be-asked-by-the-function"),
    ],
)
def test_a_policy_that_declined_is_named(diagnosis: Diagnosis, fallback: Any, words: str) -> None:
    """
    With the reason, where it is the default one that would crowd a device; nothing where none was asked for.
    """
    assert words == policies.declined(diagnosis, fallback)


def test_every_policy_is_exported() -> None:
    """
    The module names its policies, and what a policy of one's own is written with.
    """
    written_with = ["Diagnosis", "Fallback", "FallbackPolicy", "Finding", "Preferred", "Target"]

    assert [*written_with, "cpu", "first_device", "first_of", "refuse", "share"] == sorted(policies.__all__)


@pytest.mark.parametrize(
    ("name", "module"),
    [("Diagnosis", "_diagnosis"), ("Finding", "_diagnosis"), ("Preferred", "_terms"), ("Target", "_terms")],
)
def test_what_a_policy_is_written_with_is_imported_from_here(name: str, module: str) -> None:
    """
    The same thing as in its own module.
    """
    assert getattr(import_module(f"safedev.{module}"), name) is getattr(policies, name)


def test_a_policy_is_a_callable_from_a_diagnosis_to_a_target() -> None:
    """
    `FallbackPolicy` can be looked at when annotations are evaluated.
    """
    arguments, answer = get_args(policies.FallbackPolicy)

    assert [Diagnosis] == arguments
    assert {*get_args(policies.Target), type(None)} == set(get_args(answer))


def test_a_fallback_is_a_name_or_a_policy() -> None:
    """
    The names are those that `select_device` takes, and each is one of a policy.
    """
    names, policy = get_args(policies.Fallback)

    assert ("cuda:0", "cpu", "raise") == get_args(names)
    assert all(callable(policies.named(name)) for name in get_args(names))
    assert policies.FallbackPolicy == policy


def test_what_is_preferred_is_what_a_policy_may_answer_with_and_more() -> None:
    """
    Text, a device, None; and whatever has an index, which an int has.
    """
    preferred, target = get_args(policies.Preferred), get_args(policies.Target)

    assert {SupportsIndex, type(None)} == set(preferred) - set(target)
    assert {int} == set(target) - set(preferred)


def test_what_only_annotations_need_is_loaded_late() -> None:
    """
    Importing the policies alone loads no diagnosis.
    """
    script = "import sys, safedev.policies; print([name for name in sys.modules if name.startswith('safedev._')])"

    assert "[]\n" == subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_a_name_that_the_module_has_not_is_an_attribute_error() -> None:
    """
    As of any module.
    """
    with pytest.raises(AttributeError, match=r"^module 'safedev\.policies' has no attribute 'random'$"):
        policies.random  # noqa: B018 - reading it is the test
