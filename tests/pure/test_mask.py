"""A mask, read as torch reads it, and what is wrong with it."""

from __future__ import annotations

import pickle
import sys
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedev._mask import Mask, parse_mask, rewriting

FULL = "GPU-1c55aa77-0000-4000-8000-000000000000"


# What torch's parser makes of these was read in torch/cuda/__init__.py (2.4 to 2.14); tests/torch compares the two.
@pytest.mark.parametrize(
    ("raw", "entries"),
    [
        pytest.param(None, (), id="unset"),
        pytest.param("", (), id="empty"),
        pytest.param(" ", (), id="blank"),
        pytest.param("-1", (), id="minus-one"),
        pytest.param("0", (0,), id="one"),
        pytest.param("3,1", (3, 1), id="order-is-kept"),
        pytest.param(" 3 ,\t1\n", (3, 1), id="blanks-around-numbers"),
        pytest.param("+3,-0", (3, 0), id="signs"),
        pytest.param("01,08", (1, 8), id="leading-zeros-are-decimal"),
        pytest.param("1gpu2,2ampere", (1, 2), id="suffix"),
        pytest.param("0-3", (0,), id="a-range-is-its-first-number"),
        pytest.param("1.5", (1,), id="a-fraction-is-its-whole-part"),
        pytest.param("0x1", (0,), id="hexadecimal-is-zero"),
        pytest.param("0 1 2", (0,), id="blanks-do-not-part"),
        pytest.param("0;1", (0,), id="semicolons-do-not-part"),
        pytest.param("0,2,-1,1", (0, 2), id="a-negative-ends-the-list"),
        pytest.param("-1,0", (), id="a-negative-first-hides-all"),
        pytest.param("0,,1", (0,), id="an-empty-entry-ends-the-list"),
        pytest.param(",0", (), id="an-empty-entry-first"),
        pytest.param("0,1,", (0, 1), id="a-comma-at-the-end"),
        pytest.param("3,2,two,1", (3, 2), id="a-word-ends-the-list"),
        pytest.param("0,1,0", (), id="a-repeat-voids-the-list"),
        pytest.param("1,+1", (), id="a-repeat-by-value"),
        pytest.param("0,1,x,0", (0, 1), id="a-repeat-behind-the-end"),
        pytest.param("0,99,0", (), id="a-repeat-behind-a-number-of-no-device"),
        pytest.param("4294967296", (4294967296,), id="numbers-do-not-wrap"),
        pytest.param("\uff11", (1,), id="digits-of-another-script"),
        pytest.param("\xa01", (1,), id="no-break-space"),
        pytest.param("\u00b2", (), id="superscript"),
        pytest.param("0,1\u00b2x", (0,), id="superscript-behind-a-number"),
        pytest.param("--1", (), id="two-signs"),
        pytest.param("1" * 4300, (int("1" * 4300),), id="as-many-digits-as-int-takes"),
        pytest.param("1" * 4301, (), id="one-digit-more"),
        pytest.param("[0,1]", (), id="brackets"),
        pytest.param("GPU-a,GPU-b", ("GPU-a", "GPU-b"), id="uuids"),
        pytest.param("GPU-a,GPU-b,GPU-a", (), id="a-repeated-uuid-voids-the-list"),
        pytest.param("GPU-a, GPU-b", ("GPU-a",), id="a-blank-before-a-uuid"),
        pytest.param("GPU-a,0", ("GPU-a",), id="a-number-behind-a-uuid"),
        pytest.param("0,GPU-a", (0,), id="a-uuid-behind-a-number"),
        pytest.param("GPU-a,MIG-b", ("GPU-a",), id="an-instance-behind-a-whole-device"),
        pytest.param("MIG-a,MIG-b", ("MIG-a", "MIG-b"), id="instances"),
        pytest.param("MIG-GPU-a/1/0", ("MIG-GPU-a/1/0",), id="instance-by-its-old-name"),
        pytest.param("MIG-a,GPU-b", ("MIG-a",), id="a-whole-device-behind-an-instance"),
        pytest.param("gpu-a", (), id="small-letters"),
        pytest.param("1c55aa77-0000-4000-8000-000000000000", (1,), id="a-uuid-without-its-prefix"),
    ],
)
def test_a_mask_is_read_as_torch_reads_it(raw: str | None, entries: tuple[object, ...]) -> None:
    """
    What ordinal 0, 1, 2 ... stand for.
    """
    assert entries == parse_mask(raw).entries


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(None, id="unset"),
        pytest.param("", id="empty"),
        pytest.param(" ", id="blank"),
        pytest.param("-1", id="minus-one"),
        pytest.param("-1,0", id="minus-one-first"),
        pytest.param("0,1", id="numbers"),
        pytest.param("0,-1", id="minus-one-last"),
        pytest.param("0,1,", id="a-comma-at-the-end"),
        pytest.param("GPU-a,", id="a-comma-behind-a-uuid"),
        pytest.param(" 0 , 1 ", id="blanks-around-numbers"),
        pytest.param("+0,01", id="odd-spellings"),
        pytest.param("1gpu2", id="suffix"),
        pytest.param("1GPU2", id="suffix-in-capitals"),
        pytest.param(FULL, id="uuid"),
        pytest.param("MIG-a,MIG-b", id="instances"),
    ],
)
def test_a_mask_that_does_what_it_says_has_no_defect(raw: str | None) -> None:
    """
    Nothing is said about a mask that is sound, or that hides everything on purpose.
    """
    assert () == parse_mask(raw).defects


