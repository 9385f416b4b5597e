"""The mask checked, and narrowed, before CUDA starts."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, SupportsIndex, Union, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedev import _driver, _library, _nvml, guard
from safedev._mask import parse_mask
from safedev._snapshot import PhysicalDevice
from safedev.errors import MaskError, MaskTooLateError, MaskWarning
from safedev.guard import guard_visible_devices

MASK, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


class Indexed:
    """What numpy's integers are to us: something with `__index__`."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def machine_of(monkeypatch: pytest.MonkeyPatch, count: int | None, uuids: list[str] | None = None) -> None:
    """A machine whose devices NVML counts, and lists where nvidia-ml-py is installed."""
    listed = None if uuids is None else tuple(PhysicalDevice(index=n, uuid=uuid) for n, uuid in enumerate(uuids))
    monkeypatch.setattr(_nvml, "count", lambda: count)
    monkeypatch.setattr(_nvml, "inventory", lambda: listed)


def started(monkeypatch: pytest.MonkeyPatch, count: int, uuids: tuple[str, ...] | None = None) -> None:
    """A driver that has started in this process, and holds to *count* devices."""
    monkeypatch.setattr(_driver, "frozen_count", lambda: count)
    monkeypatch.setattr(_driver, "uuids", lambda: uuids)


@pytest.fixture(autouse=True)
def unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nothing counts devices and the driver has not started; a test says what differs."""
    for variable in (MASK, ORDER):
        monkeypatch.setenv(variable, "")  # so that what a test leaves is undone
        monkeypatch.delenv(variable)
    machine_of(monkeypatch, None)
    monkeypatch.setattr(_driver, "frozen_count", lambda: None)
    monkeypatch.setattr(_driver, "uuids", lambda: None)
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: False)


# ---- reading


@pytest.mark.parametrize(
    ("raw", "entries"),
    [
        pytest.param(None, (), id="unset"),
        pytest.param("", (), id="empty"),
        pytest.param("4,5", (4, 5), id="numbers"),
        pytest.param("GPU-a,GPU-b", ("GPU-a", "GPU-b"), id="uuids"),
    ],
)
def test_the_mask_in_force_is_returned(monkeypatch: pytest.MonkeyPatch, raw: str | None, entries: object) -> None:
    """
    Without an argument nothing is changed, and nothing is said about a sound mask.
    """
    if raw is not None:
        monkeypatch.setenv(MASK, raw)
    mask = guard_visible_devices()

    assert (raw, MASK, entries) == (mask.raw, mask.variable, mask.entries)
    assert raw == os.environ.get(MASK)
    assert ORDER not in os.environ


@pytest.mark.parametrize(
    ("raw", "code", "instead"),
    [
        pytest.param('"0,1"', "mask-unreadable", "write CUDA_VISIBLE_DEVICES=0,1", id="quotes"),
        pytest.param("0-3", "mask-unreadable", "write CUDA_VISIBLE_DEVICES=0,1,2,3", id="range"),
        pytest.param("all", "mask-unreadable", f"unset {MASK}, or list physical indices: {MASK}=0,1", id="all"),
        pytest.param("0,0", "mask-repeated", "write CUDA_VISIBLE_DEVICES=0", id="repeat"),
        pytest.param("GPU-a,0", "mask-mixed", "write CUDA_VISIBLE_DEVICES=GPU-a", id="mixed"),
        pytest.param("0,-1,1", "mask-unknown-device", "write CUDA_VISIBLE_DEVICES=0,1", id="negative"),
    ],
)
def test_a_defect_is_a_warning(raw: str, code: str, instead: str) -> None:
    """
    It has the code, what to write instead, and says nothing else.
    """
    with pytest.warns(MaskWarning) as caught:
        mask = guard_visible_devices(environ={MASK: raw})

    *_, why, fix = str(caught[0].message).splitlines()

    assert 1 == len(caught)
    assert f"  why: {mask.defects[-1].reason} [{code}]" == why
    assert f"  fix: {instead}" == fix


def test_the_entry_at_fault_is_marked() -> None:
    """
    The carets stand under the entry that does not do what it says.
    """
    with pytest.warns(MaskWarning) as caught:
        guard_visible_devices(environ={MASK: "0,gpu1"})
    _, shown, carets, _, _ = str(caught[0].message).splitlines()

    assert "gpu1" == "".join(a for a, b in zip(shown, carets, strict=False) if b == "^")


def test_each_defect_is_warned_of() -> None:
    """
    A mask with two faults leads to two warnings.
    """
    with pytest.warns(MaskWarning) as caught:
        guard_visible_devices(environ={MASK: "0-1,x"})

    assert 2 == len(caught)


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        pytest.param("0-3", "leaves 1 device at most", id="one-is-left"),
        pytest.param("all", "hides every device", id="none-is-left"),
    ],
)
def test_the_first_line_of_a_warning_stands_alone(raw: str, left: str) -> None:
    """
    It shows the mask, quoted and cut, and says what it does; which entry it is, why and what to do follow.
    """
    with pytest.warns(MaskWarning) as caught:
        guard_visible_devices(environ={MASK: raw})
    first, *others = str(caught[0].message).splitlines()

    assert f"CUDA_VISIBLE_DEVICES={raw!r} does not do what it says: it {left}" == first
    assert ["mask", "^^^", "why", "fix"] == [line.strip().split(":")[0] for line in others]


def test_the_first_line_of_a_warning_is_cut() -> None:
    """
    However long the mask is, and whatever stands in it.
    """
    with pytest.warns(MaskWarning) as caught:
        guard_visible_devices(environ={MASK: "\x1b" * 10**6})
    first = str(caught[0].message).splitlines()[0]

    assert first.isprintable()
    assert len(first) < 400


def test_a_word_for_no_device_may_have_meant_either() -> None:
    """
    Whoever wrote `none` wanted no device, or no mask: both are named.
    """
    with pytest.warns(MaskWarning, match=f"fix: write {MASK}=-1 to hide every device, or unset it to show all$"):
        guard_visible_devices(environ={MASK: "none"})


def test_the_first_defects_are_enough() -> None:
    """
    A mask that is wrong throughout leads to three warnings, and not to one for each entry.
    """
    with pytest.warns(MaskWarning) as caught:
        mask = guard_visible_devices(environ={MASK: "0-1,2-3,4-5,6-7,8-9"})

    assert 5 == len(mask.defects)
    assert 3 == len(caught)


def test_a_misspelled_name_is_a_warning() -> None:
    """
    Where no mask is set, a variable that was probably meant to be it is named.
    """
    with pytest.warns(
        MaskWarning, match=r"^no mask is set: CUDA does not read 'CUDA_VISIBLE_DEVICE', which is set\n"
    ) as caught:
        guard_visible_devices(environ={"CUDA_VISIBLE_DEVICE": "0"})

    assert "\n  why: that is nearly CUDA_VISIBLE_DEVICES, and not the same [mask-misspelled]\n" in str(
        caught[0].message
    )
    assert str(caught[0].message).endswith("\n  fix: rename it to CUDA_VISIBLE_DEVICES if it is meant as the mask")


def test_a_misspelled_name_beside_a_mask_is_no_matter() -> None:
    """
    The mask that is set is the one that counts.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mask = guard_visible_devices(environ={MASK: "0", "CUDA_VISIBLE_DEVICE": "1"})

    assert (0,) == mask.entries


