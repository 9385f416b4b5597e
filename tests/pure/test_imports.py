"""What `import safedev` does, and above all what it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Run in a fresh interpreter: states what one statement loaded and changed there.
PROBE = """
import json, os, signal, sys, warnings
def state():
    return {
        "modules": sorted(sys.modules),
        "variables": dict(os.environ),
        "filters": [repr(entry) for entry in warnings.filters],
        "handlers": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "hooks": [repr(hook) for hook in (sys.excepthook, sys.displayhook, warnings.showwarning)],
        "path": list(sys.path),
    }
before = state()
exec(sys.argv[1], {})
after = state()
print(json.dumps({
    "loaded": sorted(set(after.pop("modules")) - set(before.pop("modules"))),
    "changed": [name for name in before if before[name] != after[name]],
}))
"""

HEAVY = ["ctypes", "logging", "pynvml", "subprocess", "torch", "typing_extensions"]


def in_a_fresh_process(statement: str) -> dict[str, list[str]]:
    # A measurement of coverage in the child would itself load some of these modules.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    child = subprocess.run(
        [sys.executable, "-c", PROBE, statement], capture_output=True, text=True, env=environ, timeout=60, check=True
    )
    return json.loads(child.stdout)


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("import safedev", id="the-package"),
        pytest.param("import safedev.guard; safedev.guard.guard_visible_devices", id="the-guard"),
        pytest.param("from safedev import guard_visible_devices", id="the-guard-by-its-short-name"),
    ],
)
def test_importing_safedev_loads_nothing_heavy(statement: str) -> None:
    """
    A program may put the guard at its top, before torch, and not notice it.
    """
    loaded = in_a_fresh_process(statement)["loaded"]

    assert [] == [name for name in HEAVY if name in loaded]


def test_importing_safedev_and_the_errors_does_not_need_torch() -> None:
    """
    Every public module but the fake imports where torch cannot be imported.
    """
    without_torch = "import sys; sys.modules['torch'] = None\n"
    modules = "import safedev, safedev.errors, safedev.guard, safedev.launchers, safedev.policies, safedev.testing"
    loaded = in_a_fresh_process(without_torch + modules)["loaded"]

    assert "safedev.launchers" in loaded


@pytest.mark.parametrize("module", HEAVY)
def test_the_probe_sees_a_heavy_module(module: str) -> None:
    """
    The tests above can fail: what a statement imports is seen, by the name that is looked for.
    """
    stand_in = f"import sys, types; sys.modules.pop({module!r}, None); sys.modules[{module!r}] = types.ModuleType('x')"
    loaded = in_a_fresh_process(stand_in)["loaded"]

    assert module in loaded


def test_importing_safedev_changes_nothing() -> None:
    """
    No variable, signal handler, warning filter, hook or search path is other than before.
    """
    changed = in_a_fresh_process("import safedev, safedev.guard, safedev.launchers, safedev.policies")["changed"]

    assert [] == changed


@pytest.mark.parametrize(
    ("what", "statement"),
    [
        pytest.param("variables", "import os; os.environ['NEW'] = '1'", id="a-variable"),
        pytest.param("filters", "import warnings; warnings.simplefilter('always')", id="a-filter"),
        pytest.param("handlers", "import signal; signal.signal(signal.SIGTERM, print)", id="a-handler"),
        pytest.param("hooks", "import sys; sys.excepthook = print", id="a-hook"),
        pytest.param("path", "import sys; sys.path.append('x')", id="the-path"),
    ],
)
def test_the_probe_sees_a_change(what: str, statement: str) -> None:
    """
    The test above can fail: each kind of change is seen.
    """
    changed = in_a_fresh_process(statement)["changed"]

    assert [what] == changed


def test_every_exported_name_is_there() -> None:
    """
    `dir()` and `from safedev import *` show the five functions and the errors; the names that are loaded late exist.
    """
    statement = "import safedev; assert set(safedev.__all__) <= set(dir(safedev)), dir(safedev)"
    late = "[getattr(safedev, name) for name in safedev.__all__ if 'Error' in name or 'Warning' in name]"

    in_a_fresh_process(f"{statement}; {late}")


def test_an_unknown_name_is_an_attribute_error() -> None:
    """
    Names that are loaded late must not swallow a slip of the pen.
    """
    child = subprocess.run(
        [sys.executable, "-c", "import safedev; safedev.select_devices"], capture_output=True, text=True, check=False
    )

    assert "AttributeError: module 'safedev' has no attribute 'select_devices'" in child.stderr
