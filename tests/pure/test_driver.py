"""Whether the driver has started, asked of stand-ins for it that answer, refuse, fail and talk nonsense."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safedev import _driver, _library

NOT_INITIALIZED, STUB_LIBRARY, NO_DEVICE = 3, 34, 100  # of CUresult, in cuda.h
TWO = ["000102030405060708090a0b0c0d0e0f", "101112131415161718191a1b1c1d1e1f"]
AS_UUIDS = ("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f")

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the C library of Linux by its name")


class Library:
    """A driver's library: devices with UUIDs, as 32 digits each, and functions that may be missing or refuse."""

    def __init__(self, digits: list[str], *, missing: tuple[str, ...] = (), status: int = 0, parents: str = "") -> None:
        self.digits = digits
        self.missing = missing
        self.status = status
        self.parents = parents or digits

    def __getattr__(self, name: str) -> Any:
        functions = {"cuDeviceGet": self.get, "cuDeviceGetUuid": self.old, "cuDeviceGetUuid_v2": self.new}
        if name not in functions or name in self.missing:
            raise AttributeError(name)
        return functions[name]

    def get(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return self.status

    def new(self, uuid: Any, device: Any) -> int:
        uuid[:] = bytes.fromhex(self.digits[device.value])
        return 0

    def old(self, uuid: Any, device: Any) -> int:
        uuid[:] = bytes.fromhex(self.parents[device.value])
        return 0


def driver_that_says(monkeypatch: pytest.MonkeyPatch, answer: tuple[int, int] | None) -> None:
    monkeypatch.setattr(_library, "ask", lambda name, function: answer)


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        pytest.param(None, None, id="not-loaded"),
        pytest.param((NOT_INITIALIZED, 0), None, id="loaded-and-asleep"),
        pytest.param((STUB_LIBRARY, 0), None, id="no-driver-behind-the-library"),
        pytest.param((0, 2), 2, id="started"),
        pytest.param((0, 0), 0, id="started-with-no-device"),
        pytest.param((NO_DEVICE, 0), 0, id="an-error-counts-as-started"),
        pytest.param((999, 7), 0, id="an-error-beside-a-number"),
        pytest.param((0, -5), 0, id="a-number-that-is-none"),
    ],
)
def test_the_count_that_the_driver_holds_to(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, int] | None, count: int | None
) -> None:
    """
    None while it sleeps; a driver that answers anything else has started.
    """
    driver_that_says(monkeypatch, answer)

    assert count == _driver.frozen_count()


def test_the_driver_is_asked_for_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    By the library's name on this system, and by the one function that starts nothing.
    """
    asked = []
    monkeypatch.setattr(_library, "ask", lambda *question: asked.append(question))
    _driver.frozen_count()

    assert [("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1", "cuDeviceGetCount")] == asked


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        pytest.param(None, None, id="not-loaded"),
        pytest.param((0, 12080), 12080, id="it-answers"),
        pytest.param((1, 12080), None, id="it-refuses"),
        pytest.param((0, 0), None, id="nonsense"),
    ],
)
def test_the_cuda_that_a_loaded_driver_serves(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, int] | None, version: int | None
) -> None:
    """
    Asked of its library, where something has loaded it.
    """
    asked = []
    monkeypatch.setattr(_library, "ask", lambda *question: [asked.append(question), answer][1])

    assert version == _driver.cuda_version()
    assert [(_driver.NAME, "cuDriverGetVersion")] == asked


@pytest.mark.parametrize(
    ("library", "uuids"),
    [
        pytest.param(Library(TWO), AS_UUIDS, id="two-devices"),
        pytest.param(Library(TWO, missing=("cuDeviceGetUuid_v2",)), AS_UUIDS, id="an-old-driver"),
        pytest.param(Library(TWO, parents=TWO[::-1]), AS_UUIDS, id="an-instance-and-not-its-parent"),  # type: ignore[arg-type]
        pytest.param(Library(TWO, missing=("cuDeviceGetUuid_v2", "cuDeviceGetUuid")), None, id="no-function-for-it"),
        pytest.param(Library(TWO, missing=("cuDeviceGet",)), None, id="no-function-for-a-device"),
        pytest.param(Library(TWO, status=101), None, id="it-refuses"),
    ],
)
def test_the_uuids_of_a_driver_that_has_started(
    monkeypatch: pytest.MonkeyPatch, library: Library, uuids: tuple[str, ...] | None
) -> None:
    """
    By ordinal; None where they are not to be had.
    """
    driver_that_says(monkeypatch, (0, 2))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)

    assert uuids == _driver.uuids()


def test_a_sleeping_driver_tells_no_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is not woken for them.
    """
    driver_that_says(monkeypatch, (NOT_INITIALIZED, 0))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("the library was loaded"))

    assert _driver.uuids() is None