@pytest.mark.parametrize(
    "environ",
    [pytest.param({MASK: "all"}, id="defect"), pytest.param({"CUDA_VISIBLE_DEVICE": "0"}, id="misspelled")],
)
def test_a_warning_points_at_the_caller(environ: dict[str, str]) -> None:
    """
    At the line that called the guard, in this file.
    """
    with pytest.warns(MaskWarning) as caught:
        guard_visible_devices(environ=environ)

    assert __file__ == caught[0].filename
    assert "guard_visible_devices(environ=environ)" in linecache.getline(__file__, caught[0].lineno)


def test_a_warning_that_is_an_error_changes_nothing() -> None:
    """
    Where warnings are errors, the order is not set either.
    """
    environ = {MASK: "all"}

    with pytest.raises(MaskWarning):  # the tests run with warnings as errors
        guard_visible_devices(order="PCI_BUS_ID", environ=environ)

    assert {MASK: "all"} == environ


def test_narrowing_says_nothing_of_defects() -> None:
    """
    Who names devices replaces the mask, and its defect with it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mask = guard_visible_devices(0, environ={MASK: "3,x"})

    assert (3,) == mask.entries


# ---- narrowing


@pytest.mark.parametrize(
    ("inherited", "devices", "written"),
    [
        pytest.param(None, 3, "3", id="one-number"),
        pytest.param(None, [2, 0], "2,0", id="numbers-in-their-order"),
        pytest.param(None, (1,), "1", id="tuple"),
        pytest.param(None, range(2), "0,1", id="range"),
        pytest.param(None, iter([1, 0]), "1,0", id="iterator"),
        pytest.param(None, Indexed(2), "2", id="index"),
        pytest.param(None, [Indexed(2), 0], "2,0", id="indexes"),
        pytest.param(None, "0,2", "0,2", id="text"),
        pytest.param(None, " 0 , 2 ", "0,2", id="text-with-blanks"),
        pytest.param(None, "07", "7", id="leading-zero"),
        pytest.param(None, ["0", 2], "0,2", id="text-and-number"),
        pytest.param(None, "GPU-a", "GPU-a", id="uuid"),
        pytest.param(None, "GPU-a, GPU-b", "GPU-a,GPU-b", id="uuids-as-text"),
        pytest.param(None, ["MIG-a", "MIG-b"], "MIG-a,MIG-b", id="instances"),
        pytest.param(None, "MIG-GPU-a/1/0", "MIG-GPU-a/1/0", id="old-instance"),
        pytest.param(None, [], "-1", id="nothing"),
        pytest.param(None, "", "-1", id="empty-text"),
        pytest.param("4,5", 0, "4", id="ordinal-behind-numbers"),
        pytest.param("4,5", [1, 0], "5,4", id="ordinals-in-their-order"),
        pytest.param("4,5", "1", "5", id="ordinal-as-text"),
        pytest.param("4,5", [], "-1", id="nothing-behind-numbers"),
        pytest.param(" 4 ,+5", 1, "5", id="odd-spellings"),
        pytest.param("4,5,x,6", 1, "5", id="before-a-defect"),
        pytest.param("GPU-a,GPU-b", 1, "GPU-b", id="ordinal-behind-uuids"),
        pytest.param("GPU-a,GPU-b", "GPU-b", "GPU-b", id="uuid-behind-uuids"),
        pytest.param("GPU-aa11,GPU-bb22", "GPU-b", "GPU-bb22", id="prefix-behind-uuids"),
        pytest.param("GPU-aa,GPU-bb", ["GPU-bb", 0], "GPU-bb,GPU-aa", id="uuid-and-ordinal-behind-uuids"),
        pytest.param("GPU-b", "GPU-bb22", "GPU-b", id="longer-uuid-behind-a-prefix"),
        pytest.param("MIG-a,MIG-b", "MIG-b", "MIG-b", id="instance-behind-instances"),
        pytest.param("MIG-a,MIG-b", 1, "MIG-b", id="ordinal-behind-instances"),
        pytest.param("", [], "-1", id="nothing-behind-nothing"),
    ],
)
def test_the_process_is_left_with_these_devices(inherited: str | None, devices: Any, written: str) -> None:
    """
    Numbers are ordinals in the view that the process has now; what they stand for is written.
    """
    environ = {} if inherited is None else {MASK: inherited}
    mask = guard_visible_devices(devices, environ=environ)

    assert {MASK: written} == environ
    assert parse_mask(written) == mask


@pytest.mark.parametrize("devices", [pytest.param([], id="nothing"), pytest.param("0,2", id="devices")])
def test_the_environment_of_the_process_is_written(devices: Any) -> None:
    """
    Without a mapping it is `os.environ`, which the driver will read.
    """
    mask = guard_visible_devices(devices)

    assert mask.raw == os.environ[MASK]


@pytest.mark.parametrize(
    ("inherited", "devices", "words"),
    [
        pytest.param("4,5", 2, "2 is not among", id="past-the-last"),
        pytest.param("4,5", 4, "that device is ordinal 0", id="physical-index"),
        pytest.param("4,5", [0, 5], "that device is ordinal 1", id="one-of-several"),
        pytest.param("", 0, "hides every device", id="all-hidden"),
        pytest.param("-1", 0, "hides every device", id="all-hidden-by-minus-one"),
        pytest.param("0,0", 0, "hides every device", id="all-hidden-by-mistake"),
        pytest.param("GPU-a", 1, "holds ordinal 0 alone", id="past-the-last-uuid"),
        pytest.param("GPU-a", "GPU-b", "'GPU-b' is not among", id="another-uuid"),
        pytest.param("GPU-ab,GPU-ac", "GPU-a", "'GPU-a' is not among", id="an-ambiguous-uuid"),
        pytest.param("MIG-a", "MIG-b", "'MIG-b' is not among", id="another-instance"),
        pytest.param("4,5", "GPU-a", "behind a mask of numbers", id="uuid-behind-numbers"),
        pytest.param("4,5", "MIG-a", "behind a mask of numbers", id="instance-behind-numbers"),
        pytest.param("", "GPU-a", "'GPU-a' is not among", id="uuid-behind-nothing"),
    ],
)
def test_a_mask_is_never_widened(inherited: str, devices: Any, words: str) -> None:
    """
    What the inherited mask does not hold cannot be had; the mask is shown, and nothing is changed.
    """
    environ = {MASK: inherited}

    with pytest.raises(MaskError) as caught:
        guard_visible_devices(devices, environ=environ)

    assert words in str(caught.value)
    assert f"{MASK}={inherited!r}" in str(caught.value)
    assert parse_mask(inherited) == caught.value.mask
    assert {MASK: inherited} == environ


@pytest.mark.parametrize(
    ("inherited", "devices", "fault", "code", "fixes"),
    [
        pytest.param(
            "0-3",
            1,
            "0-3",
            "mask-unreadable",
            [
                "where the mask is set, write CUDA_VISIBLE_DEVICES=0,1,2,3",
                "name an ordinal that the mask holds; a mask is narrowed here, never widened",
            ],
            id="holds-fewer-than-it-says",
        ),
        pytest.param(
            '"2,3"',
            0,
            '"2',
            "mask-unreadable",
            ["where the mask is set, write CUDA_VISIBLE_DEVICES=2,3"],
            id="hides-all",
        ),
        pytest.param(
            "0,0",
            0,
            "0",
            "mask-repeated",
            ["where the mask is set, write CUDA_VISIBLE_DEVICES=0"],
            id="hides-all-by-a-repeat",
        ),
        pytest.param(
            "0,GPU-a",
            "GPU-a",
            "GPU-a",
            "mask-mixed",
            [
                "where the mask is set, write CUDA_VISIBLE_DEVICES=0",
                "name the device by its ordinal, or have the mask written with UUIDs",
            ],
            id="uuid-behind-a-number",
        ),
    ],
)
def test_what_a_defect_hides_is_refused_with_the_defect(
    inherited: str, devices: Any, fault: str, code: str, fixes: list[str]
) -> None:
    """
    The entry at fault is marked, with the reason and what to write instead, as the warning of that mask has it.
    """
    with pytest.warns(MaskWarning) as caught:
        guard_visible_devices(environ={MASK: inherited})
    _, *warned, _ = str(caught[0].message).splitlines()
    with pytest.raises(MaskError) as refused:
        guard_visible_devices(devices, environ={MASK: inherited})
    _, shown, carets, why, *others = str(refused.value).splitlines()

    assert warned == [shown, carets, why]
    assert fault == "".join(a for a, b in zip(shown, carets, strict=False) if b == "^")
    assert why.endswith(f" [{code}]")
    assert [f"  fix: {fix}" for fix in fixes] == others


def test_where_the_machine_has_less_than_a_mask_with_a_defect_both_fixes_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    The defect does not hide the entries before it: that they are not here is not its fault.
    """
    machine_of(monkeypatch, 2)

    with pytest.raises(MaskError) as caught:
        guard_visible_devices(0, environ={MASK: "7,x"})

    assert [
        "  fix: where the mask is set, write CUDA_VISIBLE_DEVICES=7",
        "  fix: unset CUDA_VISIBLE_DEVICES, or write it anew, where it is set; here it is narrowed, never widened",
    ] == [line for line in str(caught.value).splitlines() if line.startswith("  fix: ")]


