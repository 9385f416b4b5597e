"""The benchmarks' arithmetic; no time is asserted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the folder of the benchmarks where it is found, and take it out again."""
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("the benchmarks are not here")
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


@pytest.mark.parametrize(
    ("expected", "of", "over"),
    [
        pytest.param(2.0, [2.0, 8.0, 6.0], [1.0, 4.0, 3.0], id="the speed changes between rounds"),
        pytest.param(3.0, [3.0, 3.0, 90.0], [1.0, 1.0, 1.0], id="one round is disturbed"),
        pytest.param(None, [], [1.0], id="it was not measured"),
        pytest.param(None, [1.0], [], id="the floor was not measured"),
    ],
)
def test_a_ratio_is_the_median_of_the_rounds(expected: float | None, of: list[float], over: list[float]) -> None:
    """
    A ratio is made within each round, and the middle one is taken.
    """
    from benchmarks.measure import ratio

    assert expected == ratio(of, over)


def test_the_loop_around_the_calls_is_not_counted() -> None:
    """
    What a call takes is the difference of five calls and one: 100 around them, and 20 each.
    """
    from benchmarks.measure import per_call

    assert 20 == per_call({1: 120, 5: 200})


@pytest.mark.parametrize(
    ("expected", "ratio", "most"),
    [
        pytest.param(False, 1.5, 1.5, id="at the limit"),
        pytest.param(True, 1.51, 1.5, id="above it"),
        pytest.param(True, None, 1.5, id="not measured"),
        pytest.param(False, 9.0, None, id="no limit"),
    ],
)
def test_a_limit_is_missed_above_it_alone(expected: bool, ratio: float | None, most: float | None) -> None:
    """
    A limit is held up to and with the limit itself; what could not be measured does not hold it.
    """
    from benchmarks.report import Row

    assert expected is Row(what="it", ratio=ratio, most=most).missed


def test_every_subject_that_is_measured_is_known() -> None:
    """
    The names that the sections use are those of subjects.
    """
    from benchmarks import calling, subjects

    used = {value for name, value in vars(calling).items() if name.isupper() and isinstance(value, str)}
    used |= {*calling.RANK_PEERS, *calling.DEVICE_PEERS, *calling.WAKING_PEERS}

    assert set() == used - subjects.SUBJECTS.keys()
