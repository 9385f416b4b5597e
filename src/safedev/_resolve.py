"""From a request to a device, by the counts alone."""

from __future__ import annotations

from safedev._terms import Ordinal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from safedev._request import Request
    from safedev._snapshot import Snapshot

    # The device, or None where it cannot be had; the ordinal that was meant, from 0, or None; what there is to say:
    #   own             this process was given devices of its own
    #   doubt           it seems so, and another explanation is at hand
    #   no-local-rank   it cannot be told which process this is
    #   oversubscribed  more workers than devices
    #   unusable        devices are there, and none can be used
    Remark = Literal["", "own", "doubt", "no-local-rank", "oversubscribed", "unusable"]
    Answer = tuple[str | None, Ordinal | None, Remark]


def resolve(request: Request, snapshot: Snapshot) -> Answer:  # noqa: PLR0911 - a table of cases
    """Tell which device *request* gets, as text, which ordinal was meant, and what there is to say."""
    count = snapshot.device_count
    if request.kind == "cpu":
        return "cpu", None, ""
    if request.kind == "ordinal":
        return _at("cuda", request.ordinal, count)
    if request.kind == "uuid":
        found = snapshot.found or ()
        return _at("cuda", Ordinal(found[0]), count) if len(found) == 1 else (None, None, "")
    if request.kind == "accelerator":
        there = snapshot.accelerator_count if request.type == snapshot.accelerator else 0
        if request.ordinal is not None or there == 0:
            return _at(request.type, request.ordinal, there)
        return _of_this_process(request.type, there, snapshot)
    if count:
        return _of_this_process("cuda", count, snapshot)
    if request.kind == "cuda":
        return None, None, "unusable" if devices_are_there(snapshot) else ""
    if devices_are_there(snapshot) and not snapshot.mask.hides_all:
        return None, None, "unusable"
    if snapshot.accelerator_count:
        return _of_this_process(snapshot.accelerator, snapshot.accelerator_count, snapshot)
    return "cpu", None, ""


def devices_are_there(snapshot: Snapshot) -> bool:
    """Whether the machine is known to have CUDA devices, seen or not."""
    return bool(snapshot.device_count or snapshot.physical_count or "CUDA" in snapshot.count_evidence)


def too_old(serves: int | None, build: str | None) -> bool:
    """Whether a driver that *serves* a CUDA (12080 for 12.8) is too old for a torch built for CUDA *build*.

    Source:
        https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html: within one major version,
        a driver serves every minor one.
    """
    major = (build or "").partition(".")[0]
    return serves is not None and major.isdecimal() and serves // 1000 < int(major)


def _at(kind: str, ordinal: Ordinal | None, count: int) -> Answer:
    return (f"{kind}:{ordinal}" if ordinal is not None and 0 <= ordinal < count else None), ordinal, ""


def _of_this_process(kind: str, count: int, snapshot: Snapshot) -> Answer:  # noqa: PLR0911 - a table of cases
    """The device of this process among *count* (at least 1) of one kind, by its local rank."""
    launch, sharing = snapshot.launch, snapshot.sharing
    if sharing is not None and sharing.kind == "own":
        return f"{kind}:0", Ordinal(0), "doubt" if sharing.doubt else "own"
    if launch is None:
        if snapshot.launch_error is None:
            return f"{kind}:0", Ordinal(0), ""
        return (f"{kind}:0", Ordinal(0), "no-local-rank") if count == 1 else (None, None, "no-local-rank")
    meant = Ordinal(launch.local_rank)  # the one place where a local rank is taken for an ordinal
    shared = sharing is not None and sharing.kind == "shared"
    if shared and launch.local_world_size is not None and launch.local_world_size > count:
        return None, meant, "oversubscribed"
    if meant < count:
        return f"{kind}:{meant}", meant, ""
    if shared or count > 1:
        return None, meant, "oversubscribed"
    return f"{kind}:0", Ordinal(0), "doubt"