@pytest.mark.parametrize("devices", [pytest.param([1], id="one"), pytest.param("2,3", id="several")])
def test_a_number_that_an_earlier_call_has_written_is_told_to_be_its_own(devices: Any) -> None:
    """
    Numbers count in the view that the first call left: a second one, as of a spawned child, is refused, and told of it.
    """
    environ: dict[str, str] = {}
    guard_visible_devices(devices, environ=environ)

    with pytest.raises(MaskError) as caught:
        guard_visible_devices(devices, environ=environ)

    assert (
        str(caught.value)
        .splitlines()[-1]
        .startswith(
            "  fix: if this program has called guard_visible_devices() before (a spawned child, a cell run again), "
            "the mask is that call's own: "
        )
    )


@pytest.mark.parametrize(
    ("inherited", "devices"),
    [
        pytest.param("4,5", 2, id="not-in-the-mask"),
        pytest.param("", 0, id="all-hidden"),
        pytest.param("GPU-a", "GPU-b", id="uuid"),
    ],
)
def test_a_number_that_no_earlier_call_can_have_written_is_not_told_so(inherited: str, devices: Any) -> None:
    """
    Where what is asked for does not stand in the mask, no call of the same program wrote it.
    """
    with pytest.raises(MaskError) as caught:
        guard_visible_devices(devices, environ={MASK: inherited})

    assert "before" not in str(caught.value)


def test_a_second_call_by_uuid_changes_nothing() -> None:
    """
    A script that names devices by UUID may run again.
    """
    environ: dict[str, str] = {}
    masks = [guard_visible_devices(["GPU-b", "GPU-a"], environ=environ) for _ in range(2)]

    assert ["GPU-b,GPU-a"] * 2 == [mask.raw for mask in masks]


