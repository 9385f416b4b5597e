"""What is public, and that its documentation is complete."""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import get_origin

import pytest

import safedev
from safedev import _diagnosis, _mask, _snapshot, errors, guard, launchers, policies, testing

FIVE = {"select_device", "set_device", "resolve_local_rank", "guard_visible_devices", "diagnose"}
# The fake is made of torch; without it its names cannot be looked at.
MODULES = [errors, guard, launchers, policies, *([testing] if find_spec("torch") else [])]
# Returned by the five functions, or held by an error: documented as part of what they belong to.
DATA = [_mask.Mask, _mask.MaskDefect, _diagnosis.Diagnosis, _diagnosis.Finding, _snapshot.Snapshot, launchers.Launch]


def public_things() -> list[object]:
    """Every public class and function, from the package and from its public modules."""
    named = [getattr(module, name) for module in (safedev, *MODULES) for name in module.__all__]
    own = (thing for thing in (*named, *DATA) if get_origin(thing) is None)  # an alias of a type is documented by words
    return list(dict.fromkeys(thing for thing in own if isinstance(thing, (type, FunctionType))))


THINGS = [pytest.param(thing, id=f"{thing.__module__}.{thing.__qualname__}") for thing in public_things()]
FUNCTIONS = [row for row in THINGS if isinstance(row.values[0], FunctionType)]
CLASSES = [row for row in THINGS if isinstance(row.values[0], type)]


def section(thing: object, title: str) -> str:
    """The text under one heading of a docstring in Google's style; empty without it."""
    found = re.search(rf"(?m)^{title}:\n((?:(?:    .*)?\n)+)", f"{inspect.getdoc(thing)}\n\n")
    return found[1] if found else ""


def test_the_package_exports_five_functions_and_the_errors() -> None:
    """
    And nothing that needs explaining.
    """
    assert FIVE | set(errors.__all__) == set(safedev.__all__)


@pytest.mark.parametrize("name", sorted(FIVE | set(errors.__all__)))
def test_an_exported_name_is_the_thing_itself(name: str) -> None:
    """
    What is loaded late is the same object as in its own module.
    """
    thing = getattr(safedev, name)

    assert thing is getattr(import_module(thing.__module__), name)
    assert name == thing.__name__


@pytest.mark.parametrize("name", ["errors", "guard", "launchers", "policies", "testing"])
def test_a_public_module_is_reached_by_the_package(name: str) -> None:
    """
    `import safedev` is enough for `safedev.policies` and its like.
    """
    assert import_module(f"safedev.{name}") is getattr(safedev, name)
    assert name in dir(safedev)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_name_that_a_module_exports_exists(module: ModuleType) -> None:
    """
    Sorted, none twice.
    """
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert [] == [name for name in module.__all__ if not hasattr(module, name)]


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    """
    As of any module.
    """
    with pytest.raises(AttributeError, match="module 'safedev' has no attribute 'select_devices'"):
        safedev.select_devices  # noqa: B018 - reading it is the test


@pytest.mark.parametrize("thing", THINGS)
def test_every_public_thing_says_in_one_line_what_it_is(thing: object) -> None:
    """
    The first line is a sentence that stands alone.
    """
    first = (inspect.getdoc(thing) or "").partition("\n")[0]

    assert first.endswith((".", ":")), first
    assert len(first) <= 120


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_argument_is_documented(function: FunctionType) -> None:
    """
    Under Args, by its name; a single positional one may be named in the text.
    """
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.POSITIONAL_ONLY
    ]
    text = section(function, "Args")
    documented = re.findall(r"(?m)^    \*{0,2}(\w+):", text)

    assert names == documented or (len(names) <= 1 and not text)


@pytest.mark.parametrize("name", sorted(FIVE))
def test_the_five_functions_have_every_section(name: str) -> None:
    """
    What comes back, what is raised, an example.
    """
    function = getattr(safedev, name)
    missing = [title for title in ("Args", "Returns", "Raises", "Example") if not section(function, title)]

    assert [] == missing


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_error_that_is_raised_by_name_is_documented(function: FunctionType) -> None:
    """
    Whatever a public function's own body raises stands under Raises.
    """
    raised = set(re.findall(r"(?m)^\s+raise (\w+)\(", inspect.getsource(function)))

    assert raised <= set(re.findall(r"(?m)^    (\w+):", section(function, "Raises")))


@pytest.mark.parametrize(
    ("name", "raised", "warned"),
    [
        pytest.param(
            "select_device",
            {"InvalidDeviceError", "DeviceSpecError", "LocalRankError", "TypeError", "ValueError"},
            {"FallbackWarning", "LocalRankWarning", "MaskWarning"},
            id="select_device",
        ),
        pytest.param(
            "set_device",
            {"InvalidDeviceError", "DeviceSpecError", "LocalRankError", "TypeError", "ValueError"},
            {"FallbackWarning", "LocalRankWarning", "MaskWarning"},
            id="set_device",
        ),
        pytest.param("diagnose", {"DeviceSpecError", "LocalRankError", "TypeError"}, set(), id="diagnose"),
        pytest.param("resolve_local_rank", {"LocalRankError"}, {"LocalRankWarning"}, id="resolve_local_rank"),
        pytest.param(
            "guard_visible_devices",
            {"MaskError", "MaskTooLateError", "TypeError", "ValueError"},
            {"MaskWarning"},
            id="guard_visible_devices",
        ),
    ],
)
def test_errors_and_warnings_are_documented(name: str, raised: set[str], warned: set[str]) -> None:
    """
    Those that the tests of each function have seen.
    """
    function = getattr(safedev, name)

    assert raised == set(re.findall(r"(?m)^    (\w+):", section(function, "Raises")))
    assert warned == set(re.findall(r"(?m)^    (\w+):", section(function, "Warns")))


@pytest.mark.parametrize("cls", CLASSES)
def test_every_attribute_is_documented(cls: type) -> None:
    """
    Under Attributes: the fields of data, and the parts of an error.
    """
    if dataclasses.is_dataclass(cls):
        names = {field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")}
    elif issubclass(cls, errors.SafedevError) and "__init__" in vars(cls):
        names = set(inspect.signature(cls).parameters)
    else:
        names = set()

    assert names <= set(re.findall(r"(?m)^    (\w+):", section(cls, "Attributes")))


@pytest.mark.parametrize("cls", DATA, ids=lambda cls: cls.__name__)
def test_data_is_frozen_and_takes_no_positions(cls: type) -> None:
    """
    A field can be added without breaking anyone.
    """
    parameters = inspect.signature(cls).parameters.values()

    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(FIVE))
def test_options_are_named(name: str) -> None:
    """
    Everything after the first argument is keyword-only.
    """
    _, *options = inspect.signature(getattr(safedev, name)).parameters.values()

    assert all(option.kind is option.KEYWORD_ONLY for option in options)