# The text to write instead is what the writer can only have meant; None: the variable is best unset.
@pytest.mark.parametrize(
    ("raw", "code", "fault", "words", "instead"),
    [
        pytest.param("0,1,0", "mask-repeated", "0", "twice", "0,1", id="repeat"),
        pytest.param("1,+1", "mask-repeated", "+1", "twice", "1", id="repeat-by-value"),
        pytest.param("GPU-a,GPU-a", "mask-repeated", "GPU-a", "twice", "GPU-a", id="repeated-uuid"),
        pytest.param('"0,1"', "mask-unreadable", '"0', "quotes", "0,1", id="double-quotes"),
        pytest.param("'0'", "mask-unreadable", "'0'", "quotes", "0", id="single-quotes"),
        pytest.param("0,1'", "mask-unreadable", "1'", "quotes", "0,1", id="closing-quote"),
        pytest.param("[0,1]", "mask-unreadable", "[0", "brackets", "0,1", id="brackets"),
        pytest.param("0,1]", "mask-unreadable", "1]", "brackets", "0,1", id="closing-bracket"),
        pytest.param("cuda:0", "mask-unreadable", "cuda:0", "torch device", "0", id="torch-device"),
        pytest.param("cuda:0,cuda:1", "mask-unreadable", "cuda:0", "torch device", "0,1", id="torch-devices"),
        pytest.param(
            "gpu1,gpu2", "mask-unreadable", "gpu1", "neither a number nor a UUID", "1,2", id="prefixed-numbers"
        ),
        pytest.param("all", "mask-unreadable", "all", "NVIDIA_VISIBLE_DEVICES", None, id="all"),
        pytest.param("ALL", "mask-unreadable", "ALL", "NVIDIA_VISIBLE_DEVICES", None, id="all-in-capitals"),
        pytest.param("none", "mask-unreadable", "none", "NVIDIA_VISIBLE_DEVICES", "-1", id="none"),
        pytest.param('"none"', "mask-unreadable", '"none"', "quotes", "-1", id="none-in-quotes"),
        pytest.param("void", "mask-unreadable", "void", "NVIDIA_VISIBLE_DEVICES", "-1", id="void"),
        pytest.param("NoDevFiles", "mask-unreadable", "NoDevFiles", "scheduler", "-1", id="a-schedulers-word"),
        pytest.param(
            "nvidia.com/gpu=0", "mask-unreadable", "nvidia.com/gpu=0", "container", "0", id="a-containers-name"
        ),
        pytest.param("0-3", "mask-unreadable", "0-3", "ranges", "0,1,2,3", id="range"),
        pytest.param("0 - 2", "mask-unreadable", "0 - 2", "ranges", "0,1,2", id="range-with-blanks"),
        pytest.param("0..2", "mask-unreadable", "0..2", "ranges", "0,1,2", id="range-with-dots"),
        pytest.param("0...2", "mask-unreadable", "0...2", "ranges", "0,1,2", id="range-with-three-dots"),
        pytest.param("3-1", "mask-unreadable", "3-1", "ranges", "3,2,1", id="range-backwards"),
        pytest.param("3-3", "mask-unreadable", "3-3", "ranges", "3", id="range-of-one"),
        pytest.param("0-99,6", "mask-unreadable", "0-99", "ranges", None, id="range-of-more-than-anybody-has"),
        pytest.param("0-3,6", "mask-unreadable", "0-3", "ranges", "0,1,2,3,6", id="range-among-others"),
        pytest.param("0\u20133", "mask-unreadable", "0\u20133", "ranges", "0,1,2,3", id="range-with-an-en-dash"),
        pytest.param("0 \u2014 3", "mask-unreadable", "0 \u2014 3", "ranges", "0,1,2,3", id="range-with-an-em-dash"),
        pytest.param("1,4\u22125", "mask-unreadable", "4\u22125", "ranges", "1,4,5", id="range-with-a-minus-sign"),
        pytest.param("0\uff0d3", "mask-unreadable", "0\uff0d3", "ranges", "0,1,2,3", id="range-with-a-wide-dash"),
        pytest.param("\u22121", "mask-unreadable", "\u22121", "no minus sign", "-1", id="minus-one-by-another-dash"),
        pytest.param("'-1'", "mask-unreadable", "'-1'", "quotes", "-1", id="minus-one-in-quotes"),
        pytest.param(
            "-" + "9" * 5000, "mask-unreadable", "-" + "9" * 5000, "neither a number", None, id="too-long-a-negative"
        ),
        pytest.param("\uff12", "mask-unreadable", "\uff12", "only torch is known", "2", id="a-wide-digit"),
        pytest.param("\uff12,\uff13", "mask-unreadable", "\uff13", "only torch is known", "2,3", id="wide-digits"),
        pytest.param("1,\u0662", "mask-unreadable", "\u0662", "only torch is known", "1,2", id="an-arabic-digit"),
        pytest.param(
            "+1\uff12", "mask-unreadable", "+1\uff12", "only torch is known", "12", id="digits-of-two-scripts"
        ),
        pytest.param("\uff12\uff0c3", "mask-unreadable", "\uff12\uff0c3", "only commas", "2,3", id="a-wide-comma"),
        pytest.param("2\u30013", "mask-unreadable", "2\u30013", "only commas", "2,3", id="an-ideographic-comma"),
        pytest.param("0 1 2", "mask-unreadable", "0 1 2", "blanks do not separate", "0,1,2", id="blanks-for-commas"),
        pytest.param("0;1", "mask-unreadable", "0;1", "only commas separate", "0,1", id="semicolons-for-commas"),
        pytest.param("0:1", "mask-unreadable", "0:1", "only commas separate", "0,1", id="colons-for-commas"),
        pytest.param("0|1", "mask-unreadable", "0|1", "only commas separate", "0,1", id="bars-for-commas"),
        pytest.param("0x1f", "mask-unreadable", "0x1f", "hexadecimal", "31", id="hexadecimal"),
        pytest.param("0X1F", "mask-unreadable", "0X1F", "hexadecimal", "31", id="hexadecimal-in-capitals"),
        pytest.param("1.5", "mask-unreadable", "1.5", "whole number", "1", id="fraction"),
        pytest.param("1_0", "mask-unreadable", "1_0", "follows the number", "1", id="something-behind-the-number"),
        pytest.param(FULL[4:], "mask-unreadable", FULL[4:], "begins with GPU-", FULL, id="uuid-without-prefix"),
        pytest.param(
            FULL[4:].upper(), "mask-unreadable", FULL[4:].upper(), "begins with GPU-", FULL, id="uuid-in-capitals"
        ),
        pytest.param("gpu-ab", "mask-unreadable", "gpu-ab", "capitals", "GPU-ab", id="uuid-in-small-letters"),
        pytest.param("GPU-a, GPU-b", "mask-unreadable", " GPU-b", "blank", "GPU-a,GPU-b", id="blank-before-a-uuid"),
        pytest.param(" GPU-a", "mask-unreadable", " GPU-a", "blank", "GPU-a", id="blank-before-the-first-uuid"),
        pytest.param("GPU-a,GPU-b ", "mask-unreadable", "GPU-b ", "blank", "GPU-a,GPU-b", id="blank-behind-a-uuid"),
        pytest.param("0,,1", "mask-unreadable", "", "between two commas", "0,1", id="nothing-between-commas"),
        pytest.param(",0", "mask-unreadable", "", "between two commas", "0", id="nothing-before-a-comma"),
        pytest.param("0, ,1", "mask-unreadable", " ", "between two commas", "0,1", id="a-blank-between-commas"),
        pytest.param("--1", "mask-unreadable", "--1", "one sign", "-1", id="two-signs"),
        pytest.param("0,$X", "mask-unreadable", "$X", "not replaced by its value", "0", id="a-variable-of-a-shell"),
        pytest.param("0$X", "mask-unreadable", "0$X", "not replaced by its value", "0", id="a-number-and-a-variable"),
        pytest.param("0/1", "mask-unreadable", "0/1", "only commas", "0,1", id="a-slash-for-a-comma"),
        pytest.param("0+1", "mask-unreadable", "0+1", "only commas", "0,1", id="a-plus-for-a-comma"),
        pytest.param("GPU-a GPU-b", "mask-unreadable", "GPU-a GPU-b", "commas", "GPU-a,GPU-b", id="uuids-and-a-blank"),
        pytest.param(
            "GPU-a;GPU-b", "mask-unreadable", "GPU-a;GPU-b", "commas", "GPU-a,GPU-b", id="uuids-and-a-semicolon"
        ),
        pytest.param("GPU-{ab}", "mask-unreadable", "GPU-{ab}", "letters, digits", None, id="a-uuid-in-braces"),
        pytest.param("+", "mask-unreadable", "+", "sign", None, id="a-lone-sign"),
        pytest.param("\u00b2", "mask-unreadable", "\u00b2", "neither a number nor a UUID", None, id="superscript"),
        pytest.param(
            "0,1\u00b2",
            "mask-unreadable",
            "1\u00b2",
            "neither a number nor a UUID",
            "0,1",
            id="superscript-behind-a-number",
        ),
        pytest.param(
            "9" * 5000, "mask-unreadable", "9" * 5000, "neither a number nor a UUID", None, id="too-many-digits"
        ),
        pytest.param("two", "mask-unreadable", "two", "neither a number nor a UUID", None, id="word"),
        pytest.param(" two", "mask-unreadable", " two", "neither a number nor a UUID", None, id="word-behind-a-blank"),
        pytest.param("'0-63'", "mask-unreadable", "'0-63'", "quotes", ",".join(map(str, range(64))), id="many-numbers"),
        pytest.param("'0-63,64'", "mask-unreadable", "'0-63", "quotes", None, id="more-than-anybody-types"),
        pytest.param(
            "'0'" + " " * 4000 + "x", "mask-unreadable", "'0'" + " " * 4000 + "x", "quotes", None, id="a-long-text"
        ),
        pytest.param("0,two", "mask-unreadable", "two", "neither a number nor a UUID", "0", id="word-behind-a-number"),
        pytest.param(
            "GPU-a,two", "mask-unreadable", "two", "neither a number nor a UUID", "GPU-a", id="word-behind-a-uuid"
        ),
        pytest.param("GPU-a,0", "mask-mixed", "0", "one list", "GPU-a", id="number-behind-a-uuid"),
        pytest.param("0,GPU-a", "mask-mixed", "GPU-a", "one list", "0", id="uuid-behind-a-number"),
        pytest.param("0, GPU-a", "mask-mixed", " GPU-a", "one list", "0", id="uuid-with-blank-behind-a-number"),
        pytest.param("GPU-a,MIG-b", "mask-mixed", "MIG-b", "one list", "GPU-a", id="instance-behind-a-whole-device"),
        pytest.param("MIG-a,GPU-b", "mask-mixed", "GPU-b", "one list", "MIG-a", id="whole-device-behind-an-instance"),
        pytest.param("0,-1,1", "mask-unknown-device", "-1", "negative", "0,1", id="negative-among-others"),
    ],
)
def test_a_defect_is_found_where_it_is(raw: str, code: str, fault: str, words: str, instead: str | None) -> None:
    """
    The last defect, which decides, has a code, the place of the entry at fault, a reason, and what to write instead.
    """
    defect = parse_mask(raw).defects[-1]
    start, end = defect.span

    assert code == defect.code
    assert fault == raw[start:end]
    assert words in defect.reason
    assert instead == defect.instead


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("0,two,1", id="word"),
        pytest.param("0,,1", id="nothing"),
        pytest.param("0,GPU-a,1", id="another-kind"),
        pytest.param("GPU-a, GPU-b", id="blank-before-a-uuid"),
    ],
)
def test_an_entry_that_ends_the_list_is_said_to_hide_itself_too(raw: str) -> None:
    """
    Not what follows alone: the entry at fault is hidden with it.
    """
    assert parse_mask(raw).defects[-1].reason.endswith("; it and all that follow are hidden")


