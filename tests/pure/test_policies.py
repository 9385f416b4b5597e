"""What is chosen when the wanted device cannot be had."""

from __future__ import annotations

from typing import Any

import pytest

from safedev import policies
from safedev._diagnosis import Diagnosis, judge
from safedev._mask import parse_mask
from safedev._request import request_for
from safedev._sharing import Sharing
from safedev._snapshot import Snapshot
from safedev.errors import LocalRankError
from safedev.launchers import Launch

OWN = Sharing(kind="own", reason="a Ray task")
SHARED = Sharing(kind="shared", reason="torchrun's workers share")
NO_RANK = LocalRankError("mpi", "OMPI_COMM_WORLD_LOCAL_RANK", None, "no local rank")


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
        pytest.param(case(2, launch_error=NO_RANK), None, id="launched-with-an-unknown-rank"),
        pytest.param(case(2, launch_error=NO_RANK, sharing=OWN), "cuda:0", id="devices-of-its-own-and-unknown-rank"),
        pytest.param(case(2, 0, driver_count=2, refusal="lost", refused=("cuda:0",)), None, id="the-first-device-refused"),
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


def test_policies_that_all_decline_decline_together() -> None:
    """
    No answer is no answer; of no policies as well.
    """
    assert [None, None] == [policies.first_of("raise", policies.refuse)(case(2)), policies.first_of()(case(2))]


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
    Neither text nor callable.
    """
    with pytest.raises(TypeError, match="'cuda:0', 'cpu' or 'raise', or a callable"):
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


def test_every_policy_is_exported() -> None:
    """
    The module names its policies; `named` is for whoever writes an option.
    """
    assert ["cpu", "first_device", "first_of", "named", "refuse", "share"] == sorted(policies.__all__)
