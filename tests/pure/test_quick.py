"""Frozen data that is made quickly is what its class would have made."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from safedev._quick import changed, quickly


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """A record with a field that has a default."""

    x: int
    y: int = 2


def test_it_equals_what_the_class_makes() -> None:
    """
    With all fields, and with one left to its default; in its text and its hash, too.
    """
    made = quickly(Point)

    assert (Point(x=1, y=5), Point(x=1)) == (made(x=1, y=5), made(x=1))
    assert (repr(Point(x=1)), hash(Point(x=1))) == (repr(made(x=1)), hash(made(x=1)))


def test_it_is_frozen() -> None:
    """
    No field can be set, and none be added.
    """
    made = quickly(Point)(x=1)

    for name in ("x", "z"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, 3)


def test_it_survives_pickling() -> None:
    """
    A default that only the class holds is there afterwards, too.
    """
    assert Point(x=1) == pickle.loads(pickle.dumps(quickly(Point)(x=1)))


def test_a_change_leaves_the_original() -> None:
    """
    As ``dataclasses.replace``, for a default that only the class holds, too.
    """
    before = quickly(Point)(x=1)

    assert dataclasses.replace(Point(x=1), y=7) == changed(before, y=7)
    assert Point(x=1) == before
