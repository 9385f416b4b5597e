"""Whether each visible device works: tried in a child process of its own."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from functools import partial

from safedev._child import in_children
from safedev._text import first_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

# What the first line of an error says, and the state that it shows. The words are cudaGetErrorString's:
# https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
_SIGNS = (
    ("busy or unavailable", "busy"),
    ("out of memory", "out-of-memory"),
    ("no kernel image", "no-kernel-image"),
    ("invalid device ordinal", "absent"),
    ("uncorrectable", "lost"),
    ("unknown error", "lost"),
    ("hardware", "lost"),
    ("is lost", "lost"),
)
# What a device's state means, and what to do about it.
TROUBLES = {
    "hung": (
        "it did not answer within {:g} s",
        "see whether nvidia-smi answers, and the kernel's log (dmesg | grep -i xid); take the device out of the mask",
    ),
    "busy": (
        "another process holds it, or its compute mode lets no process in",
        "nvidia-smi -q -d COMPUTE,PIDS tells which; end that process, or use another device",
    ),
    "out-of-memory": ("its memory is taken", "end the processes that hold it (nvidia-smi), or use another device"),
    "no-kernel-image": (
        "this build of torch has no kernels for it",
        "install a build of torch that has: https://pytorch.org/get-started/locally/",
    ),
    "absent": (
        "torch counts it, and the driver does not show it",
        "run nvidia-smi: the device may be lost, not permitted to this container, or in MIG mode",
    ),
    "lost": (
        "it seems to be lost",
        "see the kernel's log (dmesg | grep -i xid); reset it (nvidia-smi --gpu-reset), or restart the machine",
    ),
    "corrupt": (
        "other bytes came back from it than were sent",
        "do not use it: its memory, or the bus, is at fault (nvidia-smi -q -d ECC)",
    ),
    "no-driver": (
        "the driver did not start in the process that tried it",
        "run nvidia-smi, and try again; where it comes back, see the kernel's log (dmesg | grep -i xid)",
    ),
    "failed": ("it refuses", "run nvidia-smi; if that shows no fault, use the device alone in a small program"),
    "slow": (
        "it took more than half of the time limit",
        "keep the driver loaded (nvidia-smi -pm 1), or see what else uses the device (nvidia-smi)",
    ),
}

_LONGEST = 300  # characters that are kept of an error's first line


def try_devices(ordinals: Iterable[int], seconds: float) -> list[dict[str, Any]]:
    """Try devices, all at once, each in a child process of its own.

    Args:
        ordinals: The devices, from 0.
        seconds: How long each may take.

    Returns:
        For each device ``state``, ``said`` (what went wrong, in the driver's words; not escaped), ``seconds``, and as
        far as it got what ``_torch.exercise`` yields. The states: ``sound``, ``slow`` (it took more than half of the
        limit), ``hung``, ``busy``, ``out-of-memory``, ``no-kernel-image``, ``absent`` (the driver knows no such
        ordinal), ``lost``, ``corrupt`` (other bytes came back than were sent), ``no-driver`` (the driver did not
        start), ``failed`` (any other way).
    """
    works = ((partial(main, ordinal), f"from safedev._trial import main; main({ordinal}, 1)") for ordinal in ordinals)
    return [_judged(text, ending, seconds) for text, ending in in_children(works, seconds)]


def past_end(trials: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Whether the driver refused the first ordinal past the end; None where that is not known."""
    if not trials or trials[-1]["state"] not in {"absent", "sound", "slow"}:
        return None
    refused = trials[-1]["state"] == "absent"
    return {"device": f"cuda:{len(trials) - 1}", "refused": refused, "said": trials[-1]["said"]}


def main(ordinal: int, writer: int) -> None:
    """Try one device in this process; write what is known of it to a descriptor, as lines of JSON."""
    for known in attempt(ordinal):
        os.write(writer, json.dumps(known).encode() + b"\n")


def attempt(ordinal: int) -> Iterator[dict[str, object]]:
    """Try one device in this process; yield what is known of it, the last time with its state."""
    seen: dict[str, object] = {}
    began = time.perf_counter()
    try:
        from safedev import _torch

        began = time.perf_counter()  # importing torch, where that is still to be done, is not the device's time
        for key, value in _torch.exercise(ordinal):
            seen[key] = value
            if key == "uuid":  # all that the device tells of itself, before anything is done to it
                yield dict(seen)
        said, state = "", "sound" if seen.pop("intact") else "corrupt"
    except Exception as error:  # noqa: BLE001 - whatever torch raises: it is what the trial is for
        said = first_line(error)
        state = next((state for sign, state in _SIGNS if sign in said), "failed" if seen else "no-driver")
    yield {**seen, "state": state, "said": said[:_LONGEST], "seconds": round(time.perf_counter() - began, 3)}


def _judged(text: bytes, ending: str | None, seconds: float) -> dict[str, Any]:
    known: dict[str, Any] = {"said": "", "seconds": None}
    for line in text.splitlines():
        if line.startswith(b"{"):
            with suppress(ValueError):  # another module of the child may print there, too
                known.update(json.loads(line))
    if ending is None:
        known["state"] = "hung"
    elif "state" not in known:
        known.update(state="failed", said=f"the process that used it died ({ending})")
    elif known["state"] == "sound" and known["seconds"] > seconds / 2:
        known["state"] = "slow"
    return known
