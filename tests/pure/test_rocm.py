"""Masks of ROCm, each by its own grammar, and one inside the other."""

from __future__ import annotations

import pytest

from safedev._rocm import hip_end, hip_entries, rocr_entries, stacked


# Source: ROCR-Runtime, amd_filter_device.cpp.
@pytest.mark.parametrize(
    ("raw", "entries"),
    [
        pytest.param("", [], id="empty-hides-all"),
        pytest.param("-1", [], id="minus-one-hides-all"),
        pytest.param("2,0", [2, 0], id="order-is-kept"),
        pytest.param(" 1 , 2", [1, 2], id="blanks-are-trimmed"),
        pytest.param("0x2,010", [2, 8], id="hexadecimal-and-octal"),
        pytest.param("8,10", [8, 10], id="decimal"),
        pytest.param("0,1,0,2", [0, 1], id="a-repeat-ends-the-list"),
        pytest.param("0,1gpu,2", [0], id="junk-ends-the-list"),
        pytest.param("gpu-ab12,1", ["GPU-AB12", 1], id="uuids-in-any-case-mix-with-numbers"),
        pytest.param("0,,1", [0], id="an-empty-entry-ends-the-list"),
        pytest.param("9" * 5000, [], id="more-digits-than-a-number-has"),
    ],
)
def test_rocr_reads_its_mask(raw: str, entries: list[int | str]) -> None:
    """
    ROCr's runtime reads numbers as C does, and ends the list at the first
    fault.
    """
    assert entries == rocr_entries(raw)


# Source: ROCm/clr, rocclr/device/rocm/rocdevice.cpp.
@pytest.mark.parametrize(
    ("raw", "entries"),
    [
        pytest.param("1,0", [1, 0], id="order-is-kept"),
        pytest.param("0,0,1", [0, 1], id="a-repeat-is-skipped"),
        pytest.param("0, 1", [0], id="a-blank-ends-the-list"),
        pytest.param("01", [], id="a-leading-zero-ends-the-list"),
        pytest.param("+1", [], id="a-sign-ends-the-list"),
        pytest.param("-1", [], id="minus-one-hides-all"),
        pytest.param("1gpu", [], id="a-suffix-ends-the-list"),
        pytest.param("GPU-ab,1", ["GPU-ab", 1], id="uuids-and-numbers-mix"),
    ],
)
def test_hip_reads_its_mask(raw: str, entries: list[int | str]) -> None:
    """
    The HIP runtime wants numbers in their shortest spelling, and skips
    repeats.
    """
    assert entries == hip_entries(raw)


@pytest.mark.parametrize(
    ("raw", "end"),
    [
        pytest.param("0,0,GPU-ab", None, id="all-are-read"),
        pytest.param("0, 1", 1, id="a-blank"),
        pytest.param("0,1,01,2", 2, id="a-leading-zero"),
        pytest.param("", 0, id="nothing"),
        pytest.param("0,99999999999", 1, id="more-digits-than-a-number-has"),
    ],
)
def test_the_entry_that_ends_hips_list_is_found(raw: str, end: int | None) -> None:
    """
    The first one that the HIP runtime does not read, by its place.
    """
    assert end == hip_end(raw)


@pytest.mark.parametrize(
    ("rocr", "inner", "shown", "lost"),
    [
        pytest.param("1", "1", 0, [1], id="the-inner-mask-counts-inside-the-outer-one"),
        pytest.param("1", "0", 1, [], id="from-0"),
        pytest.param("2,3", "1,0", 2, [], id="reordered"),
        pytest.param("2,3", "0,2,1", 1, [2], id="what-is-not-left-ends-the-list"),
        pytest.param("", "0", 0, [0], id="an-empty-outer-mask-leaves-nothing"),
    ],
)
def test_one_mask_inside_the_other(rocr: str, inner: str, shown: int, lost: list[int]) -> None:
    """
    ROCr's mask acts first, and the other one counts inside what it leaves.
    """
    assert (shown, lost) == stacked(rocr, inner)
