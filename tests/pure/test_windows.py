"""The lines for Windows, run where Python takes itself to be there; `GetModuleHandleW` is a C function of this test."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GCC = shutil.which("gcc") or shutil.which("cc")

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or GCC is None, reason="builds a library for Linux with a C compiler"
)

# What kernel32 does: hand out the handle of a library that is loaded, by its name, or NULL. A handle is an address.
# https://learn.microsoft.com/windows/win32/api/libloaderapi/nf-libloaderapi-getmodulehandlew
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <wchar.h>

static wchar_t asked[64];

const wchar_t *name_asked_for(void) { return asked; }
void *GetModuleHandleW(const wchar_t *name)
{
    wcsncpy(asked, name, 63);
    return wcscmp(name, L"nvcuda.dll") ? 0 : dlopen(SELF, RTLD_NOW);
}
int cuDeviceGetCount(int *count) { *count = 7; return 0; }
int cuDriverGetVersion(int *version) { *version = 12080; return 34; }
"""

# `ctypes` itself is for the system that it was built for, so it is imported before.
PREAMBLE = """
import ctypes, json, os, sys
opened = []
def WinDLL(name):
    opened.append(name)
    return ctypes.CDLL(sys.argv[1])
ctypes.WinDLL = WinDLL
sys.platform = "win32"
from safedev import _driver, _library
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kernel32 and nvcuda in one."""
    folder = tmp_path_factory.mktemp("windows")
    (folder / "windows.c").write_text(SOURCE)
    made = folder / "libwindows.so"
    command = [str(GCC), "-shared", "-fPIC", f'-DSELF="{made}"', "-o", str(made), str(folder / "windows.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


def on_windows(library: Path, code: str) -> Any:
    """What *code* prints as JSON."""
    command = [sys.executable, "-c", PREAMBLE + code, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_drivers_library_is_looked_for_by_its_name_on_windows(library: Path) -> None:
    """
    By the one function that loads nothing.
    """
    code = """
_driver.frozen_count()
name_asked_for = ctypes.CDLL(sys.argv[1]).name_asked_for
name_asked_for.restype = ctypes.c_wchar_p
print(json.dumps([opened, name_asked_for()]))
"""

    assert [["kernel32"], "nvcuda.dll"] == on_windows(library, code)


def test_a_handle_keeps_its_upper_half(library: Path) -> None:
    """
    It is an address: an ``int``, which ctypes takes where nothing else is said, would be cut to 32 bits.
    """
    code = """
from _ctypes import dlopen
print(json.dumps([_library.loaded("nvcuda.dll"), dlopen(sys.argv[1], os.RTLD_NOW)]))
"""
    handle, expected = on_windows(library, code)

    assert handle == expected
    assert handle > 2**31


def test_a_library_that_is_not_loaded_has_no_handle(library: Path) -> None:
    """
    Windows answers with NULL.
    """
    code = 'print(json.dumps([_library.loaded("nvml.dll"), _library.ask("nvml.dll", "nvmlDeviceGetCount_v2")]))'

    assert [None, None] == on_windows(library, code)


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        pytest.param("cuDeviceGetCount", [0, 7], id="it-answers"),
        pytest.param("cuDriverGetVersion", [34, 12080], id="it-refuses"),
        pytest.param("cuNoSuchFunction", None, id="no-such-function"),
    ],
)
def test_the_driver_is_asked_through_its_handle(library: Path, function: str, answer: list[int] | None) -> None:
    """
    Status and answer come through.
    """
    assert answer == on_windows(library, f'print(json.dumps(_library.ask("nvcuda.dll", "{function}")))')


def test_the_count_of_a_driver_that_has_started_is_told(library: Path) -> None:
    """
    As everywhere else.
    """
    assert 7 == on_windows(library, "print(json.dumps(_driver.frozen_count()))")


def test_variables_are_those_of_python(library: Path) -> None:
    """
    What libraries see besides is not asked there.
    """
    code = 'os.environ["SAFEDEV_TEST"] = "1"; os.putenv("SAFEDEV_TEST", "2")\n'
    code += 'print(json.dumps([_library.environment("SAFEDEV_TEST"), _library.environment("SAFEDEV_NONE")]))'

    assert ["1", None] == on_windows(library, code)


def test_the_drivers_library_is_loaded_by_its_name_on_windows(library: Path) -> None:
    """
    As ctypes loads one there; a name that Windows does not find is an OSError.
    """
    code = """
asked = []
def CDLL(name):
    asked.append(name)
    if name != "nvcuda.dll":
        raise FileNotFoundError(f"Could not find module '{name}' (or one of its dependencies)")
ctypes.CDLL = CDLL
from safedev import _nvml
print(json.dumps([_library.can_load(_nvml.NAME), _library.can_load(_driver.NAME), asked]))
"""

    assert [False, True, ["nvml.dll", "nvcuda.dll"]] == on_windows(library, code)