def test_a_number_of_any_length_is_shown_by_its_size() -> None:
    """
    The reason of a doubtful entry names what it is read as, in few characters.
    """
    (defect,) = parse_mask("7" * 4000 + ";1").defects

    assert "it is read as <integer of 13288 bits> alone" in defect.reason


@pytest.mark.parametrize(
    ("raw", "fix"),
    [
        pytest.param("all", "unset HIP_MASK, or list physical indices: HIP_MASK=0,1", id="unset"),
        pytest.param("none", "write HIP_MASK=-1 to hide every device, or unset it to show all", id="hide"),
        pytest.param("2,2", "write HIP_MASK=2", id="write"),
    ],
)
def test_what_to_do_about_a_defect_is_told(raw: str, fix: str) -> None:
    """
    The variable is named, and what to write; where that hides every device, so does the text.
    """
    mask = parse_mask(raw, variable="HIP_MASK")

    assert fix == rewriting(mask, mask.defects[0].instead)


def test_fewer_digits_may_be_allowed_in_this_process() -> None:
    """
    Under a lower limit of the interpreter, a longer number is an unreadable entry, and no ValueError.
    """
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        mask = parse_mask("0," + "1" * 700)
    finally:
        sys.set_int_max_str_digits(limit)

    assert (0,) == mask.entries
    assert ["mask-unreadable"] == [defect.code for defect in mask.defects]


