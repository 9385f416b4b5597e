"""Text from outside, made safe to show."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedev._text import LIMIT, counted, first_line, marked, quoted, quoted_number, state


@given(text=st.text(max_size=LIMIT))
def test_a_quoted_text_can_be_read_back(text: str) -> None:
    """
    Nothing of a short text is lost: the quoted form is a Python literal of it, in printable ASCII.
    """
    assert text == ast.literal_eval(quoted(text))
    assert quoted(text).isascii()
    assert quoted(text).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("", "''", id="empty"),
        pytest.param("0,1", "'0,1'", id="plain"),
        pytest.param("a\nb\x1b[31m", r"'a\nb\x1b[31m'", id="control-characters"),
        pytest.param("\u202e\ud800", r"'\u202e\ud800'", id="direction-and-surrogate"),
        pytest.param("'", '"\'"', id="a-quote"),
    ],
)
def test_a_text_is_quoted(text: str, shown: str) -> None:
    """
    Quoted as Python does it, everything but printable ASCII escaped.
    """
    assert shown == quoted(text)


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        pytest.param(4, "'xxxx'", id="as-long-as-the-limit"),
        pytest.param(5, "'xxxx'... (5 characters)", id="one-more"),
        pytest.param(10**6, "'xxxx'... (1000000 characters)", id="a-million"),
    ],
)
def test_a_long_text_is_cut(length: int, shown: str) -> None:
    """
    What is too long is cut at the limit, and its length told.
    """
    assert shown == quoted("x" * length, 4)


def under_the_carets(lines: tuple[str, str]) -> str:
    return "".join(shown for shown, caret in zip(*lines, strict=False) if caret == "^")


@pytest.mark.parametrize(
    ("text", "span", "fault"),
    [
        pytest.param("0,x,1", (2, 3), "x", id="in-the-middle"),
        pytest.param("x,0", (0, 1), "x", id="first"),
        pytest.param("0,x", (2, 3), "x", id="last"),
        pytest.param("0,\n\x00,x", (2, 4), r"\n\x00", id="escaped"),
        pytest.param("\n,'x'", (2, 5), r"\'x\'", id="quotes"),
        pytest.param("\u202e,\\", (2, 3), "\\\\", id="behind-an-escaped-character"),
        pytest.param("0," * 100 + "x" + ",0" * 100, (200, 201), "x", id="far-in-a-long-text"),
        pytest.param("x" * 72, (0, 72), "x" * 72, id="as-long-as-the-limit"),
        pytest.param("x" * 73, (0, 73), "x" * 72, id="longer-than-the-limit"),
        pytest.param("0," * 100 + "x" * 200, (200, 400), "x" * 48, id="far-and-long"),
    ],
)
def test_the_carets_stand_under_the_span(text: str, span: tuple[int, int], fault: str) -> None:
    """
    However the text is escaped and cut, what the carets mark is the span, or its beginning.
    """
    assert fault == under_the_carets(marked(text, *span))


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        pytest.param("0,,1", 2, ("'0,,1'", "   ^"), id="between-commas"),
        pytest.param("", 0, ("''", " ^"), id="empty-text"),
        pytest.param("0,", 2, ("'0,'", "   ^"), id="at-the-end"),
    ],
)
def test_an_empty_span_is_marked_with_one_caret(text: str, place: int, shown: tuple[str, str]) -> None:
    """
    The caret stands where the entry is missing.
    """
    assert shown == marked(text, place, place)


@pytest.mark.parametrize(
    ("text", "span", "shown"),
    [
        pytest.param("abcdefghi", (0, 1), "'abcdef'... (9 characters)", id="the-end-is-cut"),
        pytest.param("abcdefghi", (8, 9), "...'defghi'", id="the-beginning-is-cut"),
        pytest.param("abcdefghi", (4, 5), "...'cdefgh'... (9 characters)", id="both-are-cut"),
        pytest.param("abcdef", (5, 6), "'abcdef'", id="nothing-is-cut"),
    ],
)
def test_what_is_cut_around_a_span_is_told(text: str, span: tuple[int, int], shown: str) -> None:
    """
    Dots stand where text was left out, and the length of the whole is told.
    """
    assert shown == marked(text, *span, 6)[0]


@given(data=st.data(), text=st.text(max_size=200))
def test_a_marked_text_is_one_line(data: st.DataObject, text: str) -> None:
    """
    Whatever the text and the span: two lines of printable ASCII, not much longer than the limit.
    """
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    lines = marked(text, start, end)

    assert all(line.isascii() and line.isprintable() for line in lines)
    assert "^" in lines[1]
    assert all(len(line) <= 10 * LIMIT + 40 for line in lines)


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        pytest.param(0, "device", "0 devices", id="none"),
        pytest.param(1, "device", "1 device", id="one"),
        pytest.param(2, "NVIDIA device", "2 NVIDIA devices", id="several"),
    ],
)
def test_things_are_counted(number: int, noun: str, said: str) -> None:
    """
    One is singular, all else plural.
    """
    assert said == counted(number, noun)


@pytest.mark.parametrize(("value", "said"), [(None, "unset"), ("", "''"), ("unset", "'unset'")])
def test_the_state_of_a_variable_is_told(value: str | None, said: str) -> None:
    """
    Unset is another state than any text.
    """
    assert said == state(value)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        pytest.param(7, "7", id="small"),
        pytest.param(-7, "-7", id="negative"),
        pytest.param(2**127 - 1, "170141183460469231731687303715884105727", id="the-longest-shown"),
        pytest.param(2**127, "<integer of 128 bits>", id="the-first-not-shown"),
        pytest.param(10**5000, "<integer of 16610 bits>", id="longer-than-python-prints"),
    ],
)
def test_a_number_is_shown(number: int, shown: str) -> None:
    """
    One that is too long to print is named by its size.
    """
    assert shown == quoted_number(number)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        pytest.param("out of memory", "out of memory", id="one-line"),
        pytest.param("\n  out of memory\nCompile with DSA", "out of memory", id="several-lines"),
        pytest.param(" \n", "RuntimeError", id="blank"),
    ],
)
def test_of_an_error_its_first_line_is_told(words: str, line: str) -> None:
    """
    Blank lines before it do not count; an error without words is named by its class.
    """
    assert line == first_line(RuntimeError(words))
