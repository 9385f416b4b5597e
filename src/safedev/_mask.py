"""A mask, read as torch reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from safedev._quick import quickly
from safedev._text import quoted_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"  # what numbers in it count by

# `int()` of more digits than this fails (and torch with it), or takes quadratic time on older Pythons.
_MOST_DIGITS = 4300
# More entries than torch counts devices are nobody's typing; no rewriting is offered for them.
_MOST_REWRITTEN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskDefect:
    """One fault in a mask, as far as the text alone shows it.

    Attributes:
        code: ``mask-repeated``, ``mask-unreadable``, ``mask-mixed`` or ``mask-unknown-device``.
        span: First character of the entry at fault in ``Mask.raw``, from 0, and the one after its last.
        reason: What is wrong, and what it does.
        instead: The whole value to write instead; None where the variable is best unset.
    """

    code: str
    span: tuple[int, int]
    reason: str
    instead: str | None


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Which devices a process may see, and in which order.

    Attributes:
        raw: Text of the variable; None when it is unset, which hides nothing.
        variable: Name of the variable.
        entries: ``entries[n]`` is what ordinal *n* stands for: a number (from 0), or a UUID as text.
            ``()`` when the variable is unset, too. It does not depend on the machine, which may have fewer devices.
        defects: What is wrong with the text.
    """

    raw: str | None
    variable: str = CUDA_VISIBLE_DEVICES
    entries: tuple[int | str, ...] = ()
    defects: tuple[MaskDefect, ...] = ()

    def span_of(self, ordinal: int) -> tuple[int, int]:
        """Where the entry that *ordinal* (from 0) stands for is in ``raw``: its first character, and the one after."""
        before = (self.raw or "").split(",", ordinal + 1)[: ordinal + 1]
        end = len(",".join(before))
        return end - len(before[-1]), end

    @property
    def hides_all(self) -> bool:
        """Whether the mask hides every device on purpose, being blank or beginning with a negative number."""
        return self.raw is not None and not self.entries and not self.defects


_mask_of = quickly(Mask)