@pytest.mark.parametrize("raw", [pytest.param("gpu-\u0130", id="a-dotted-i"), pytest.param("mig-\u212a", id="kelvin")])
def test_letters_of_another_script_are_no_uuid(raw: str) -> None:
    """
    Some are equal to ASCII letters where case is left out; nothing is made of them.
    """
    assert parse_mask(raw).defects[-1].instead is None


def test_each_defect_is_listed() -> None:
    """
    A mask with several faults has several defects, in the order of the text.
    """
    defects = parse_mask("0-1,2;3,x").defects

    assert [(0, 3), (4, 7), (8, 9)] == [defect.span for defect in defects]


@pytest.mark.parametrize(
    ("raw", "place", "entry"),
    [
        pytest.param("0", 0, "0", id="the-only-one"),
        pytest.param("10,2,345", 0, "10", id="the-first"),
        pytest.param("10,2,345", 1, "2", id="in-the-middle"),
        pytest.param("10,2,345", 2, "345", id="the-last"),
        pytest.param("0, 1 ,2", 1, " 1 ", id="with-its-blanks"),
        pytest.param("GPU-a,GPU-bc", 1, "GPU-bc", id="uuid"),
        pytest.param("1gpu,2,x", 1, "2", id="before-a-defect"),
    ],
)
def test_an_entry_stands_at_its_place(raw: str, place: int, entry: str) -> None:
    """
    From its first character to the one after its last.
    """
    start, end = parse_mask(raw).span_of(place)

    assert entry == raw[start:end]


