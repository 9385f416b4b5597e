"""From a request to a device: the table of the documentation, and nothing but counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedev._mask import parse_mask
from safedev._request import request_for
from safedev._resolve import devices_are_there, resolve, too_old
from safedev._sharing import Sharing
from safedev._snapshot import Snapshot
from safedev.errors import LocalRankError
from safedev.launchers import Launch

OWN = Sharing(kind="own", reason="a Ray task")
IN_DOUBT = Sharing(kind="own", reason="a mask of one entry", doubt=True)
SHARED = Sharing(kind="shared", reason="torchrun's workers share")
UNKNOWN = Sharing(kind="unknown", reason="nothing shows which")
NO_RANK = LocalRankError("mpi", "OMPI_COMM_WORLD_LOCAL_RANK", None, "no local rank")


def seen(count: int, mask: str | None = None, **more: Any) -> Snapshot:
    return Snapshot(mask=parse_mask(mask), device_count=count, **more)


def rank(local_rank: int, workers: int | None = None) -> Launch:
    return Launch(launcher="torchrun", local_rank=local_rank, local_world_size=workers)


@pytest.mark.parametrize(
    ("snapshot", "device", "ordinal", "remark"),
    [
        pytest.param(seen(4), "cuda:0", 0, "", id="nobody-launched-it"),
        pytest.param(seen(1, launch=rank(0), sharing=OWN), "cuda:0", 0, "own", id="own-devices"),
        pytest.param(seen(1, launch=rank(3, 4), sharing=OWN), "cuda:0", 0, "own", id="own-devices-whatever-the-rank"),
        pytest.param(seen(2, launch=rank(1, 4), sharing=OWN), "cuda:0", 0, "own", id="two-own-devices"),
        pytest.param(seen(2, sharing=OWN), "cuda:0", 0, "own", id="own-devices-without-a-rank"),
        pytest.param(seen(1, launch=rank(1, 2), sharing=IN_DOUBT), "cuda:0", 0, "doubt", id="own-device-in-doubt"),
        pytest.param(seen(4, launch=rank(0, 4), sharing=SHARED), "cuda:0", 0, "", id="the-first-rank"),
        pytest.param(seen(4, launch=rank(3, 4), sharing=SHARED), "cuda:3", 3, "", id="the-last-rank"),
        pytest.param(seen(4, launch=rank(3)), "cuda:3", 3, "", id="the-last-rank-of-nobody-knows-how-many"),
        pytest.param(seen(8, launch=rank(3, 4), sharing=SHARED), "cuda:3", 3, "", id="more-devices-than-workers"),
        pytest.param(seen(2, launch=rank(0, 4), sharing=SHARED), None, 0, "oversubscribed", id="too-many-workers"),
        pytest.param(seen(2, launch=rank(3, 4), sharing=SHARED), None, 3, "oversubscribed", id="too-many-workers-last"),
        pytest.param(seen(2, launch=rank(0, 4), sharing=UNKNOWN), "cuda:0", 0, "", id="many-workers-may-be-apart"),
        pytest.param(
            seen(2, launch=rank(2), sharing=UNKNOWN), None, 2, "oversubscribed", id="rank-past-the-last-device"
        ),
        pytest.param(seen(2, launch=rank(2)), None, 2, "oversubscribed", id="rank-past-the-last-nothing-known"),
        pytest.param(seen(1, launch=rank(0, 1), sharing=SHARED), "cuda:0", 0, "", id="one-device-one-worker"),
        pytest.param(
            seen(1, launch=rank(0, 2), sharing=SHARED), None, 0, "oversubscribed", id="one-device-two-workers"
        ),
        pytest.param(
            seen(1, launch=rank(1), sharing=SHARED), None, 1, "oversubscribed", id="one-shared-device-rank-one"
        ),
        pytest.param(seen(1, launch=rank(0, 2), sharing=UNKNOWN), "cuda:0", 0, "", id="one-device-rank-zero"),
        pytest.param(seen(1, launch=rank(1, 2), sharing=UNKNOWN), "cuda:0", 0, "doubt", id="one-device-rank-one"),
        pytest.param(seen(1, launch=rank(1)), "cuda:0", 0, "doubt", id="one-device-rank-one-nothing-known"),
        pytest.param(seen(1, launch_error=NO_RANK), "cuda:0", 0, "no-local-rank", id="one-device-needs-no-rank"),
        pytest.param(seen(2, launch_error=NO_RANK), None, None, "no-local-rank", id="two-devices-need-a-rank"),
        pytest.param(seen(2, launch_error=NO_RANK, sharing=OWN), "cuda:0", 0, "own", id="own-devices-need-no-rank"),
    ],
)
@pytest.mark.parametrize("preferred", ["auto", "cuda"])
def test_the_device_of_this_process(
    preferred: str, snapshot: Snapshot, device: str | None, ordinal: int | None, remark: str
) -> None:
    """
    From the local rank to an ordinal, as the documentation's table has it. Never a modulo.
    """
    assert (device, ordinal, remark) == resolve(request_for(preferred), snapshot)


@pytest.mark.parametrize(
    ("preferred", "snapshot", "device", "remark"),
    [
        pytest.param("auto", seen(0), "cpu", "", id="auto-with-nothing"),
        pytest.param("cuda", seen(0), None, "", id="cuda-with-nothing"),
        pytest.param(
            "auto", seen(0, accelerator="mps", accelerator_count=1), "mps:0", "", id="auto-another-accelerator"
        ),
        pytest.param("cuda", seen(0, accelerator="mps", accelerator_count=1), None, "", id="cuda-another-accelerator"),
        pytest.param("auto", seen(1, accelerator="xpu", accelerator_count=1), "cuda:0", "", id="auto-cuda-comes-first"),
        pytest.param(
            "auto", seen(0, accelerator="npu", accelerator_count=4, launch=rank(2, 4)), "npu:2", "", id="auto-by-rank"
        ),
        pytest.param("auto", seen(0, physical_count=2), None, "unusable", id="auto-devices-that-cannot-be-used"),
        pytest.param("cuda", seen(0, physical_count=2), None, "unusable", id="cuda-devices-that-cannot-be-used"),
        pytest.param("auto", seen(0, "", physical_count=2), "cpu", "", id="auto-hidden-on-purpose"),
        pytest.param("auto", seen(0, "-1", physical_count=2), "cpu", "", id="auto-hidden-by-minus-one"),
        pytest.param("cuda", seen(0, "", physical_count=2), None, "unusable", id="cuda-hidden-on-purpose"),
        pytest.param("auto", seen(0, "0,0", physical_count=2), None, "unusable", id="auto-hidden-by-mistake"),
        pytest.param(
            "auto",
            seen(0, "", accelerator="xpu", accelerator_count=1, physical_count=2),
            "xpu:0",
            "",
            id="auto-hidden-xpu",
        ),
        pytest.param("auto", seen(0, count_evidence="CUDA unknown error"), None, "unusable", id="auto-cuda-failed"),
        pytest.param("auto", seen(0, physical_count=0), "cpu", "", id="auto-no-devices"),
    ],
)
def test_a_machine_without_a_usable_cuda_device(
    preferred: str, snapshot: Snapshot, device: str | None, remark: str
) -> None:
    """
    Another accelerator, else the CPU; but where devices are there that cannot be used, that is not passed over.
    """
    answer = resolve(request_for(preferred), snapshot)

    assert (device, remark) == (answer[0], answer[2])


@pytest.mark.parametrize(
    ("preferred", "snapshot", "device"),
    [
        pytest.param(0, seen(1), "cuda:0", id="the-only-ordinal"),
        pytest.param(1, seen(1), None, id="past-the-only-one"),
        pytest.param(3, seen(4), "cuda:3", id="the-last-ordinal"),
        pytest.param(4, seen(4), None, id="past-the-last"),
        pytest.param(-1, seen(4), None, id="negative"),
        pytest.param(0, seen(0), None, id="nothing-visible"),
        pytest.param(3, seen(4, launch=rank(0, 8), sharing=SHARED), "cuda:3", id="an-ordinal-is-taken-as-it-is"),
        pytest.param(3, seen(4, launch_error=NO_RANK), "cuda:3", id="an-ordinal-needs-no-local-rank"),
        pytest.param(300, seen(301), "cuda:300", id="beyond-eight-bits"),
        pytest.param("cpu", seen(0), "cpu", id="cpu"),
        pytest.param("cpu", seen(2, launch=rank(1, 2)), "cpu", id="cpu-where-devices-are"),
        pytest.param("GPU-a", seen(2, found=(1,)), "cuda:1", id="uuid-found"),
        pytest.param("GPU-a", seen(2, found=(0, 1)), None, id="uuid-fits-two"),
        pytest.param("GPU-a", seen(2, found=()), None, id="uuid-fits-none"),
        pytest.param("GPU-a", seen(2), None, id="uuid-not-told"),
        pytest.param("GPU-a", seen(2, found=(2,)), None, id="uuid-of-a-device-past-the-last"),
        pytest.param("xpu", seen(0, accelerator="xpu", accelerator_count=1), "xpu:0", id="accelerator"),
        pytest.param("xpu:1", seen(0, accelerator="xpu", accelerator_count=2), "xpu:1", id="accelerator-with-ordinal"),
        pytest.param("xpu:2", seen(0, accelerator="xpu", accelerator_count=2), None, id="accelerator-past-the-last"),
        pytest.param("xpu", seen(0), None, id="no-accelerator"),
        pytest.param("xpu", seen(2, accelerator="npu", accelerator_count=2), None, id="another-accelerator"),
        pytest.param(
            "xpu:0", seen(2, accelerator="npu", accelerator_count=2), None, id="another-accelerator-by-ordinal"
        ),
        pytest.param(
            "xpu", seen(0, accelerator="xpu", accelerator_count=4, launch=rank(2, 4)), "xpu:2", id="accelerator-by-rank"
        ),
        pytest.param(
            "xpu",
            seen(0, accelerator="xpu", accelerator_count=2, launch=rank(0, 4), sharing=SHARED),
            None,
            id="accelerator-oversubscribed",
        ),
    ],
)
def test_a_device_that_was_named(preferred: object, snapshot: Snapshot, device: str | None) -> None:
    """
    What is named is had if it is among those that are there, whatever the local rank. Nothing is said
    of it, but of a crowd that shares it.
    """
    answer = resolve(request_for(preferred), snapshot)

    assert device == answer[0]
    assert answer[2] in {"", "oversubscribed"}


@pytest.mark.parametrize(
    ("preferred", "snapshot"),
    [
        pytest.param("cpu", seen(2, launch=rank(1, 2)), id="wanted"),
        pytest.param("auto", seen(0), id="all-there-is"),
    ],
)
def test_there_is_nothing_to_say_about_the_cpu(preferred: str, snapshot: Snapshot) -> None:
    """
    Neither where it was wanted, nor where nothing else is there.
    """
    assert ("cpu", None, "") == resolve(request_for(preferred), snapshot)


@given(count=st.integers(0, 70), ordinal=st.integers())
def test_an_ordinal_is_valid_by_the_count_alone(count: int, ordinal: int) -> None:
    """
    From 0 to the count less one, and nothing else.
    """
    assert (0 <= ordinal < count) is (resolve(request_for(ordinal), seen(count))[0] is not None)


@given(
    count=st.integers(1, 8),
    local_rank=st.integers(0, 9),
    workers=st.none() | st.integers(1, 10),
    sharing=st.sampled_from([None, OWN, IN_DOUBT, SHARED, UNKNOWN]),
)
def test_no_two_workers_of_a_shared_view_get_one_device(
    count: int, local_rank: int, workers: int | None, sharing: Sharing | None
) -> None:
    """
    A worker's ordinal is its local rank, or 0 with a remark, or none at all.
    """
    snapshot = seen(count, launch=rank(local_rank, workers), sharing=sharing)
    device, _, remark = resolve(request_for("auto"), snapshot)

    assert device in {f"cuda:{local_rank}", None} or (device == "cuda:0" and remark in {"own", "doubt"})
    assert device is None or int(device[5:]) < count


@pytest.mark.parametrize(
    ("snapshot", "there"),
    [
        pytest.param(seen(0), False, id="nothing-known"),
        pytest.param(seen(0, physical_count=0), False, id="counted-none"),
        pytest.param(seen(1), True, id="visible"),
        pytest.param(seen(0, physical_count=1), True, id="on-the-machine"),
        pytest.param(seen(0, count_evidence="CUDA initialization: error 802"), True, id="the-driver-complains"),
        pytest.param(seen(0, count_evidence="ValueError: invalid literal"), False, id="torchs-parser-fails"),
    ],
)
def test_whether_the_machine_has_devices(snapshot: Snapshot, there: bool) -> None:
    """
    Devices are there if they are seen, if NVML counts them, or if CUDA itself complains.
    """
    assert there is devices_are_there(snapshot)


# Within one major version of CUDA a driver serves every minor one:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
@pytest.mark.parametrize(
    ("serves", "build", "old"),
    [
        pytest.param(11040, "12.8", True, id="one-major-version-behind"),
        pytest.param(12020, "12.8", False, id="the-same-major-version"),
        pytest.param(12080, "12.8", False, id="the-same-version"),
        pytest.param(13000, "12.8", False, id="newer"),
        pytest.param(12080, "13.0", True, id="behind-a-round-number"),
        pytest.param(9020, "10.2", True, id="two-digits"),
        pytest.param(11040, "12", True, id="a-build-without-a-minor-version"),
        pytest.param(None, "12.8", False, id="not-told"),
        pytest.param(11040, None, False, id="no-cuda-in-torch"),
        pytest.param(11040, "unknown", False, id="a-build-of-ones-own"),
    ],
)
def test_a_driver_may_be_too_old_for_this_torch(serves: int | None, build: str | None, old: bool) -> None:
    """
    Its major version of CUDA must be torch's or a later one.
    """
    assert old is too_old(serves, build)