def test_numbers_of_a_second_call_count_in_the_view_of_the_first() -> None:
    """
    The same order twice is the order before it.
    """
    environ: dict[str, str] = {}
    masks = [guard_visible_devices([1, 0], environ=environ) for _ in range(2)]

    assert ["1,0", "0,1"] == [mask.raw for mask in masks]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        pytest.param(-1, "-1 is no device", id="negative"),
        pytest.param([0, -2], "-2 is no device", id="a-negative-among-others"),
        pytest.param("-1", "'-1' is no device", id="negative-text"),
        pytest.param("+1", "'+1' is no device", id="sign"),
        pytest.param("0-3", "'0-3' is no device", id="range"),
        pytest.param("1gpu", "'1gpu' is no device", id="suffix"),
        pytest.param("all", "'all' is no device", id="all"),
        pytest.param("cuda:0", "'cuda:0' is no device", id="torch-device"),
        pytest.param("gpu-a", "'gpu-a' is no device", id="uuid-in-small-letters"),
        pytest.param("0,,1", "'' is no device", id="nothing-between-commas"),
        pytest.param("0,", "'' is no device", id="a-comma-at-the-end"),
        pytest.param([" 0"], "' 0' is no device", id="blank-in-a-sequence"),
        pytest.param(["GPU-a,GPU-b"], "'GPU-a,GPU-b' is no device", id="list-in-a-sequence"),
        pytest.param("\uff11", "'\\uff11' is no device", id="digit-of-another-script"),
        pytest.param("1" * 10, "'1111111111' is no device", id="too-large-a-number"),
        pytest.param("1" * 5000, "(5000 characters) is no device", id="far-too-large-a-number"),
        pytest.param(10**5000, "is no device", id="far-too-large-an-int"),
        pytest.param(10**12, "is no device", id="too-large-an-int"),
        pytest.param("GPU-", "'GPU-' is no device", id="uuid-without-digits"),
        pytest.param("GPU-a\x00", "'GPU-a\\x00' is no device", id="nul"),
        pytest.param("GPU-\ud800", "'GPU-\\ud800' is no device", id="surrogate"),
        pytest.param(["GPU-a\n"], "'GPU-a\\n' is no device", id="line-break"),
        pytest.param(["GPU-a b"], "'GPU-a b' is no device", id="blank-in-a-uuid"),
        pytest.param("GPU-" + "a" * 10**6, "characters) is no device", id="far-too-long-a-uuid"),
        pytest.param([0, 0], "asked for twice", id="repeat"),
        pytest.param([0, "0"], "asked for twice", id="repeat-as-text"),
        pytest.param("0,1,00", "asked for twice", id="repeat-by-value"),
        pytest.param(["GPU-a", "GPU-a"], "asked for twice", id="repeated-uuid"),
        pytest.param(["GPU-a", "GPU-ab"], "the same", id="one-device-by-two-prefixes"),
        pytest.param([0, "GPU-a"], "one mask", id="number-and-uuid"),
        pytest.param(["GPU-a", "MIG-b"], "one mask", id="whole-device-and-instance"),
    ],
)
def test_what_is_no_device_to_be_left_with_is_refused(devices: Any, words: str) -> None:
    """
    The error is ours, its first line stands alone in printable ASCII, and nothing is changed.
    """
    with pytest.raises(MaskError) as caught:
        guard_visible_devices(devices)

    assert words in str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 1000
    assert MASK not in os.environ


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param(True, id="true"),
        pytest.param([0, False], id="false-among-numbers"),
        pytest.param(1.0, id="float"),
        pytest.param([1.0], id="float-among-others"),
        pytest.param(b"0", id="bytes"),
        pytest.param([None], id="none-among-others"),
        pytest.param([[0]], id="list-in-a-list"),
        pytest.param(object(), id="object"),
        pytest.param(type("device", (), {"type": "cuda", "index": 1})(), id="device"),
    ],
)
def test_what_is_neither_a_number_nor_text_is_a_type_error(devices: Any) -> None:
    """
    Truth values, floats, bytes and other objects; a device of torch too, which is not said to be none.
    """
    with pytest.raises(TypeError, match=r"^a value of type \w+ cannot be taken: give ordinals from 0, or UUIDs$"):
        guard_visible_devices(devices)

    assert MASK not in os.environ


def test_many_devices_are_written() -> None:
    """
    More than any machine has, in a time that grows with their number alone.
    """
    assert 20_000 == len(guard_visible_devices(range(20_000), environ={}).entries)


@pytest.mark.parametrize("kind", ["GPU", "MIG"])
def test_two_entries_of_one_device_are_refused(kind: str) -> None:
    """
    An ordinal and a UUID that are the same device behind the inherited mask would be a repeat.
    """
    with pytest.raises(MaskError, match="the same"):
        guard_visible_devices([0, f"{kind}-a"], environ={MASK: f"{kind}-a,{kind}-b"})


# ---- a machine that can be counted


@pytest.mark.parametrize(
    ("inherited", "devices", "written"),
    [
        pytest.param(None, 1, "1", id="the-last"),
        pytest.param("1,0", 0, "1", id="behind-numbers"),
        pytest.param("1,7,0", 0, "1", id="before-a-number-that-is-not-here"),
        pytest.param("GPU-a,GPU-b", 1, "GPU-b", id="behind-uuids"),
        pytest.param(None, "GPU-x", "GPU-x", id="a-uuid-that-nobody-can-look-up"),
        pytest.param(None, [], "-1", id="nothing"),
    ],
)
def test_a_device_that_the_machine_has_is_written(
    monkeypatch: pytest.MonkeyPatch, inherited: str | None, devices: Any, written: str
) -> None:
    """
    Where NVML counts two devices, numbers below two are taken.
    """
    machine_of(monkeypatch, 2)
    environ = {} if inherited is None else {MASK: inherited}

    assert written == guard_visible_devices(devices, environ=environ).raw


@pytest.mark.parametrize(
    ("inherited", "devices", "words"),
    [
        pytest.param(None, 2, "2 names no device: this machine has 2 devices, 0 to 1", id="past-the-last"),
        pytest.param(None, [0, 9], "9 names no device", id="one-of-several"),
        pytest.param("1,7,0", 1, "holds ordinal 0 alone", id="a-number-that-is-not-here-ends-the-list"),
        pytest.param("7", 0, "hides every device", id="nothing-of-the-mask-is-here"),
    ],
)
def test_a_device_that_the_machine_has_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, inherited: str | None, devices: Any, words: str
) -> None:
    """
    Where NVML counts two devices, others are refused, and nothing is changed.
    """
    machine_of(monkeypatch, 2)
    environ = {} if inherited is None else {MASK: inherited}
    before = dict(environ)

    with pytest.raises(MaskError) as caught:
        guard_visible_devices(devices, environ=environ)

    assert words in str(caught.value)
    assert before == environ