@pytest.mark.parametrize(
    ("raw", "hides"),
    [
        pytest.param(None, False, id="unset"),
        pytest.param("", True, id="empty"),
        pytest.param("  ", True, id="blank"),
        pytest.param("-1", True, id="minus-one"),
        pytest.param("-7,0", True, id="another-negative"),
        pytest.param("0", False, id="one-device"),
        pytest.param("0,0", False, id="by-mistake-repeated"),
        pytest.param("none", False, id="by-mistake-unreadable"),
    ],
)
def test_what_hides_everything_on_purpose(raw: str | None, hides: bool) -> None:
    """
    A blank mask and a negative number hide everything on purpose; a mistake that does the same is none.
    """
    assert hides is parse_mask(raw).hides_all


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(None, id="unset"),
        pytest.param("0,1", id="plain"),
        pytest.param(" 0", id="with-a-blank"),
        pytest.param("x", id="with-a-defect"),
    ],
)
def test_a_mask_keeps_its_text_and_its_variable(raw: str | None) -> None:
    """
    What was read, and where, stays with it.
    """
    mask = parse_mask(raw, variable="HIP_VISIBLE_DEVICES")

    assert (raw, "HIP_VISIBLE_DEVICES") == (mask.raw, mask.variable)


def test_a_mask_is_data() -> None:
    """
    It cannot be changed, and it survives pickling.
    """
    mask = parse_mask("0,x")

    with pytest.raises(FrozenInstanceError):
        mask.raw = "1"  # type: ignore[misc]

    assert mask == pickle.loads(pickle.dumps(mask))


