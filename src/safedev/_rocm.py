"""Masks of ROCm, which act one inside the other: ROCr's first, then HIP's, or CUDA's where HIP's is empty."""

from __future__ import annotations

import re

HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES"


def rocr_entries(raw: str) -> list[int | str]:
    """What ROCr's runtime makes of its mask, not trimmed by the machine.

    An empty mask hides all. Numbers may be decimal, octal (``010``) or hexadecimal (``0x2``). A repeated, negative or
    unreadable entry ends the list.

    Source:
        https://github.com/ROCm/ROCR-Runtime, ``amd_filter_device.cpp``
    """
    entries: dict[int | str, None] = {}
    for text in raw.split(","):
        token = text.strip().upper()
        entry: int | str
        if re.fullmatch(r"GPU-[0-9A-F]+", token):
            entry = token
        elif found := re.fullmatch(r"\+?(0X[0-9A-F]{1,8}|0[0-7]{0,10}|[1-9][0-9]{0,9})", token):
            digits = found[1]
            entry = int(digits, 16 if digits[:2] == "0X" else 8 if digits[0] == "0" else 10)
        else:
            break
        if entry in entries:
            break
        entries[entry] = None
    return list(entries)


def hip_entries(raw: str) -> list[int | str]:
    """What the HIP runtime makes of its mask, or of CUDA's, not trimmed by the machine.

    Numbers are written exactly: `` 1``, ``01``, ``+1`` and ``1gpu`` end the list. A repeated entry is skipped.

    Source:
        https://github.com/ROCm/clr, ``rocclr/device/rocm/rocdevice.cpp``
    """
    entries: dict[int | str, None] = {}
    for token in raw.split(","):
        if "GPU-" in token:
            entries[token] = None
        elif re.fullmatch(r"0|[1-9][0-9]{0,9}", token):
            entries[int(token)] = None
        else:
            break
    return list(entries)


def hip_end(raw: str) -> int | None:
    """Position, from 0, of the entry at which the HIP runtime ends the list; None: it reads them all."""
    tokens = enumerate(raw.split(","))
    return next(
        (n for n, token in tokens if "GPU-" not in token and not re.fullmatch(r"0|[1-9][0-9]{0,9}", token)), None
    )


def stacked(rocr: str, inner: str) -> tuple[int, list[int]]:
    """Put a mask of HIP's, or CUDA's, inside one of ROCr's.

    Args:
        rocr: Text of ``ROCR_VISIBLE_DEVICES``.
        inner: Text of ``HIP_VISIBLE_DEVICES``; where that is unset or empty, of ``CUDA_VISIBLE_DEVICES``. Not empty.

    Returns:
        How many devices are left at most, and the numbers (from 0) of the inner mask that the outer one does not
        leave: the first of them ends the list.
    """
    left = len(rocr_entries(rocr))
    numbers = hip_entries(inner)
    lost = [entry for entry in numbers if isinstance(entry, int) and entry >= left]
    shown = numbers.index(lost[0]) if lost else len(numbers)
    return min(shown, left), lost
