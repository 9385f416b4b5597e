"""Text from outside, made safe to show: escaped, and cut where it is long."""

from __future__ import annotations

LIMIT = 72
"""Characters of an outside text that a message shows at most."""


def quoted(text: str, limit: int = LIMIT) -> str:
    """Quote *text* as ``ascii()`` does; a long one is cut, and its length told."""
    if len(text) <= limit:
        return ascii(text)
    return f"{text[:limit]!a}... ({len(text)} characters)"


def state(value: str | None) -> str:
    """What a variable holds, quoted; ``unset`` for None."""
    return "unset" if value is None else quoted(value)


def marked(text: str, start: int, end: int, limit: int = LIMIT) -> tuple[str, str]:
    """Quote the part of *text* around a span, and mark the span.

    Args:
        text: The text.
        start: First character of the span, from 0.
        end: The character after its last one; may equal *start*.
        limit: Characters of *text* that are shown at most.

    Returns:
        The quoted text, and a line of blanks and carets that fits under it.
    """
    first = max(0, min(start - limit // 3, len(text) - limit))
    last = min(len(text), first + limit)
    before = "..." if first else ""
    after = f"... ({len(text)} characters)" if last < len(text) else ""
    lead, fault, rest = (
        "".join(map(_escaped, text[a:b])) for a, b in ((first, start), (start, min(end, last)), (min(end, last), last))
    )
    carets = " " * (len(before) + 1 + len(lead)) + "^" * max(1, len(fault))
    return f"{before}'{lead}{fault}{rest}'{after}", carets


def _escaped(character: str) -> str:
    return "\\'" if character == "'" else ascii(character)[1:-1]


def counted(number: int, noun: str) -> str:
    """Say ``1 device``, ``2 devices``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def quoted_number(number: int) -> str:
    """Show *number*; one too long to be printed is named by its size."""
    return str(number) if number.bit_length() < 128 else f"<integer of {number.bit_length()} bits>"


def first_line(error: Exception) -> str:
    """The first line of what *error* says, not escaped; the name of its class where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
