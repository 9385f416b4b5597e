"""How much of its host a container or job was given, told by trees of files like those of Linux."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from safedev import _isolation
from safedev._isolation import Isolation, absence, evidence, narrowed

H100 = ("0x10de", "0x030200")
NVIDIA, NOUVEAU, VFIO = "nvidia", "nouveau", "vfio-pci"


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host without an NVIDIA device, of which a test says what differs."""
    for name, place in {"BUS": "bus", "NODES": "dev", "DRIVER": "driver", "MOUNTS": "mounts"}.items():
        monkeypatch.setattr(_isolation, name, tmp_path / place)
    monkeypatch.setattr(_isolation, "MARKS", (tmp_path / ".dockerenv", tmp_path / ".containerenv"))
    for folder in ("bus", "dev", "drivers"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mounts").write_text("sysfs /sys sysfs ro 0 0\n")
    return tmp_path


def bus(host: Path, *devices: tuple[str, str], driver: str = "") -> None:
    """Devices of a PCI bus: vendor and class of each, as the kernel writes them, and the driver that holds them."""
    for vendor, kind in devices:
        place = host / "bus" / f"0000:{len(list((host / 'bus').iterdir())):02}:00.0"
        place.mkdir()
        (place / "vendor").write_text(f"{vendor}\n")
        (place / "class").write_text(f"{kind}\n")
        if driver:
            (host / "drivers" / driver).mkdir(exist_ok=True)
            (place / "driver").symlink_to(Path("..") / ".." / "drivers" / driver)


def nodes(host: Path, numbers: Iterable[int]) -> None:
    for number in numbers:
        (host / "dev" / f"nvidia{number}").touch()


def closed(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """What a cgroup's device filter makes of ``access``, which a test cannot set up: root itself is refused."""
    refused = {f"nvidia{number}" for number in numbers}

    def access(path: Path, mode: int) -> bool:
        assert mode == os.R_OK | os.W_OK
        return path.name not in refused

    monkeypatch.setattr(os, "access", access)


# Vendor 0x10de is NVIDIA; class 0x0300 is a VGA controller, 0x0302 a 3D controller, 0x0403 a sound device.
@pytest.mark.parametrize(
    ("devices", "count"),
    [
        pytest.param([], 0, id="an-empty-bus"),
        pytest.param([H100] * 4, 4, id="3d-controllers"),
        pytest.param([("0x10de", "0x030000"), ("0x10de", "0x040300")], 1, id="a-card-and-its-sound"),
        pytest.param([("0x1002", "0x030000"), ("0x8086", "0x030000")], 0, id="other-vendors"),
    ],
)
def test_the_hosts_devices_are_counted_on_its_bus(host: Path, devices: list[tuple[str, str]], count: int) -> None:
    """
    Display controllers of NVIDIA, whether this container was given them or not.
    """
    bus(host, *devices)

    assert count == _isolation.read().on_bus


def test_devices_that_another_driver_holds_do_not_count(host: Path) -> None:
    """
    One that was passed to a virtual machine, or that no driver holds beside those that NVIDIA's does, is none that a
    container of this host could be given.
    """
    bus(host, H100, H100, driver=NVIDIA)
    bus(host, H100, driver=VFIO)
    bus(host, H100)
    seen = _isolation.read()

    assert (2, (VFIO,)) == (seen.on_bus, seen.other_drivers)


@pytest.mark.parametrize("content", [pytest.param(None, id="no-bus"), pytest.param(b"\xff", id="nonsense")])
def test_a_bus_that_cannot_be_read_is_unknown(
    monkeypatch: pytest.MonkeyPatch, host: Path, content: bytes | None
) -> None:
    """
    Another system, or a file that is no text.
    """
    bus(host, H100)
    if content is None:
        monkeypatch.setattr(_isolation, "BUS", host / "missing")
    else:
        (host / "bus" / "0000:00:00.0" / "vendor").write_bytes(content)
    seen = _isolation.read()

    assert (None, None) == (seen.on_bus, seen.loaded)


def test_nodes_are_those_of_devices(host: Path) -> None:
    """
    By the host's numbers, in order; ``nvidiactl`` and what serves all devices is left out.
    """
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia0x", "null"):
        (host / "dev" / name).touch()
    seen = _isolation.read()

    assert ((2, 10), ()) == (seen.nodes, seen.closed)


def test_a_node_that_may_not_be_opened_is_found(monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
    """
    It is asked for, and not opened: opening would start the device.
    """
    nodes(host, range(4))
    closed(monkeypatch, 1, 3)
    monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("something was opened"))

    assert (1, 3) == _isolation.read().closed


def test_without_a_folder_of_devices_the_nodes_are_unknown(monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
    """
    That is another system, and no container that was given none.
    """
    monkeypatch.setattr(_isolation, "NODES", host / "missing")

    assert _isolation.read().nodes is None


@pytest.mark.parametrize(
    ("line", "own"),
    [
        # As nvidia-container-cli leaves it: github.com/NVIDIA/nvidia-container-runtime, issue 92.
        pytest.param("tmpfs {driver} tmpfs rw,nosuid,nodev,noexec,mode=555 0 0", True, id="a-mount-of-its-own"),
        pytest.param("proc {driver}/gpus/0000:00:1e.0 proc ro,nosuid 0 0", False, id="only-below-it"),
        pytest.param("{driver} /elsewhere none rw 0 0", False, id="only-its-source"),
        pytest.param("", False, id="a-line-without-fields"),
    ],
)
def test_a_mount_of_its_own_is_found(host: Path, line: str, own: bool) -> None:
    """
    Where a container runtime chose what stands in ``/proc/driver/nvidia``.
    """
    (host / "mounts").write_text(f"proc /proc proc rw 0 0\n{line.format(driver=host / 'driver')}\n")

    assert own is _isolation.read().own_proc


def test_without_a_list_of_mounts_there_is_none(host: Path) -> None:
    """
    Another system has none.
    """
    (host / "mounts").unlink()

    assert _isolation.read().own_proc is False


@pytest.mark.parametrize(
    ("version", "driver", "mounted", "loaded"),
    [
        pytest.param(True, "", False, True, id="it-tells-its-version"),
        pytest.param(False, NVIDIA, False, True, id="it-holds-a-device"),
        pytest.param(False, "", False, False, id="neither"),
        pytest.param(False, NOUVEAU, False, False, id="another-holds-it"),
        # LXC mounts an empty tmpfs there: github.com/NVIDIA/libnvidia-container, issue 105.
        pytest.param(False, "", True, None, id="what-is-mounted-there-is-empty"),
    ],
)
def test_the_kernels_driver_is_found(
    host: Path, version: bool, driver: str, mounted: bool, loaded: bool | None
) -> None:
    """
    By the version that it tells, or by a device that it holds.
    """
    bus(host, H100, driver=driver)
    if version:
        (host / "driver").mkdir()
        (host / "driver" / "version").touch()
    if mounted:
        (host / "mounts").write_text(f"tmpfs {host / 'driver'} tmpfs rw 0 0\n")

    assert loaded is _isolation.read().loaded


def test_marks_of_a_container_are_told(host: Path) -> None:
    """
    The files that Docker and Podman leave.
    """
    (host / ".dockerenv").touch()

    assert (str(host / ".dockerenv"),) == _isolation.read().marks


@pytest.mark.parametrize(
    ("seen", "given", "clauses"),
    [
        pytest.param(Isolation(), None, [], id="nothing-known"),
        pytest.param(Isolation(on_bus=2, nodes=(0, 1), loaded=True), 2, [], id="all-is-here"),
        pytest.param(Isolation(on_bus=0, nodes=()), 0, [], id="no-device-in-the-host"),
        pytest.param(Isolation(on_bus=0, nodes=()), 4, [], id="devices-that-are-on-no-bus"),
        pytest.param(Isolation(on_bus=8), 2, ["the bus shows 8 NVIDIA devices, and NVML 2"], id="nvml-counts-fewer"),
        pytest.param(
            Isolation(on_bus=8, nodes=(1, 5)),
            None,
            ["/dev has 2 nodes for 8 NVIDIA devices (/dev/nvidia1, /dev/nvidia5)"],
            id="fewer-nodes",
        ),
        pytest.param(Isolation(on_bus=1, nodes=()), None, ["/dev has 0 nodes for 1 NVIDIA device"], id="no-node"),
        pytest.param(Isolation(own_proc=True), None, ["/proc/driver/nvidia is a mount of its own"], id="a-mount"),
        pytest.param(
            Isolation(nodes=(0, 1), closed=(1,)), None, ["this process may not open /dev/nvidia1"], id="a-closed-node"
        ),
        pytest.param(Isolation(marks=("/.dockerenv",)), None, [], id="a-hint-is-no-evidence"),
        pytest.param(
            Isolation(on_bus=4, nodes=(2,), closed=(2,), own_proc=True),
            0,
            [
                "the bus shows 4 NVIDIA devices, and NVML 0",
                "/dev has 1 node for 4 NVIDIA devices (/dev/nvidia2)",
                "/proc/driver/nvidia is a mount of its own",
                "this process may not open /dev/nvidia2",
            ],
            id="all-at-once",
        ),
    ],
)
def test_evidence_is_told_strongest_first(seen: Isolation, given: int | None, clauses: list[str]) -> None:
    """
    What was seen, and not what it may mean.
    """
    assert clauses == evidence(seen, given)


def test_a_crowd_of_nodes_is_cut() -> None:
    """
    A line stays readable.
    """
    (clause,) = evidence(Isolation(on_bus=16, nodes=tuple(range(12))), None)

    assert clause.endswith("/dev/nvidia7, ...)")


@pytest.mark.parametrize(
    ("seen", "given", "words"),
    [
        pytest.param(Isolation(on_bus=8), 2, "has 8 on its bus.*given 2, which", id="by-nvml"),
        pytest.param(
            Isolation(on_bus=8, nodes=(1, 5)),
            2,
            r"given 2 \(/dev/nvidia1, /dev/nvidia5\), which",
            id="by-nvml-and-the-nodes",
        ),
        pytest.param(Isolation(on_bus=8, nodes=(1, 5)), None, "given 2 .*nvidia1, /dev/nvidia5", id="by-the-nodes"),
        pytest.param(
            Isolation(on_bus=2, nodes=(0, 1), closed=(0,)),
            None,
            r"given 1 \(/dev/nvidia1\)",
            id="by-what-may-be-opened",
        ),
        pytest.param(Isolation(on_bus=4, nodes=(0, 1, 2)), 2, "given 2, which", id="which-of-them-is-not-known"),
        pytest.param(Isolation(on_bus=2, nodes=(0, 1)), 2, "^$", id="all-are-here"),
        pytest.param(Isolation(on_bus=8), None, "^$", id="nobody-counted"),
        pytest.param(Isolation(nodes=(0,)), 2, "^$", id="no-bus"),
        pytest.param(Isolation(on_bus=8, own_proc=True), 8, "^$", id="a-mount-shows-no-number"),
    ],
)
def test_a_host_with_more_devices_is_told(seen: Isolation, given: int | None, words: str) -> None:
    """
    Its number, and that of the devices here; nothing where they do not differ, or nobody knows.
    """
    assert re.search(words, narrowed(seen, given))


@pytest.mark.parametrize(
    ("seen", "reason", "remedy"),
    [
        pytest.param(
            Isolation(on_bus=0, other_drivers=(NOUVEAU,), loaded=False),
            "'nouveau' holds them",
            "install NVIDIA's driver",
            id="another-driver-holds-them",
        ),
        pytest.param(
            Isolation(on_bus=2, loaded=False, nodes=()),
            "the host has 2 NVIDIA devices on its bus, and no NVIDIA driver is loaded",
            "modprobe nvidia",
            id="no-driver",
        ),
        pytest.param(
            Isolation(on_bus=2, loaded=True, nodes=()),
            "there is no /dev/nvidiaN",
            "docker run --gpus all, a limit of nvidia.com/gpu in Kubernetes, --gpus or --gres=gpu in Slurm",
            id="no-node",
        ),
        pytest.param(Isolation(on_bus=2, nodes=()), "there is no /dev/nvidiaN", "--gpus all", id="driver-unknown"),
        pytest.param(
            Isolation(on_bus=2, loaded=True, nodes=(0, 1), closed=(0, 1)),
            "may not open /dev/nvidia0, /dev/nvidia1",
            "ls -l /dev/nvidia*",
            id="closed-nodes",
        ),
    ],
)
def test_why_a_host_with_devices_shows_none(seen: Isolation, reason: str, remedy: str) -> None:
    """
    What was seen, and what to do.
    """
    told = absence(seen)

    assert told is not None
    assert reason in told[0]
    assert remedy in told[1]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(Isolation(), id="nothing-known"),
        pytest.param(Isolation(on_bus=0, loaded=False, nodes=()), id="no-device-in-the-host"),
        pytest.param(Isolation(on_bus=2, loaded=True), id="nodes-unknown"),
        pytest.param(Isolation(on_bus=2, loaded=True, nodes=(0, 1)), id="all-may-be-opened"),
        pytest.param(Isolation(on_bus=2, loaded=True, nodes=(0, 1), closed=(0,)), id="one-may-be-opened"),
        pytest.param(Isolation(marks=("/.dockerenv",), own_proc=True), id="a-container-of-a-host-without-devices"),
    ],
)
def test_where_nothing_shows_why_nothing_is_said(seen: Isolation) -> None:
    """
    That a container is one does not explain it.
    """
    assert absence(seen) is None


def test_what_may_not_be_looked_at_is_taken_for_missing(monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
    """
    Up to Python 3.11 asking whether a file is there fails, where its folder may not be searched.
    """
    bus(host, H100)

    def exists(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", exists)
    seen = _isolation.read()

    assert (1, False, ()) == (seen.on_bus, seen.loaded, seen.marks)


def test_a_device_that_nothing_keeps_away_may_be_lost() -> None:
    """
    Every node is there and may be opened, and NVML answers for fewer: that is no container that was given fewer.
    """
    told = _isolation.narrowed(_isolation.Isolation(on_bus=8, nodes=tuple(range(8))), 7)

    assert "may be lost" in told
    assert "container" not in told