def test_a_machine_without_devices_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The machine has 0 devices, and no range of numbers.
    """
    machine_of(monkeypatch, 0)

    with pytest.raises(MaskError, match=r"^0 names no device: this machine has 0 devices$"):
        guard_visible_devices(0)


@pytest.mark.parametrize(
    ("inherited", "devices", "written"),
    [
        pytest.param(None, "GPU-aa11", "GPU-aa11", id="full"),
        pytest.param(None, "GPU-aa", "GPU-aa", id="prefix"),
        pytest.param(None, "MIG-x", "MIG-x", id="an-instance-cannot-be-looked-up"),
        pytest.param("GPU-aa,GPU-bb", "GPU-aa11", "GPU-aa", id="full-behind-a-prefix"),
        pytest.param("GPU-aa11,GPU-bb22", "GPU-bb", "GPU-bb22", id="prefix-behind-the-full-one"),
        pytest.param("GPU-aa1,GPU-bb2", "GPU-aa", "GPU-aa1", id="prefix-behind-a-longer-one"),
        pytest.param("1,0", 0, "1", id="numbers"),
    ],
)
def test_a_uuid_that_the_machine_has_is_written(
    monkeypatch: pytest.MonkeyPatch, inherited: str | None, devices: Any, written: str
) -> None:
    """
    Where NVML lists the devices, a UUID or a unique prefix of one is found, in the mask's own spelling.
    """
    machine_of(monkeypatch, None, ["GPU-aa11", "GPU-bb22"])
    environ = {} if inherited is None else {MASK: inherited}

    assert written == guard_visible_devices(devices, environ=environ).raw


@pytest.mark.parametrize(
    ("inherited", "devices", "words"),
    [
        pytest.param(None, "GPU-cc", "'GPU-cc' names no device: this machine has no such device", id="unknown"),
        pytest.param(None, "GPU-a", "2 devices of this machine fit it", id="ambiguous"),
        pytest.param(None, "GPU-AA", "no such device", id="capitals"),
        pytest.param(None, ["GPU-aa", "GPU-aa11"], "the same", id="one-device-by-two-prefixes"),
        pytest.param("GPU-aa", "GPU-bb", "'GPU-bb' is not among", id="hidden"),
        pytest.param("1,0", "GPU-aa11", "behind a mask of numbers", id="behind-numbers"),
        pytest.param("2", 0, "hides every device", id="a-number-that-is-not-here"),
    ],
)
def test_a_uuid_that_the_machine_has_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, inherited: str | None, devices: Any, words: str
) -> None:
    """
    Where NVML lists the devices, no other UUID is written.
    """
    machine_of(monkeypatch, None, ["GPU-aa11", "GPU-ab22"])
    environ = {} if inherited is None else {MASK: inherited}

    with pytest.raises(MaskError) as caught:
        guard_visible_devices(devices, environ=environ)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("inherited", "devices"),
    [
        pytest.param("GPU-cc33", 0, id="unknown-by-ordinal"),
        pytest.param("GPU-cc33", "GPU-cc33", id="unknown-by-uuid"),
        pytest.param("GPU-cc33,GPU-aa11", 1, id="a-known-one-behind-an-unknown"),
        pytest.param("GPU-a,GPU-ab22", 1, id="a-known-one-behind-an-ambiguous"),
        pytest.param("GPU-aa,GPU-aa11", 0, id="one-device-twice-by-ordinal"),
        pytest.param("GPU-aa11,GPU-ab22,GPU-aa", "GPU-ab22", id="one-device-twice-by-uuid"),
        pytest.param("GPU-ab22,GPU-aa,GPU-aa1", [0], id="one-device-twice-further-on"),
    ],
)
def test_uuids_of_which_the_driver_makes_nothing_are_not_widened(
    monkeypatch: pytest.MonkeyPatch, inherited: str, devices: Any
) -> None:
    """
    A UUID that is not here ends the list, and one device named twice hides all: under such a mask nothing is held,
    and the error says so.
    """
    machine_of(monkeypatch, None, ["GPU-aa11", "GPU-ab22"])
    environ = {MASK: inherited}

    with pytest.raises(MaskError, match="the inherited mask hides every device") as caught:
        guard_visible_devices(devices, environ=environ)

    assert {MASK: inherited} == environ
    assert f"  fix: unset {MASK}, or write it anew" in str(caught.value)


def test_before_a_uuid_that_is_not_here_the_mask_holds_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The entries before it are visible, and can be had.
    """
    machine_of(monkeypatch, None, ["GPU-aa11", "GPU-ab22"])
    environ = {MASK: "GPU-ab,GPU-cc,GPU-aa"}

    with pytest.raises(MaskError, match="holds ordinal 0 alone"):
        guard_visible_devices(1, environ=environ)
    assert ("GPU-ab",) == guard_visible_devices(0, environ=environ).entries


def test_reading_and_hiding_ask_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    NVML is asked only where a device is to be written.
    """

    def asked() -> None:
        raise AssertionError("NVML was asked")

    monkeypatch.setattr(_nvml, "count", asked)
    monkeypatch.setattr(_nvml, "inventory", asked)
    guard_visible_devices(environ={MASK: "0"})

    assert "-1" == guard_visible_devices([], environ={}).raw


def test_numbers_alone_need_no_list_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where no mask is inherited, a count is enough.
    """
    machine_of(monkeypatch, 2)
    monkeypatch.setattr(_nvml, "inventory", lambda: pytest.fail("the devices were listed"))

    assert "1" == guard_visible_devices(1, environ={}).raw


# ---- the order


@pytest.mark.parametrize("order", ["PCI_BUS_ID", "FASTEST_FIRST"])
def test_the_order_is_set(order: Any) -> None:
    """
    By itself it leaves the mask unset.
    """
    environ: dict[str, str] = {}
    mask = guard_visible_devices(order=order, environ=environ)

    assert {ORDER: order} == environ
    assert mask.raw is None


def test_the_order_is_set_beside_the_mask() -> None:
    """
    Numbers that are given with an order count in that order.
    """
    environ: dict[str, str] = {}
    guard_visible_devices([1], order="PCI_BUS_ID", environ=environ)

    assert {MASK: "1", ORDER: "PCI_BUS_ID"} == environ


@pytest.mark.parametrize(
    ("inherited", "before", "order"),
    [
        pytest.param("4,5", None, "PCI_BUS_ID", id="fastest-first-by-default"),
        pytest.param("4,5", "", "PCI_BUS_ID", id="fastest-first-by-an-empty-text"),
        pytest.param("4,5", "FASTEST_FIRST", "PCI_BUS_ID", id="fastest-first"),
        pytest.param("4,5", "PCI_BUS_ID", "FASTEST_FIRST", id="bus-order"),
    ],
)
def test_the_order_of_inherited_numbers_is_not_changed(inherited: str, before: str | None, order: Any) -> None:
    """
    The same numbers would then mean other devices.
    """
    environ = {MASK: inherited} | ({} if before is None else {ORDER: before})
    copy = dict(environ)

    with pytest.raises(MaskError, match="count in another order"):
        guard_visible_devices(0, order=order, environ=environ)

    assert copy == environ