def child_that_ends(monkeypatch: pytest.MonkeyPatch, ending: Any) -> None:
    def started(command: list[str], **_: object) -> Any:
        if isinstance(ending, (OSError, TypeError)):
            raise ending
        return SimpleNamespace(
            communicate=communicate, kill=lambda: None, returncode=getattr(ending, "returncode", None)
        )

    def communicate(timeout: float) -> tuple[str, None]:
        if isinstance(ending, BaseException):
            raise ending
        return ending.stdout, None

    monkeypatch.setattr(subprocess, "Popen", started)


@pytest.mark.parametrize(
    ("ending", "uuids"),
    [
        pytest.param(SimpleNamespace(returncode=0, stdout="\n".join(TWO)), AS_UUIDS, id="two-devices"),
        pytest.param(SimpleNamespace(returncode=0, stdout=""), (), id="no-device"),
        pytest.param(SimpleNamespace(returncode=1, stdout=TWO[0]), None, id="it-failed-half-way"),
        pytest.param(SimpleNamespace(returncode=-11, stdout=""), None, id="it-crashed"),
        pytest.param(SimpleNamespace(returncode=0, stdout=f"hello\n{TWO[0]}"), None, id="nonsense-among-the-lines"),
        pytest.param(subprocess.TimeoutExpired("python", 20), None, id="it-hung"),
        pytest.param(OSError("no such file"), None, id="no-interpreter"),
        pytest.param(ValueError("embedded null byte"), None, id="a-command-that-cannot-be-run"),
        pytest.param(TypeError("expected str, bytes or os.PathLike object, not NoneType"), None, id="no-executable"),
    ],
)
def test_the_uuids_that_a_child_process_tells(monkeypatch: pytest.MonkeyPatch, ending: Any, uuids: object) -> None:
    """
    None where the child did not answer, or answered what is no UUID.
    """
    child_that_ends(monkeypatch, ending)

    assert uuids == _driver.uuids_from_child()


def test_a_child_process_is_really_started() -> None:
    """
    Where this machine has no driver, a real child ends without an answer; where it has one, the answer is UUIDs.
    """
    uuids = _driver.uuids_from_child()

    assert uuids is None or all(uuid.startswith("GPU-") for uuid in uuids)


def test_a_child_process_has_limited_time() -> None:
    """
    A limit that no interpreter can keep is not waited beyond.
    """
    assert _driver.uuids_from_child(seconds=0.001) is None


@pytest.mark.parametrize(
    ("torch", "forked"),
    [
        pytest.param(None, False, id="torch-is-not-imported"),
        pytest.param(SimpleNamespace(), False, id="torch-is-being-imported"),
        pytest.param(SimpleNamespace(cuda=SimpleNamespace()), False, id="torch-does-not-know"),
        pytest.param(SimpleNamespace(cuda=SimpleNamespace(_is_in_bad_fork=lambda: False)), False, id="not-forked"),
        pytest.param(SimpleNamespace(cuda=SimpleNamespace(_is_in_bad_fork=lambda: True)), True, id="forked"),
    ],
)
def test_a_forked_process_is_known_by_torch(monkeypatch: pytest.MonkeyPatch, torch: Any, forked: bool) -> None:
    """
    torch is asked where something has imported it; it is not imported for that.
    """
    if torch is None:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "torch", torch)

    assert forked is _driver.in_bad_fork()


