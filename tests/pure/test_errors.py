"""One table over every error and warning: what it is, what it keeps, what it says, and that it travels."""

from __future__ import annotations

import copy
import pickle
import warnings
from functools import partial
from typing import Any

import pytest

from safedev import errors
from safedev._mask import parse_mask
from safedev._request import request_for
from safedev._rules import judge
from safedev._snapshot import Snapshot

DIAGNOSIS = judge(request_for(3), Snapshot(mask=parse_mask("4,5"), device_count=2))
MASK = parse_mask("4,5")

# How to make one of each, its bases among the built-in ones, its parts, and its text.
TABLE = [
    pytest.param(partial(errors.SafedevError, "words"), Exception, {}, "words", id="SafedevError"),
    pytest.param(
        partial(errors.InvalidDeviceError, DIAGNOSIS),
        RuntimeError,
        {"diagnosis": DIAGNOSIS, "declined": ""},
        DIAGNOSIS.render(),
        id="InvalidDeviceError",
    ),
    pytest.param(
        partial(errors.InvalidDeviceError, DIAGNOSIS, "'cuda:0' declined"),
        RuntimeError,
        {"diagnosis": DIAGNOSIS, "declined": "'cuda:0' declined"},
        f"{DIAGNOSIS.render()}\n  fallback: 'cuda:0' declined",
        id="InvalidDeviceError-declined",
    ),
    pytest.param(
        partial(errors.DeviceSpecError, "gpu0", "'gpu0' is no device"),
        ValueError,
        {"spec": "gpu0", "problem": "'gpu0' is no device"},
        "'gpu0' is no device",
        id="DeviceSpecError",
    ),
    pytest.param(
        partial(errors.LocalRankError, "slurm", "SLURM_LOCALID", "x", "SLURM_LOCALID='x' is no local rank"),
        RuntimeError,
        {
            "launcher": "slurm",
            "variable": "SLURM_LOCALID",
            "value": "x",
            "problem": "SLURM_LOCALID='x' is no local rank",
        },
        "SLURM_LOCALID='x' is no local rank",
        id="LocalRankError",
    ),
    pytest.param(
        partial(errors.MaskError, MASK, "7 is not among the devices"),
        ValueError,
        {"mask": MASK, "problem": "7 is not among the devices"},
        "7 is not among the devices",
        id="MaskError",
    ),
    pytest.param(
        partial(errors.MaskTooLateError, MASK, "too late"),
        errors.MaskError,
        {"mask": MASK, "problem": "too late"},
        "too late",
        id="MaskTooLateError",
    ),
    pytest.param(partial(errors.SafedevWarning, "words"), UserWarning, {}, "words", id="SafedevWarning"),
    pytest.param(partial(errors.FallbackWarning, "words"), errors.SafedevWarning, {}, "words", id="FallbackWarning"),
    pytest.param(partial(errors.LocalRankWarning, "words"), errors.SafedevWarning, {}, "words", id="LocalRankWarning"),
    pytest.param(partial(errors.MaskWarning, "words"), errors.SafedevWarning, {}, "words", id="MaskWarning"),
]


def test_the_table_holds_every_error_and_warning() -> None:
    """
    None of the exported names is left out.
    """
    assert errors.__all__ == sorted({row.values[0].func.__name__ for row in TABLE})


@pytest.mark.parametrize(("make", "base", "parts", "words"), TABLE)
def test_an_error_is_caught_by_what_it_is(make: Any, base: type[Exception], parts: object, words: str) -> None:
    """
    By the base of this library's errors or warnings, and by the built-in class that its callers knew before.
    """
    raised = make()
    library = errors.SafedevWarning if isinstance(raised, Warning) else errors.SafedevError

    assert isinstance(raised, library)
    assert isinstance(raised, base)


@pytest.mark.parametrize(("make", "base", "parts", "words"), TABLE)
def test_an_error_keeps_its_parts(make: Any, base: object, parts: dict[str, object], words: str) -> None:
    """
    Nobody has to take a message to pieces.
    """
    raised = make()

    assert parts == {name: getattr(raised, name) for name in parts}
    assert words == str(raised)


@pytest.mark.parametrize(("make", "base", "parts", "words"), TABLE)
def test_an_error_is_shown_with_what_it_was_made_of(make: Any, base: object, parts: object, words: str) -> None:
    """
    In its `args`, and so in its `repr()`, as any exception is.
    """
    assert make.args == make().args[: len(make.args)]


@pytest.mark.parametrize(
    "copied",
    [
        pytest.param(lambda raised: pickle.loads(pickle.dumps(raised)), id="pickle"),
        pytest.param(lambda raised: pickle.loads(pickle.dumps(raised, protocol=0)), id="oldest-pickle"),
        pytest.param(copy.copy, id="copy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
    ],
)
@pytest.mark.parametrize(("make", "base", "parts", "words"), TABLE)
def test_an_error_travels(make: Any, base: object, parts: dict[str, object], words: str, copied: Any) -> None:
    """
    To another process and back, with its class, its parts and its text.
    """
    raised = make()

    arrived = copied(raised)

    assert type(raised) is type(arrived)
    assert words == str(arrived)
    assert parts == {name: getattr(arrived, name) for name in parts}


def test_an_attribute_added_later_travels_with_an_error() -> None:
    """
    As of any other exception.
    """
    raised = errors.MaskError(MASK, "no")
    raised.where = "node 3"  # type: ignore[attr-defined]

    assert "node 3" == pickle.loads(pickle.dumps(raised)).where


@pytest.mark.parametrize("category", [errors.FallbackWarning, errors.LocalRankWarning, errors.MaskWarning])
def test_a_warning_can_be_silenced_alone(category: type[Warning]) -> None:
    """
    Each has a category of its own, below that of the library.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", category)
        for each in (errors.FallbackWarning, errors.LocalRankWarning, errors.MaskWarning):
            warnings.warn("words", each, stacklevel=1)

    assert category not in {warning.category for warning in caught}
    assert 2 == len(caught)