@pytest.mark.parametrize(
    ("before", "words"),
    [
        pytest.param(None, "while CUDA_DEVICE_ORDER was unset, which means FASTEST_FIRST", id="unset"),
        pytest.param("", "while CUDA_DEVICE_ORDER was empty, which means FASTEST_FIRST", id="empty"),
        pytest.param("FASTEST_FIRST", "for 'FASTEST_FIRST'", id="set"),
    ],
)
def test_the_order_that_a_mask_was_written_under_is_told(before: str | None, words: str) -> None:
    """
    As it was: a variable that nobody set is not shown as if it held a value.
    """
    environ = {MASK: "4,5"} | ({} if before is None else {ORDER: before})

    with pytest.raises(MaskError) as caught:
        guard_visible_devices(0, order="PCI_BUS_ID", environ=environ)

    assert f"  mask: CUDA_VISIBLE_DEVICES='4,5', written {words}" == str(caught.value).splitlines()[1]


@pytest.mark.parametrize(
    ("inherited", "before", "order"),
    [
        pytest.param("4,5", "PCI_BUS_ID", "PCI_BUS_ID", id="the-same-order"),
        pytest.param("4,5", None, "FASTEST_FIRST", id="the-default-order"),
        pytest.param("GPU-a,GPU-b", None, "PCI_BUS_ID", id="uuids-need-no-order"),
        pytest.param("-1", None, "PCI_BUS_ID", id="all-hidden"),
        pytest.param("", None, "PCI_BUS_ID", id="empty"),
    ],
)
def test_an_order_that_changes_no_meaning_is_set(inherited: str, before: str | None, order: Any) -> None:
    """
    Where the inherited mask means the same after it as before.
    """
    environ = {MASK: inherited} | ({} if before is None else {ORDER: before})
    guard_visible_devices(order=order, environ=environ)

    assert {MASK: inherited, ORDER: order} == environ


@pytest.mark.parametrize("order", ["pci_bus_id", "", "PCI", 1, "x" * 10**6])
def test_an_unknown_order_is_a_value_error(order: Any) -> None:
    """
    The error names the orders there are, in one line, and nothing is changed.
    """
    environ: dict[str, str] = {}

    with pytest.raises(ValueError, match=r"^no order is called [ -~]{0,120}: give 'PCI_BUS_ID' or 'FASTEST_FIRST'$"):
        guard_visible_devices([0], order=order, environ=environ)

    assert {} == environ


def test_an_order_in_force_is_quoted_and_cut() -> None:
    """
    Whatever stands in CUDA_DEVICE_ORDER: the error is printable, and of a limited length.
    """
    environ = {MASK: "4,5", ORDER: "\x1b[31m" * 10_000}

    with pytest.raises(MaskError, match="count in another order") as caught:
        guard_visible_devices(0, order="PCI_BUS_ID", environ=environ)

    assert str(caught.value).replace("\n", "").isprintable()
    assert len(str(caught.value)) < 1000
    assert "(50000 characters)" in str(caught.value)


# ---- too late


@pytest.mark.parametrize(
    ("inherited", "arguments"),
    [
        pytest.param(None, {"devices": 0}, id="a-mask"),
        pytest.param("0,1", {"devices": 1}, id="another-mask"),
        pytest.param("0,1", {"devices": []}, id="hiding"),
        pytest.param(None, {"order": "PCI_BUS_ID"}, id="the-order"),
    ],
)
def test_a_change_after_the_driver_has_started_is_too_late(
    monkeypatch: pytest.MonkeyPatch, inherited: str | None, arguments: dict[str, Any]
) -> None:
    """
    The error says how many devices the driver holds to, and nothing is changed.
    """
    started(monkeypatch, 2)
    machine_of(monkeypatch, 2)
    if inherited is not None:
        monkeypatch.setenv(MASK, inherited)

    with pytest.raises(MaskTooLateError, match="holds to 2 devices") as caught:
        guard_visible_devices(**arguments)

    assert parse_mask(inherited) == caught.value.mask
    assert "[mask-too-late]" in str(caught.value)
    assert (inherited, None) == (os.environ.get(MASK), os.environ.get(ORDER))


def test_a_driver_that_holds_to_nothing_is_too_late_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    0 devices are not the same as a driver that sleeps.
    """
    started(monkeypatch, 0)

    with pytest.raises(MaskTooLateError, match="holds to 0 devices"):
        guard_visible_devices(0)


def test_in_a_forked_process_it_is_too_late_for_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After a fork of a parent that had started CUDA, the error says that CUDA cannot be used at all, and what to do.
    """
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: True)

    with pytest.raises(MaskTooLateError, match="forked") as caught:
        guard_visible_devices(0)

    assert '"spawn"' in str(caught.value)
    assert MASK not in os.environ


