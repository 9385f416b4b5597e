"""torch's own parser is the judge of ours."""

from __future__ import annotations

import random
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from safedev._mask import parse_mask

# What masks are made of: numbers in every spelling, UUIDs, instances, blanks, mistakes.
TOKENS = (
    *"0123456789",
    *("00", "01", "+1", "-0", "-1", "--1", "+", "-", "+-1", "1+", "10", "63", "64", "4294967296", "9" * 40),
    *("0x1", "0-3", "1.5", "1_0", "1gpu", "2ampere", "0:1", "0;1", "0 1", "1e3", "one", "all", "none", "NoDevFiles"),
    *(
        "",
        " ",
        "\t",
        " 1",
        "1 ",
        "\n2",
        "\u00a03",
        "\u2003",
        "\uff11",
        "\u0662",
        "\u00b2",
        "1\u00b2",
        "\u2460",
        "\u0bf0",
    ),
    *("GPU-", "GPU-a", "GPU-b", " GPU-a", "GPU-a ", "gpu-a", "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "XGPU-a"),
    *("MIG-", "MIG-a", "MIG-b", "MIG-GPU-a/1/0", " MIG-a", "mig-a", "cuda:0", "'0'", '"0"', "[0]", "'", "]"),
)
CHARACTERS = "0123456789" + "0123" + ",,,,,,," + "+- .:;xGPUMIG-abc'\"[]\t\n\u00a0\u00b2\uff11\ud800"


def torchs_entries(raw: str, patch: pytest.MonkeyPatch) -> tuple[int | str, ...] | None:
    """The mask as torch reads it; None where its parser itself fails."""
    patch.setattr(torch.cuda.os, "getenv", {"CUDA_VISIBLE_DEVICES": raw}.get)
    patch.setattr(torch.version, "hip", None)
    try:
        return tuple(torch.cuda._parse_visible_devices())
    except ValueError:
        return None


def differences(masks: list[str]) -> list[tuple[str, object, object]]:
    with pytest.MonkeyPatch.context() as patch:
        pairs = [(raw, torchs_entries(raw, patch), parse_mask(raw).entries) for raw in masks]
    return [pair for pair in pairs if pair[1] is not None and pair[1] != pair[2]]


def generated(seed: int, number: int) -> list[str]:
    """Masks of tokens, of numbers, of UUIDs, and of characters; the same for the same seed."""
    chance = random.Random(seed)
    kinds = (TOKENS, TOKENS[:10], tuple(token for token in TOKENS if "-" in token), CHARACTERS)
    masks = [(chance.choice(kinds), chance.randint(0, 6)) for _ in range(number)]
    return [("" if kind is CHARACTERS else ",").join(chance.choices(kind, k=size)) for kind, size in masks]


def test_a_hundred_thousand_masks_are_read_as_torch_reads_them() -> None:
    """
    Entry by entry the same as torch's own parser, but for texts on which that one fails.
    """
    assert [] == differences(generated(seed=20240713, number=100_000))


def test_most_generated_masks_are_no_trivial_ones() -> None:
    """
    The test above can fail: many of its masks have several entries, of each kind, and few make torch's parser fail.
    """
    with pytest.MonkeyPatch.context() as patch:
        read = [torchs_entries(raw, patch) for raw in generated(seed=20240713, number=10_000)]
    several = [entries for entries in read if entries is not None and len(entries) > 1]

    assert len(read) * 0.1 < len(several)
    assert {int, str} == {type(entries[0]) for entries in several}
    assert read.count(None) < len(read) * 0.2


@settings(max_examples=500, deadline=None)
@given(raw=st.one_of(st.text(max_size=40), st.text(alphabet=CHARACTERS, max_size=40)))
def test_any_text_is_read_as_torch_reads_it(raw: str) -> None:
    """
    The same, for texts that Hypothesis thinks of.
    """
    assert [] == differences([raw])


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("1" * 4300, id="as-many-digits-as-int-takes"),
        pytest.param("+" + "1" * 4300, id="as-many-digits-and-a-sign"),
        pytest.param("1" * 4300 + "x", id="as-many-digits-and-a-suffix"),
        pytest.param("0," * 3 + "1", id="repeats"),
        pytest.param(",".join(map(str, range(5000))), id="many-entries"),
        pytest.param("0" * 4000 + "1,1", id="a-repeat-by-value-behind-many-zeros"),
    ],
)
def test_the_edges_are_read_as_torch_reads_them(raw: str) -> None:
    """
    Masks that chance does not make.
    """
    assert [] == differences([raw])


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("--1", id="two-signs"),
        pytest.param("+", id="a-lone-sign"),
        pytest.param("-x", id="a-sign-and-a-word"),
        pytest.param("\u00b2", id="superscript"),
        pytest.param("1\u00b2", id="superscript-behind-a-digit"),
        pytest.param("1\u00b2x", id="superscript-and-a-suffix"),
        pytest.param("\u2460", id="circled"),
        pytest.param("1" * 4301, id="more-digits-than-int-takes"),
    ],
)
def test_where_torchs_parser_fails_the_entry_is_unreadable(raw: str) -> None:
    """
    torch raises ValueError out of `device_count()`; here the entry hides itself and all that follow, and that is said.
    """
    with pytest.MonkeyPatch.context() as patch:
        assert torchs_entries(raw, patch) is None

    mask = parse_mask(f"0,{raw},2")

    assert (0,) == mask.entries
    assert "mask-unreadable" == mask.defects[-1].code


def test_under_a_lower_limit_of_digits_torchs_parser_fails_where_ours_ends_the_list() -> None:
    """
    The interpreter's limit is this process's own, and decides about both.
    """
    limit, raw = sys.get_int_max_str_digits(), "0," + "1" * 700
    sys.set_int_max_str_digits(640)
    try:
        with pytest.MonkeyPatch.context() as patch:
            theirs, ours = torchs_entries(raw, patch), parse_mask(raw).entries
    finally:
        sys.set_int_max_str_digits(limit)

    assert (None, (0,)) == (theirs, ours)
