"""What ``preferred`` means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from safedev._index import index_of, is_uuid
from safedev._quick import quickly
from safedev._terms import Ordinal
from safedev._text import LIMIT, quoted, quoted_number
from safedev.errors import DeviceSpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

# Kinds of accelerator that torch knows by name; the last ones live in packages of their own.
ACCELERATORS = frozenset(
    {"mps", "xpu", "hpu", "mtia", "maia", "xla", "ipu", "privateuseone", "npu", "musa", "mlu", "gcu", "sdaa"}
)
# Types that every torch.device may have, and that are no place for a program's work. A package may call its own kind by
# any other name. Source: c10/core/DeviceType.h, and at::isAccelerator, torch 2.4 to 2.14; torch calls ROCm's
# devices "cuda", too.
_NO_ACCELERATORS = frozenset(
    {"meta", "lazy", "vulkan", "metal", "fpga", "ve", "hip", "mkldnn", "ideep", "opengl", "opencl"}
)
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
FORMS = (
    "an ordinal (3, '3', 'cuda:3'), 'cuda', 'auto', 'cpu', another accelerator ('mps', 'xpu:1'), "
    "a UUID ('GPU-...', 'MIG-...'), a torch.device, or None"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A device that somebody wants.

    Attributes:
        kind: ``auto`` and ``cuda`` (the device of this process), ``ordinal``, ``uuid``, ``cpu``, or ``accelerator``.
        spec: The request as it was given, in a form fit to be shown.
        type: Type of the device, as in ``torch.device.type``; empty for ``auto``.
        ordinal: Position among the devices of that type, from 0; may be negative, or beyond the last. None: not given.
        uuid: The UUID, or a prefix of one; empty unless *kind* is ``uuid``.
    """

    kind: Literal["auto", "cuda", "ordinal", "uuid", "cpu", "accelerator"]
    spec: str
    type: str = "cuda"
    ordinal: Ordinal | None = None
    uuid: str = ""


_request = quickly(Request)
_AUTO = Request(kind="auto", spec="auto", type="")


def request_for(preferred: object) -> Request:
    """Tell what *preferred* asks for.

    Args:
        preferred: As for ``select_device``.

    Raises:
        TypeError: It is neither text nor a device nor an integer; ``True`` and ``False`` are none.
        DeviceSpecError: It is text that names no device, or a device of a kind that is no accelerator, as ``meta``.
    """
    if preferred is None:
        return _AUTO
    if isinstance(preferred, str):
        return _from_text(preferred)
    kind, index = getattr(preferred, "type", None), getattr(preferred, "index", None)
    # A torch.device, told without torch.
    if type(preferred).__name__ == "device" and isinstance(kind, str) and (index is None or isinstance(index, int)):
        return _from_device(kind, index)
    if (ordinal := index_of(preferred)) is not None:
        return _request(kind="ordinal", spec=f"cuda:{quoted_number(ordinal)}", ordinal=Ordinal(ordinal))
    shown = repr(preferred) if isinstance(preferred, (bool, float)) else f"a value of type {type(preferred).__name__}"
    raise TypeError(f"{shown} is no device: give {FORMS}")


def _from_text(text: str) -> Request:
    if text in {"auto", "cuda"}:
        return _AUTO if text == "auto" else Request(kind="cuda", spec="cuda")
    if found := re.fullmatch(rf"(?:cuda:)?({_NUMBER})", text):
        return Request(kind="ordinal", spec=f"cuda:{found[1]}", ordinal=Ordinal(int(found[1])))
    if found := re.fullmatch(rf"([a-z]+)(?::({_NUMBER}))?", text):
        kind, number = found[1], found[2]
        if kind == "cpu" or kind in ACCELERATORS:
            return _from_device(kind, None if number is None else int(number))
    if is_uuid(text):
        return Request(kind="uuid", spec=text, uuid=text)
    raise _no_device(text)


def _no_device(text: str) -> DeviceSpecError:
    return DeviceSpecError(text, f"{quoted(text)} is no device{_hint(text)}: give {FORMS}")


def _from_device(kind: str, index: int | None) -> Request:
    ordinal = None if index is None else Ordinal(index)
    if kind == "cpu":
        return Request(kind="cpu", spec="cpu", type="cpu")
    if kind != "cuda":
        spec = kind if index is None else f"{kind}:{index}"
        if kind in _NO_ACCELERATORS:
            raise _no_device(spec)
        return Request(kind="accelerator", spec=spec, type=kind, ordinal=ordinal)
    if index is None:
        return Request(kind="cuda", spec="cuda")
    return Request(kind="ordinal", spec=f"cuda:{index}", ordinal=ordinal)


def _hint(text: str) -> str:
    """Name the form that was probably meant, where that is plain."""
    token = text.strip().lower() if len(text) < LIMIT else ""
    if re.fullmatch(r"(?:cuda|gpu)\s*:?\s*-\s*[0-9]+|-[0-9]+", token):
        return (
            " (ordinals count from 0, and a negative one is not counted from the last device; "
            "give 'cpu' if no GPU was meant)"
        )
    if found := re.fullmatch(rf"(?:cuda|gpu)\s*:?\s*0*({_NUMBER})", token):
        return f" (did you mean 'cuda:{found[1]}'?)"
    if token in {"cuda:", "gpu", "gpu:", "cuda"}:
        return " (did you mean 'cuda'?)"
    if re.fullmatch(r"(?:cuda:)?[0-9]+(?:,[0-9]+)+", token):
        return " (it names several; one process uses one device here)"
    return ""