def test_the_drivers_own_answer_comes_before_what_torch_says_of_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A driver that counts devices has started in this very process, and is not forbidden in it.
    """
    started(monkeypatch, 1)
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: True)

    with pytest.raises(MaskTooLateError, match="holds to 1 device\n"):
        guard_visible_devices(0)

    assert MASK not in os.environ


# The driver reads the mask once, when `cuInit` runs:
# https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
LATE = [
    pytest.param("0", 2, 2, None, None, id="fewer-than-the-driver-shows"),
    pytest.param("0,1", 1, 2, None, None, id="more-than-the-driver-shows"),
    pytest.param("-1", 2, 2, None, None, id="hidden-since"),
    pytest.param(None, 1, None, ["GPU-aa11", "GPU-bb22"], ("GPU-aa11",), id="unset-since"),
    pytest.param("GPU-bb", 1, None, ["GPU-aa11", "GPU-bb22"], ("GPU-aa11",), id="another-uuid"),
    pytest.param("1", 1, None, ["GPU-aa11", "GPU-bb22"], ("GPU-aa11",), id="another-number-of-like-devices"),
]


@pytest.mark.parametrize(("raw", "held", "machine", "listed", "told"), LATE)
@pytest.mark.parametrize("environ", [pytest.param(None, id="none"), pytest.param(os.environ, id="os-environ")])
def test_reading_a_mask_that_came_too_late_warns(
    monkeypatch: pytest.MonkeyPatch, raw: Any, held: int, machine: Any, listed: Any, told: Any, environ: Any
) -> None:
    """
    At the caller's line, with what the driver holds to; the mask is returned as it stands.
    """
    started(monkeypatch, held, told)
    machine_of(monkeypatch, machine, listed)
    if raw is not None:
        monkeypatch.setenv(MASK, raw)
    with pytest.warns(MaskWarning, match=r"\[mask-too-late\]") as caught:
        mask = guard_visible_devices(environ=environ)

    assert parse_mask(raw) == mask
    assert f"it holds to {held} device" in str(caught[0].message).splitlines()[0]
    assert (1, __file__) == (len(caught), caught[0].filename)
    assert "guard_visible_devices(environ=environ)" in linecache.getline(__file__, caught[0].lineno)


@pytest.mark.parametrize(("raw", "held", "machine", "listed", "told"), LATE)
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"devices": 0}, id="what-the-mask-holds"),
        pytest.param({"devices": 0, "environ": os.environ}, id="of-os-environ-by-name"),
        pytest.param({"devices": 99}, id="what-it-does-not-hold"),
        pytest.param({"devices": "nonsense"}, id="no-device-at-all"),
        pytest.param({"devices": []}, id="hiding"),
        pytest.param({"devices": 0, "order": "PCI_BUS_ID"}, id="with-an-order"),
    ],
)
def test_devices_under_a_mask_that_came_too_late_are_refused_first(
    monkeypatch: pytest.MonkeyPatch, raw: Any, held: int, machine: Any, listed: Any, told: Any, arguments: Any
) -> None:
    """
    Ordinals mean nothing under a mask that is not in force: that is told before anything is said of the devices.
    """
    started(monkeypatch, held, told)
    machine_of(monkeypatch, machine, listed)
    if raw is not None:
        monkeypatch.setenv(MASK, raw)

    with pytest.raises(MaskTooLateError, match="CUDA had started before it was changed") as caught:
        guard_visible_devices(**arguments)

    assert parse_mask(raw) == caught.value.mask
    assert f"holds to {held} device" in str(caught.value)
    assert (raw, None) == (os.environ.get(MASK), os.environ.get(ORDER))


@pytest.mark.parametrize(
    ("raw", "held", "machine", "listed", "told"),
    [
        pytest.param("0,1", 2, 4, None, None, id="as-many-numbers"),
        pytest.param("0,7,1", 1, 4, None, None, id="up-to-a-number-that-is-not-here"),
        pytest.param(None, 1, 2, None, None, id="one-of-an-unlisted-machine-may-be-lost"),
        pytest.param(None, 1, None, ["GPU-aa11", ""], ("GPU-aa11",), id="one-is-lost"),
        pytest.param("0", 2, None, None, None, id="machine-unknown"),
        pytest.param("MIG-a", 1, 1, None, None, id="an-instance"),
        pytest.param("GPU-bb", 1, None, ["GPU-aa11", "GPU-bb22"], ("GPU-bb22",), id="the-same-uuid"),
    ],
)
def test_a_mask_that_may_be_the_drivers_own_raises_no_alarm(
    monkeypatch: pytest.MonkeyPatch, raw: Any, held: int, machine: Any, listed: Any, told: Any
) -> None:
    """
    Where nothing shows that the mask was changed after the start, nothing is said.
    """
    started(monkeypatch, held, told)
    machine_of(monkeypatch, machine, listed)
    if raw is not None:
        monkeypatch.setenv(MASK, raw)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mask = guard_visible_devices()

    assert raw == mask.raw


def test_without_ctypes_nobody_can_have_started_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Reading then asks neither the driver nor NVML, and loads nothing for it.
    """
    monkeypatch.setattr(_driver, "frozen_count", lambda: pytest.fail("the driver was asked"))
    monkeypatch.delitem(sys.modules, "ctypes")
    monkeypatch.setenv(MASK, "0")

    assert (0,) == guard_visible_devices().entries


@pytest.mark.parametrize(
    ("inherited", "held", "before", "arguments"),
    [
        pytest.param("0,1", 2, None, {}, id="reading"),
        pytest.param("0,1", 2, None, {"devices": [0, 1]}, id="the-same-devices"),
        pytest.param("0,1", 2, None, {"devices": "0,1"}, id="the-same-text"),
        pytest.param("-1", 0, None, {"devices": []}, id="hidden-already"),
        pytest.param(None, 4, "PCI_BUS_ID", {"order": "PCI_BUS_ID"}, id="the-same-order"),
        pytest.param("3", 1, "PCI_BUS_ID", {"devices": 0, "order": "PCI_BUS_ID"}, id="both-as-they-are"),
    ],
)
def test_what_changes_nothing_is_never_too_late(
    monkeypatch: pytest.MonkeyPatch, inherited: str | None, held: int, before: str | None, arguments: dict[str, Any]
) -> None:
    """
    The guard may stand in a program that is called twice: the driver has started under the mask that it left.
    """
    started(monkeypatch, held)
    machine_of(monkeypatch, 4)
    for variable, value in ((MASK, inherited), (ORDER, before)):
        if value is not None:
            monkeypatch.setenv(variable, value)

    assert inherited == guard_visible_devices(**arguments).raw


def test_a_mask_that_the_process_was_started_with_is_never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    However many devices the driver shows: it has read that mask, and so has other reasons.
    """
    asked = []
    started(monkeypatch, 1)
    machine_of(monkeypatch, 4)
    monkeypatch.setenv(MASK, "0,1")
    monkeypatch.setattr(_library, "inherited", lambda variables: asked.append(variables) or True)

    assert "0,1" == guard_visible_devices().raw
    assert [{MASK: "0,1", ORDER: None}] == asked


def test_in_a_process_forked_too_late_reading_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No mask helps there: CUDA cannot be used. What changes nothing raises no error.
    """
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: True)
    monkeypatch.setenv(MASK, "4,5")
    with pytest.warns(MaskWarning, match=r"^this process was forked after its parent had started CUDA") as caught:
        guard_visible_devices()

    assert (1, __file__) == (len(caught), caught[0].filename)
    assert "4,5" == guard_visible_devices([0, 1]).raw


