"""What counts as a number of a device, and what as a UUID of one."""

from __future__ import annotations

import operator
import re


def index_of(value: object) -> int | None:
    """The integer that *value* is, by its ``__index__``; None for anything else, a truth value of any kind included."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # asked for that
    except Exception:  # noqa: BLE001 - such as a tensor of floats; whatever it raises, it is no integer
        return None


def is_uuid(text: str) -> bool:
    """Whether *text* is a UUID of a device, or the beginning of one: ``GPU-...``, ``MIG-...``; harmless to show."""
    return re.fullmatch(r"(?:GPU|MIG)-[0-9a-zA-Z/-]{1,120}", text) is not None