@on_linux
def test_a_library_that_is_loaded_is_asked() -> None:
    """
    The C library's function for the size of a page takes no argument, and answers by its status alone.
    """
    asked_twice = [_library.ask("libc.so.6", "getpagesize") for _ in range(2)]

    assert [(os.sysconf("SC_PAGESIZE"), 0)] * 2 == asked_twice


@pytest.mark.parametrize(
    ("name", "function"),
    [
        pytest.param("libno-such-library.so.1", "getpagesize", id="no-such-library"),
        pytest.param("libc.so.6", "no_such_function", id="no-such-function", marks=on_linux),
    ],
)
def test_a_library_that_cannot_be_asked_gives_no_answer(name: str, function: str) -> None:
    """
    It is not loaded, or is a stand-in without the function.
    """
    assert _library.ask(name, function) is None


@on_linux
@pytest.mark.parametrize(
    ("change", "seen"),
    [
        pytest.param(lambda: os.environ.update(SAFEDEV_TEST="1"), "1", id="changed-in-place"),
        pytest.param(lambda: os.environ.update(SAFEDEV_TEST=""), "", id="empty"),
        pytest.param(
            lambda: os.environ.update(SAFEDEV_TEST="\udcff\u00e9"), "\udcff\u00e9", id="bytes-that-are-no-utf-8"
        ),
        pytest.param(lambda: os.putenv("SAFEDEV_TEST", "1"), "1", id="put-past-it"),
        pytest.param(lambda: os.unsetenv("SAFEDEV_TEST"), None, id="unset"),
    ],
)
def test_a_variable_as_libraries_see_it(monkeypatch: pytest.MonkeyPatch, change: Any, seen: str | None) -> None:
    """
    The C library's own view, which os.environ need not agree with.
    """
    monkeypatch.setenv("SAFEDEV_TEST", "before")
    change()

    assert seen == _library.environment("SAFEDEV_TEST")


@on_linux
def test_a_replaced_environment_reaches_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A mapping put in the place of os.environ is Python's alone.
    """
    monkeypatch.setattr(os, "environ", {"SAFEDEV_TEST": "1"})

    assert _library.environment("SAFEDEV_TEST") is None


@on_linux
def test_a_library_is_not_loaded_for_the_asking() -> None:
    """
    One that lies on the disk and that nothing has loaded stays where it is.
    """
    script = (
        "from safedev import _library\n"
        "print([_library.loaded(name) for name in ('libnsl.so.1', 'libBrokenLocale.so.1', 'libanl.so.1')],"
        " 'libBrokenLocale' in open('/proc/self/maps').read())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert "[None, None, None] False\n" == told


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        pytest.param("PATH", os.environ.get("PATH"), True, id="as-it-was"),
        pytest.param("PATH", "elsewhere", False, id="another-value"),
        pytest.param("PATH", None, False, id="unset-since"),
        pytest.param("SAFEDEV_TEST", None, True, id="never-set"),
        pytest.param("SAFEDEV_TEST", "1", False, id="set-since"),
        pytest.param("SAFEDEV_TEST", "", False, id="set-since-and-empty"),
    ],
)
def test_it_is_known_what_this_process_was_started_with(name: str, value: str | None, same: bool) -> None:
    """
    The system keeps the environment as it was then.
    """
    assert same is _library.inherited({name: value})
    assert same is _library.inherited({"SAFEDEV_NONE": None, name: value})


def test_where_the_system_does_not_tell_nothing_is_known_to_be_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As on systems without /proc.
    """

    def fails(_: Path) -> bytes:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", fails)

    assert not _library.inherited({"SAFEDEV_TEST": None})


@on_linux
def test_a_library_that_is_here_loads() -> None:
    """
    The C library is, and one that nobody made is not.
    """
    assert _library.can_load("libc.so.6")
    assert not _library.can_load("libno-such-library.so.1")


def test_a_system_without_the_flag_has_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where a library cannot be looked for without loading it, it counts as not loaded.
    """
    monkeypatch.delattr(os, "RTLD_NOLOAD", raising=False)

    assert _library.loaded("libc.so.6") is None