TEXTS = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="0123456789,-+. :;'\"[]xGPUMIG-abcdef\t\n\u00b2", max_size=30),
    st.lists(
        st.sampled_from(
            ["0", "1", "-1", "0-3", "all", "GPU-a", "gpu-b", " GPU-c", "MIG-a", "'2'", "cuda:3", "", "0x2", "7 8"]
        ),
        max_size=6,
    ).map(",".join),
)


@settings(deadline=None)
@given(raw=TEXTS)
def test_every_text_is_a_mask(raw: str) -> None:
    """
    Whatever the text: it is read, every span lies inside it, and entries are of one kind, none twice.
    """
    mask = parse_mask(raw)

    assert all(0 <= start <= end <= len(raw) for start, end in (defect.span for defect in mask.defects))
    assert len({type(entry) for entry in mask.entries}) <= 1
    assert len(set(mask.entries)) == len(mask.entries)


@settings(deadline=None)
@given(raw=TEXTS)
def test_what_is_to_be_written_instead_is_sound(raw: str) -> None:
    """
    The offered text has no defect of its own, and needs no blank or quote.
    """
    offered = [parse_mask(defect.instead) for defect in parse_mask(raw).defects if defect.instead is not None]

    assert [] == [mask.raw for mask in offered if mask.defects or (mask.raw or "").split() != [mask.raw]]
    assert all(mask.entries or mask.raw == "-1" for mask in offered)


@settings(deadline=None)
@given(numbers=st.lists(st.integers(0, 10**6), unique=True, min_size=1))
def test_a_plain_list_is_read_as_it_stands(numbers: list[int]) -> None:
    """
    A list of different numbers is those numbers.
    """
    assert Mask(raw=",".join(map(str, numbers)), entries=tuple(numbers)) == parse_mask(",".join(map(str, numbers)))


# Each is read in time that grows with its length: ten times these would still be far from the test's time limit.
@pytest.mark.parametrize(
    ("raw", "count"),
    [
        pytest.param("x" * 10**6, 0, id="one-entry"),
        pytest.param("1" * 10**6, 0, id="digits"),
        pytest.param("1" * 4300 + "x" * 10**6, 1, id="a-long-suffix"),
        pytest.param("1" + " " * 10**6 + "1", 1, id="blanks-inside"),
        pytest.param("1" + "-" * 10**6, 1, id="dashes"),
        pytest.param("1" + "." * 10**6 + "1", 1, id="dots"),
        pytest.param(" " * 10**6, 0, id="blanks"),
        pytest.param("," * 10**6, 0, id="commas"),
        pytest.param("'" * 10**6, 0, id="quotes"),
        pytest.param("(" * 10**6, 0, id="brackets"),
        pytest.param("+-" * 10**6, 0, id="signs"),
        pytest.param("\x00\x1b\r\n" * 10**5, 0, id="control-characters"),
        pytest.param("\ud800\udcff" * 10**5, 0, id="lone-surrogates"),
        pytest.param(",".join(map(str, range(10**5))), 10**5, id="many-numbers"),
        pytest.param(",".join(["7" * 4000] + ["x"] * 10**5), 1, id="many-words"),
        pytest.param(",".join(f"{n}-{n + 1}" for n in range(10**5)), 10**5, id="many-ranges"),
        pytest.param(",".join(f"GPU-{n}" for n in range(10**5)), 10**5, id="many-uuids"),
    ],
)
def test_a_huge_mask_is_read(raw: str, count: int) -> None:
    """
    A text that nobody typed is read like any other.
    """
    assert count == len(parse_mask(raw).entries)