def parse_mask(raw: str | None, *, variable: str = CUDA_VISIBLE_DEVICES) -> Mask:
    """Read *raw* by the rules of ``torch.cuda``'s own parser.

    A repeated entry hides every device. A negative or unreadable entry hides itself and all that follow. A number may
    carry a sign, blanks around it, and a suffix: ``1gpu`` is 1. A list that begins with a UUID holds UUIDs alone, and
    no blank is taken off them. A blank mask, and a negative number first, hide every device on purpose: no defect.

    Args:
        raw: Text of the variable; None when it is unset, which hides nothing.
        variable: Name of the variable, for messages.

    Returns:
        The mask. Every text is one: what cannot be read is among its defects. Texts on which torch's parser itself
        fails (``--1``, a superscript digit, more than 4300 digits) count as unreadable from the entry at fault on.

    Source:
        ``torch/cuda/__init__.py``, ``_parse_visible_devices``, torch 2.4 to 2.14.
        https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    if raw is None:
        return Mask(raw=None, variable=variable)
    if (numbers := _numbers(raw)) is not None:
        return _mask_of(raw=raw, variable=variable, entries=numbers)
    entries: list[int | str] = []
    faults: list[tuple[str, int, int, str]] = []
    kind = raw[:4] if raw.startswith(("GPU-", "MIG-")) else ""
    for code, start, end, words in _read(raw, kind, entries):
        if code == "mask-repeated":
            entries.clear()
        faults.append((code, start, end, words))
    instead = _intended(raw) if faults else None
    defects = tuple(MaskDefect(code=c, span=(a, b), reason=words, instead=instead) for c, a, b, words in faults)
    return Mask(raw=raw, variable=variable, entries=tuple(entries), defects=defects)


def rewriting(mask: Mask, instead: str | None) -> str:
    """What to do about a defect of *mask*, for a message: to write *instead*; None: to unset it."""
    if instead is None:
        return f"unset {mask.variable}, or list physical indices: {mask.variable}=0,1"
    to_hide = " to hide every device, or unset it to show all" if instead == "-1" else ""
    return f"write {mask.variable}={instead}{to_hide}"


def _numbers(raw: str) -> tuple[int, ...] | None:
    """The entries of nearly every mask, a list of different numbers, quickly read; None: it is not so plain."""
    if not (raw.isascii() and raw.replace(",", "0").isdecimal()):
        return None
    tokens = raw.split(",")
    if "" in tokens or (len(raw) > 600 and max(map(len, tokens)) > 600):  # no limit on digits can be lower than 640
        return None
    numbers = tuple(map(int, tokens))
    return numbers if len(set(numbers)) == len(numbers) else None


def _read(raw: str, kind: str, entries: list[int | str]) -> Iterator[tuple[str, int, int, str]]:
    """Fill *entries*; yield each fault as code, start, end, words. *kind* is the prefix that UUIDs have, or ``""``."""
    seen: set[int | str] = set()
    end = -1
    for text in raw.split(","):
        start, end = end + 1, end + 1 + len(text)
        token = text.strip()
        plain = token.isascii() and token.isdecimal() and len(token) < 10
        entry: int | str | None = text if kind else int(token) if plain else _number(token)
        if entry in seen:
            yield "mask-repeated", start, end, "it stands in the list twice, and a repeated entry hides every device"
            return
        if entry is None or (kind and not text.startswith(kind)) or (isinstance(entry, int) and entry < 0):
            yield from _ending(raw, text, start, entries, entry)
            return
        if kind and not re.fullmatch(r"[0-9A-Za-z/-]+", text):
            yield "mask-unreadable", start, end, f"{_doubtful_uuid(token)}: it fits no device"
        elif not kind and not plain and (words := _doubtful(token)):
            yield "mask-unreadable", start, end, f"{words}; it is read as {quoted_number(int(entry))} alone"
        seen.add(entry)
        entries.append(entry)


def _number(token: str) -> int | None:
    """The number that *token* begins with, as torch reads it; None if it begins with none."""
    found = re.match(r"[+-]?(\d+)", token)
    # torch takes a superscript for one digit more, and `int()` then fails.
    if found is None or len(found[1]) > _MOST_DIGITS or token[found.end() : found.end() + 1].isdigit():
        return None
    try:
        return int(found[0])
    except ValueError:  # a lower limit is set in this process
        return None


def _ending(
    raw: str, text: str, start: int, entries: list[int | str], entry: int | str | None
) -> Iterator[tuple[str, int, int, str]]:
    """Yield the fault of the entry that ends the list, unless it ends it on purpose."""
    end = start + len(text)
    last = end == len(raw)
    if isinstance(entry, int):
        if entries and not last:
            yield "mask-unknown-device", start, end, "a negative number ends the list: what stands behind it is hidden"
        return
    token = text.strip()
    if not token and last:
        return  # blank, or a comma too many at the end: nothing is lost
    code, words = "mask-unreadable", _unreadable(token)
    uuid = token.startswith(("GPU-", "MIG-"))
    if uuid and token != text and not (entries and isinstance(entries[0], int)):
        words = "a blank before a UUID makes it unreadable"
    elif entries and (uuid or _number(token) is not None):
        code, words = "mask-mixed", "numbers, GPU- and MIG- UUIDs cannot stand in one list: the first kind counts"
    yield code, start, end, f"{words}; it and all that follow are hidden"


_DASH = r"[-\u2010-\u2015\u2212\uff0d]"  # that of the keyboard, and what a text program makes of it
_WORDS_FOR_NONE = {"none", "void", "nodevfiles", "no", "null", "nil", "false", "off", "disabled"}
_MISTAKES = (
    (r".*[\"'`]", "quotes are part of the value"),
    (r".*[\[\](){}]", "brackets are part of the value"),
    (r"(?i)cuda:?\d", "it is written like a torch device"),
    (r"(?i)(all|none|void)$", "that word belongs to NVIDIA_VISIBLE_DEVICES, which container runtimes read"),
    (r"(?i)nvidia\.com/", "that is a name of the container toolkit"),
    (r"(?i)nodevfiles$", "that is a scheduler's word for no device"),
    (r"(?i)(gpu|mig)-", "GPU- and MIG- are written in capitals"),
    (r"[+-]+$", "a sign without a number"),
    (r"[+-]{2}", "a number has one sign"),
    (r".*\$", "that variable was not replaced by its value"),
    ("(?!-)" + _DASH + r"\d", "that dash is no minus sign"),
    (r"$", "nothing stands between two commas"),
)
_DOUBTS = (
    (rf"\d+\s*({_DASH}|\.\.|\.{{3}})\s*\d+$", "ranges are not understood"),
    (r"[+-]?\d+\s+\S", "blanks do not separate entries"),
    (r"[+-]?\d+[;:|/+&\uff0c\u3001]", "only commas separate entries"),
    (r"[+-]?[0-9]*(?![0-9])\d", "only torch is known to read digits of another script"),
    (r"0[xX][0-9a-fA-F]+$", "hexadecimal numbers are not understood"),
    (r"[+-]?\d+\.", "an entry is a whole number"),
    (r"[0-9a-fA-F]{8}-", "a UUID begins with GPU- or MIG-"),
    (r".*\$", "a variable in it was not replaced by its value"),
    (r".*[\"'`]", "quotes are part of the value"),
    (r".*[\[\](){}]", "brackets are part of the value"),
)


def _unreadable(token: str) -> str:
    found = (words for mistake, words in _MISTAKES if re.match(mistake, token))
    return next(found, "it is neither a number nor a UUID")


def _doubtful(token: str) -> str | None:
    """What is wrong with an entry that begins with a number; None if it has a harmless suffix, as in ``1gpu``."""
    for doubt, words in _DOUBTS:
        if re.match(doubt, token):
            return words
    return None if re.match(r"[+-]?\d[\dA-Za-z]*$", token) else "something follows the number"


def _doubtful_uuid(token: str) -> str:
    """What is wrong with an entry that begins as a UUID, and holds what no UUID does; *token* is without its blanks."""
    if re.fullmatch(r"[0-9A-Za-z/-]+", token):
        return "a blank behind a UUID counts as part of it"
    if re.search(r"[\s;|&:+\uff0c\u3001]", token):
        return "only commas separate entries"
    return "a UUID has letters, digits and dashes alone"


def _intended(raw: str) -> str | None:
    """Guess what was meant by *raw*; None: that the variable had better be unset."""
    bare = raw.strip().strip("\"'`[](){} \t\r\n")
    if len(raw) > 48 * _MOST_REWRITTEN:
        return None
    if bare.lower() in _WORDS_FOR_NONE or re.match(_DASH + r"{1,2}\d+$", bare):
        return "-1"
    wanted: dict[int | str, None] = {}
    bare = re.sub(rf" ?({_DASH}|\.{{2,3}}) ?(?=\d)", r"\1", " ".join(bare.split()))
    if not re.search(r"(?i)(gpu|mig)-", bare):  # of a MIG instance, a slash is part of the name
        bare = re.sub(r"(?<=\d)[/+](?=\d)", ",", bare)
    for piece in re.split(r"[,;|&\s\"'`\[\](){}\uff0c\u3001]+", bare):
        wanted.update(dict.fromkeys(_meant(piece)))
        if len(wanted) > _MOST_REWRITTEN:
            return None
    kind = str if wanted and isinstance(next(iter(wanted)), str) else int
    kept = [str(entry) for entry in wanted if isinstance(entry, kind)]
    if kind is str:
        kept = [entry for entry in kept if entry[:4] == kept[0][:4]]
    return ",".join(kept) or None


def _meant(piece: str) -> list[int | str]:
    """What a piece of an unreadable mask stands for; nothing if that cannot be guessed."""
    if found := re.match(r"(?ai)(gpu|mig)-([0-9a-z][0-9a-z/-]*)$", piece):
        return [f"{found[1].upper()}-{found[2]}"]
    if re.match(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]+$", piece):
        return [f"GPU-{piece.lower()}"]  # as NVML writes them
    if found := re.match(rf"(\d{{1,4}})(?:{_DASH}|\.\.\.?)(\d{{1,4}})$", piece):
        first, last = int(found[1]), int(found[2])
        return list(range(first, last + 1)) or list(range(first, last - 1, -1))
    if found := re.match(r"0[xX]([0-9a-fA-F]{1,4})$", piece):
        return [int(found[1], 16)]
    if found := re.match(r"(?i)(?:cuda:?|gpu:?|nvidia\.com/gpu=)?\+?(\d{1,9})(?!\d)((?::\d{1,9}(?!\d))*)", piece):
        return [int(number) for number in (found[1] + found[2]).split(":")]
    return []
