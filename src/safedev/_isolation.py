"""What the system shows of NVIDIA's devices without NVML, and how much of its host this container or job was given."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from safedev._text import counted, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

BUS = Path("/sys/bus/pci/devices")
NODES = Path("/dev")
DRIVER = Path("/proc/driver/nvidia")
MOUNTS = Path("/proc/self/mounts")
MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What was seen; nothing was opened for it, and no driver started.

    Attributes:
        on_bus: NVIDIA devices on the bus of the host, which a container does not narrow, but for those that another
            driver holds; None: unknown.
        other_drivers: Drivers that hold the others: ``nouveau``, ``vfio-pci``.
        loaded: Whether NVIDIA's kernel driver is loaded; None: unknown.
        nodes: Numbers of the ``/dev/nvidiaN`` that are there, which are the host's, and no physical indices; None:
            unknown.
        closed: Those of them that this process may not open.
        own_proc: Whether ``/proc/driver/nvidia`` is a mount of its own: a container runtime chose what stands there.
        marks: Files that container runtimes leave. A weak hint: nothing is concluded from them.
    """

    on_bus: int | None = None
    other_drivers: tuple[str, ...] = ()
    loaded: bool | None = None
    nodes: tuple[int, ...] | None = None
    closed: tuple[int, ...] = ()
    own_proc: bool = False
    marks: tuple[str, ...] = ()


def read() -> Isolation:
    """Look at the bus, the nodes and the mounts; what may not be looked at is taken for missing.

    Source:
        https://docs.kernel.org/PCI/sysfs-pci.html; vendor 10de is NVIDIA, class 03 a display controller.
        Linux, ``fs/namei.c``: ``access`` runs ``inode_permission``, and so the cgroup's device filter
        (``devcgroup_inode_permission``), as ``open`` does, and does not open the node, which would start the device.
    """
    on_bus, drivers = _bus()
    nodes = _nodes()
    own_proc = _is_mounted(DRIVER)
    told = _is_there(DRIVER / "version") or "nvidia" in drivers
    return Isolation(
        on_bus=on_bus,
        other_drivers=tuple(sorted(drivers - {"", "nvidia"})),
        loaded=True if told else None if own_proc or on_bus is None else False,  # what is mounted there may be empty
        nodes=nodes,
        closed=tuple(n for n in nodes or () if not os.access(NODES / f"nvidia{n}", os.R_OK | os.W_OK)),
        own_proc=own_proc,
        marks=tuple(str(mark) for mark in MARKS if _is_there(mark)),
    )


def evidence(seen: Isolation, given: int | None) -> list[str]:
    """What shows that not all of the host is here, strongest first, a clause each; *given* is NVML's count."""
    bus, nodes = seen.on_bus or 0, seen.nodes
    clauses = []
    if given is not None and bus > given:
        clauses.append(f"the bus shows {counted(bus, 'NVIDIA device')}, and NVML {given}")
    if nodes is not None and bus > len(nodes):
        which = f" ({_names(nodes)})" if nodes else ""
        clauses.append(f"/dev has {counted(len(nodes), 'node')} for {counted(bus, 'NVIDIA device')}{which}")
    if seen.own_proc:
        clauses.append("/proc/driver/nvidia is a mount of its own")
    if seen.closed:
        clauses.append(f"this process may not open {_names(seen.closed)}")
    return clauses


def narrowed(seen: Isolation, given: int | None) -> str:
    """Say that the host has more devices than the *given* ones that NVML counts here; empty: nothing shows that."""
    usable = [node for node in seen.nodes or () if node not in seen.closed]
    number = given if given is not None else len(usable) or None
    if seen.on_bus is None or number is None or seen.on_bus <= number:
        return ""
    if len(usable) >= seen.on_bus:  # nothing keeps this process from the others
        return f"the host has {seen.on_bus} on its bus, and NVML answers for {number}: the others may be lost"
    which = f" ({_names(usable)})" if len(usable) == number else ""
    return (
        f"the host has {seen.on_bus} on its bus, and this container or job seems to have been given {number}{which}, "
        "which count from 0"
    )


def absence(seen: Isolation) -> tuple[str, str] | None:
    """Why a host with NVIDIA devices shows none here, and what to do; None: nothing shows why."""
    if not seen.on_bus:
        if not seen.other_drivers:
            return None
        held = ", ".join(quoted(name) for name in seen.other_drivers)
        return (
            f"NVIDIA devices are on the bus, and {held} holds them in place of NVIDIA's driver",
            "install NVIDIA's driver on the host, or give the device back to it",
        )
    there = f"the host has {counted(seen.on_bus, 'NVIDIA device')} on its bus"
    if seen.loaded is False:
        return (
            f"{there}, and no NVIDIA driver is loaded: /proc/driver/nvidia/version is missing",
            "install NVIDIA's driver on the host, or load it (modprobe nvidia), until nvidia-smi answers there",
        )
    if seen.nodes == ():
        return (
            f"{there}, and there is no /dev/nvidiaN: this container or job seems to have been given none",
            f"{_ASK}; outside a container, run nvidia-smi as root, which makes the nodes",
        )
    if seen.nodes and seen.nodes == seen.closed:
        return (
            f"{there}, and this process may not open {_names(seen.nodes)}: a cgroup or their permissions keep it out",
            f"{_ASK}; outside a job, see who may open them: ls -l /dev/nvidia*",
        )
    return None


_ASK = "ask for devices: docker run --gpus all, a limit of nvidia.com/gpu in Kubernetes, --gpus or --gres=gpu in Slurm"


def _names(nodes: Iterable[int]) -> str:
    names = [f"/dev/nvidia{node}" for node in nodes]
    return ", ".join(names[:_MOST_NAMED] + ["..."] * (len(names) > _MOST_NAMED))


def _bus() -> tuple[int | None, set[str]]:
    """How many devices NVIDIA's driver holds, or may hold, and the drivers of all; an empty name: none holds it."""
    drivers = []
    try:
        for device in BUS.iterdir():
            is_nvidia = (device / "vendor").read_text().strip() == "0x10de"
            if is_nvidia and (device / "class").read_text().startswith("0x03"):
                drivers.append(_holder(device))
    except (OSError, ValueError):
        return None, set()
    # Beside one that NVIDIA's driver holds, one that none holds is of no use to anybody on this host.
    return drivers.count("nvidia") or drivers.count(""), set(drivers)


def _holder(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return ""


def _nodes() -> tuple[int, ...] | None:
    try:
        found = [re.fullmatch(r"nvidia([0-9]{1,4})", node.name) for node in NODES.iterdir()]
    except OSError:
        return None
    return tuple(sorted(int(match[1]) for match in found if match))


def _is_there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # what may not be looked at; from Python 3.12 on `exists` tells no difference
        return False


def _is_mounted(place: Path) -> bool:
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.split(" ")[1:2] == [str(place)] for line in lines)