def test_for_another_environment_the_driver_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A child process has a driver of its own.
    """
    started(monkeypatch, 2)
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: True)
    environ = {MASK: "4,5", "OTHER": "x"}
    guard_visible_devices(1, environ=environ)

    assert {MASK: "5", "OTHER": "x"} == environ
    assert MASK not in os.environ


def test_another_environment_may_be_empty() -> None:
    """
    An empty mapping is a mapping, and not none at all.
    """
    os.environ[MASK] = "4,5"
    environ: dict[str, str] = {}
    guard_visible_devices(0, environ=environ)

    assert {MASK: "0"} == environ
    assert "4,5" == os.environ[MASK]


# ---- all or nothing


class Failing(dict[str, str]):
    """An environment in which one variable cannot be written."""

    def __init__(self, variable: str, **variables: str) -> None:
        super().__init__(**variables)
        self.variable = variable

    def __setitem__(self, name: str, value: str) -> None:
        if name == self.variable:
            raise OSError("read-only")
        super().__setitem__(name, value)


@pytest.mark.parametrize("variable", [MASK, ORDER])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param({}, id="both-unset"),
        pytest.param({MASK: "GPU-a,GPU-b", ORDER: "FASTEST_FIRST"}, id="both-set"),
        pytest.param({MASK: "GPU-a,GPU-b"}, id="mask-set"),
    ],
)
def test_a_write_that_fails_undoes_the_other(variable: str, before: dict[str, str]) -> None:
    """
    Either both variables are written, or none, whichever of the two fails.
    """
    environ = Failing(variable, **before)

    with pytest.raises(OSError, match="read-only"):
        guard_visible_devices([0], order="PCI_BUS_ID", environ=environ)

    assert before == environ


def test_a_write_that_reaches_no_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where os.environ was replaced by a mapping of Python's own, the driver would never see the mask: nothing is written.
    """
    replaced = {"OTHER": "x"}
    monkeypatch.setattr(os, "environ", replaced)

    with pytest.raises(MaskError, match=r"what is written to os\.environ reaches no library"):
        guard_visible_devices([0], order="PCI_BUS_ID")

    assert {"OTHER": "x"} == replaced


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        pytest.param({MASK: "1"}, None, "is '1' in os.environ, and unset in the environment", id="set-here-alone"),
        pytest.param({}, "0", "is unset in os.environ, and '0' in the environment", id="set-there-alone"),
        pytest.param({MASK: "1"}, "0", "is '1' in os.environ, and '0' in the environment", id="otherwise"),
    ],
)
def test_reading_a_mask_that_no_library_sees_warns(
    monkeypatch: pytest.MonkeyPatch, here: dict[str, str], there: str | None, words: str
) -> None:
    """
    Where os.environ was replaced, what it holds is not what the driver will read.
    """
    if there is not None:
        monkeypatch.setenv(MASK, there)
    monkeypatch.setattr(os, "environ", here)
    with pytest.warns(MaskWarning, match=r"\[mask-not-in-force\]") as caught:
        guard_visible_devices()

    assert words in str(caught[0].message).splitlines()[0]
    assert (1, __file__) == (len(caught), caught[0].filename)


@pytest.mark.parametrize(
    ("here", "there", "arguments"),
    [
        pytest.param({MASK: "2"}, {MASK: "1"}, {"devices": 0}, id="that-is-written-already"),
        pytest.param({MASK: "2"}, {}, {"devices": 0}, id="that-only-os-environ-holds"),
        pytest.param({MASK: "-1"}, {}, {"devices": []}, id="that-hides-all-in-os-environ-alone"),
        pytest.param({}, {MASK: "1"}, {"devices": 2}, id="that-os-environ-does-not-know"),
        pytest.param({MASK: "2"}, {MASK: "1"}, {"order": "PCI_BUS_ID"}, id="whose-order-is-to-be-set"),
        pytest.param({ORDER: "PCI_BUS_ID"}, {}, {"order": "PCI_BUS_ID"}, id="whose-order-os-environ-alone-holds"),
    ],
)
def test_a_mask_that_no_library_sees_is_not_narrowed(
    monkeypatch: pytest.MonkeyPatch, here: dict[str, str], there: dict[str, str], arguments: dict[str, Any]
) -> None:
    """
    What the driver will read is another mask, which would be widened, or stay as it is: an error, and no change.
    """
    for variable, value in there.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(os, "environ", replaced := dict(here))

    with pytest.raises(MaskError, match=r"in the environment that the driver reads\n.*\[mask-not-in-force\]"):
        guard_visible_devices(**arguments)

    assert here == replaced


# ---- for any input

DEVICES = st.one_of(
    st.text(max_size=12),
    st.integers(-2, 9),
    st.lists(st.integers(-1, 5) | st.sampled_from(["GPU-a", "GPU-ab", "MIG-a", "0", "x", "", "GPU-\x00"]), max_size=4),
)
INHERITED = st.sampled_from([None, "", "-1", "4,5", "0,1,2", "GPU-a,GPU-ab", "MIG-a", "0,x", "GPU-b,0", "1,1"])


@settings(deadline=None)
@given(
    inherited=INHERITED,
    devices=DEVICES,
    order=st.sampled_from([None, "PCI_BUS_ID", "FASTEST_FIRST"]),
    count=st.none() | st.integers(0, 6),
)
def test_the_guard_leaves_a_sound_narrower_mask_or_the_old_one(
    inherited: str | None, devices: Any, order: Any, count: int | None
) -> None:
    """
    Whatever is asked for: a mask without defects whose entries the old one held, or an error and no change at all.
    """
    environ = {} if inherited is None else {MASK: inherited}
    before = dict(environ)
    with pytest.MonkeyPatch.context() as patch:
        machine_of(patch, count)
        try:
            mask = guard_visible_devices(devices, order=order, environ=environ)
        except MaskError:
            assert before == environ
            return

    assert () == mask.defects
    assert mask.hides_all or inherited is None or set(mask.entries) <= set(parse_mask(inherited).entries)
    assert count is None or all(entry < count for entry in mask.entries if isinstance(entry, int))
    assert order == environ.get(ORDER)


def test_an_abbreviated_entry_stands_for_no_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The entry ``GPU-3e`` is the machine's one device that begins so, and not another that would begin so as well.
    """
    machine_of(monkeypatch, 1, ["GPU-3eaa"])

    with pytest.raises(MaskError, match="inherited mask holds"):
        guard_visible_devices("GPU-3ebb", environ={MASK: "GPU-3e"})
    assert ("GPU-3e",) == guard_visible_devices("GPU-3eaa", environ={MASK: "GPU-3e"}).entries


def test_the_type_of_devices_is_there_for_annotations() -> None:
    """
    None, one, text, or a sequence of those; it is loaded when it is asked for, and nothing else is.
    """
    one = (SupportsIndex, str)

    assert {*one, type(None), Sequence[Union[one]]} == set(get_args(guard.Devices))
    with pytest.raises(AttributeError, match=r"^module 'safedev\.guard' has no attribute 'Device'$"):
        guard.Device  # noqa: B018 - reading it is the test
