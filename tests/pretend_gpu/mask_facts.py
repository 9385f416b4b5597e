"""What a mask means to the driver and to torch, row by row: the table that the pretend driver is held to.

Each row says how its answer is known:

- ``documented``: NVIDIA's guide says so,
  https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html (MIG:
  https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html)
- ``reported``: somebody saw a driver do it; mostly torch's own tests, whose author ran them against driver 525.60.13,
  https://github.com/pytorch/pytorch/pull/92315
- ``unsure``: nobody is known to have asked a driver. The row says what torch's parser makes of it. ``tests/gpu`` asks.

What torch makes of a mask was run (``torch/cuda/__init__.py``, 2.0.1 to 2.14.1 alike), and is run again by
`test_pretend_driver.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

GPUS = 4
DOCUMENTED, REPORTED, UNSURE = "documented", "reported", "unsure"
FAILS = "ValueError"  # torch's parser raises it, out of device_count()


@dataclass(frozen=True)
class Row:
    """A mask, what it leaves of four GPUs (physical indices, in order), and how that is known."""

    id: str
    mask: str | None
    driver: tuple[int, ...]
    known: str
    torch: int | str | None = None  # torch's count where it is not the driver's


def uuid(gpu: int) -> str:
    """UUID of a pretend GPU."""
    return f"GPU-{(gpu + 1) * 0x01010101:08x}-0000-4000-8000-{gpu:012x}"


ALL = (0, 1, 2, 3)
A, B, C = uuid(0), uuid(1), uuid(2)

MASKS = (
    # Numbers
    Row("unset", None, ALL, DOCUMENTED),
    Row("empty", "", (), DOCUMENTED),
    Row("order-is-kept", "2,1", (2, 1), DOCUMENTED),
    Row("minus-one-ends-the-list", "0,2,-1,1", (0, 2), DOCUMENTED),
    Row("minus-one-alone", "-1", (), DOCUMENTED),
    Row("number-too-large-ends-the-list", "0,4,1", (0,), DOCUMENTED),
    Row("number-too-large-first", "4,0", (), DOCUMENTED),
    Row("repeated", "0,0", (), REPORTED),
    Row("repeated-later", "0,1,2,1", (), REPORTED),
    Row("repeated-after-too-large", "0,1,9,1", (), UNSURE),
    Row("too-large-repeated", "0,9,9", (), UNSURE),
    Row("repeated-after-minus-one", "0,-1,0", (0,), UNSURE),
    Row("repeated-with-plus", "1,+1", (), UNSURE),
    Row("repeated-with-zero", "1,01", (), UNSURE),
    Row("repeated-as-minus-zero", "0,-0", (), UNSURE),
    # Blanks and signs
    Row("blank-after-comma", "0, 1, 2", (0, 1, 2), REPORTED),
    Row("blank-first", " 1", (1,), UNSURE),
    Row("blank-last", "1 ", (1,), UNSURE),
    Row("blank-before-comma", "1 ,2", (1, 2), UNSURE),
    Row("tab-first", "\t1", (1,), UNSURE),
    Row("newline-last", "1\n", (1,), UNSURE),
    Row("newline-first", "\n1", (1,), UNSURE),
    Row("signs", "2, +3, -0, 1", (2, 3, 0, 1), REPORTED),
    Row("plus-plus", "++1", (), UNSURE, FAILS),
    Row("plus-alone", "+", (), UNSURE, FAILS),
    Row("minus-alone", "-", (), UNSURE, FAILS),
    Row("minus-minus", "--1", (), UNSURE, FAILS),
    Row("minus-blank", "- 1", (), UNSURE, FAILS),
    Row("one-blank", " ", (), UNSURE),
    # What stands behind a number
    Row("suffix", "1gpu2,2ampere", (1, 2), REPORTED),
    Row("range", "0-2", (0,), REPORTED),
    Row("fraction", "1.5", (1,), UNSURE),
    Row("colon", "0:1", (0,), UNSURE),
    Row("semicolon", "0;1", (0,), UNSURE),
    Row("blanks-for-commas", "0 1 2", (0,), UNSURE),
    Row("underscore", "1_0", (1,), UNSURE),
    Row("leading-zero", "01", (1,), UNSURE),
    Row("hexadecimal", "0x1", (0,), UNSURE),
    Row("octal-or-too-large", "010", (), UNSURE),
    Row("eight-with-zero", "08", (), UNSURE),
    # What is no number
    Row("words", "one,two,3", (), REPORTED),
    Row("word-ends-the-list", "3,2,two,1", (3, 2), REPORTED),
    Row("no-dev-files", "NoDevFiles", (), REPORTED),
    Row("all", "all", (), REPORTED),
    Row("none", "none", (), REPORTED),
    Row("void", "void", (), REPORTED),
    Row("torch-name", "cuda:0", (), REPORTED),
    Row("cdi-name", "nvidia.com/gpu=0", (), REPORTED),
    Row("brackets", "[0]", (), REPORTED),
    Row("double-quotes", '"0"', (), UNSURE),
    Row("single-quotes", "'0,1'", (), UNSURE),
    Row("comma-last", "0,1,", (0, 1), UNSURE),
    Row("comma-first", ",0", (), UNSURE),
    Row("comma-alone", ",", (), UNSURE),
    Row("comma-twice", "0,,1", (0,), UNSURE),
    Row("two-to-the-32", "4294967296", (), UNSURE),
    Row("two-to-the-64", "18446744073709551616", (), UNSURE),
    Row("minus-two-to-the-32", "-4294967296", (), UNSURE),
    Row("full-width-digit", "\uff10", (), UNSURE, 1),
    Row("superscript-digit", "²", (), UNSURE, FAILS),
    Row("no-break-space", "\u00a01", (), UNSURE, 1),
    Row("ten-thousand-entries", ",".join(map(str, range(10_000))), ALL, UNSURE),
    Row("blanks-without-end", " " * 10_000 + "1", (1,), UNSURE),
    # UUIDs
    Row("uuid", C, (2,), DOCUMENTED),
    Row("uuids-in-order", f"{C},{A}", (2, 0), DOCUMENTED),
    Row("unique-prefix", "GPU-03", (2,), DOCUMENTED),
    Row("ambiguous-prefix", "GPU-0", (), REPORTED),
    Row("ambiguous-prefix-ends-the-list", f"{C},GPU-0,{A}", (2,), REPORTED),
    Row("unknown-uuid", "GPU-ffffffff", (), REPORTED),
    Row("unknown-uuid-ends-the-list", f"{C},GPU-ffffffff,{A}", (2,), REPORTED),
    Row("uuid-repeated", f"{A},{A}", (), REPORTED),
    Row("uuid-repeated-by-prefixes", f"GPU-01,{B},GPU-0101", (), REPORTED),
    Row("uuid-repeated-after-unknown", f"{A},GPU-ff,GPU-ff", (), UNSURE),
    Row("number-after-uuid", f"{C}, 0", (2,), REPORTED),
    Row("uuid-after-number", f"0,{C}", (0,), UNSURE),
    Row("blank-before-uuid", f" {C}", (), UNSURE),
    Row("blank-before-second-uuid", f"{C}, {A}", (2,), UNSURE),
    Row("blank-after-uuid", f"{C} ", (), UNSURE),
    Row("uuid-in-capitals", C.upper(), (2,), UNSURE),  # no letters in it
    Row("uuid-without-dashes", "GPU-" + C[4:].replace("-", ""), (), UNSURE),
    Row("uuid-in-small-letters", C.lower(), (), UNSURE),
    Row("uuid-too-long", C + "0", (), UNSURE),
    Row("uuid-in-braces", "{" + C + "}", (), UNSURE),
    Row("gpu-dash-alone", "GPU-", (), UNSURE),
    Row("bare-uuid-is-its-digits", "01010101-0000-4000-8000-000000000000", (), UNSURE),
    Row("bare-uuid-is-its-first-digit", "1c55aa77-0000-4000-8000-000000000000", (1,), UNSURE),
)


@dataclass(frozen=True)
class RuleRow:
    """A mask that one of ``PRETEND_MASK_RULES`` reads the other way."""

    rule: str
    mask: str
    without: tuple[int, ...]
    with_it: tuple[int, ...]


RULES = (
    RuleRow("base-0", "0x1", (0,), (1,)),
    RuleRow("late-repeats", "0,1,9,1", (), (0, 1)),
    RuleRow("late-repeats", f"{A},GPU-ff,GPU-ff", (), (0,)),
    RuleRow("uuid-blanks", f" {C} , {A}", (), (2, 0)),
    RuleRow("uuid-case", f"gpu-{C[4:]}", (), (2,)),
)


@dataclass(frozen=True)
class MigRow:
    """A mask on a machine of three GPUs, of which GPU 0 holds instances 1, 2 and (twice) 5, and GPU 1 holds 1.

    What is left is named as ``GPU`` or ``GPU:GI/CI``: by drivers before R570, and from then on.
    """

    id: str
    mask: str | None
    before_570: tuple[str, ...]
    since_570: tuple[str, ...]
    known: str


MIG_GPUS = 3
MIG_SETTING = "0:1/0,0:-,0:2/0,0:5/0,0:5/1,1:1/0"


def mig_uuid(gpu: int, gi: int, ci: int) -> str:
    """UUID of a pretend MIG device."""
    return f"MIG-{(gpu + 1) * 0x01010101:08x}-0000-5000-8000-{gpu:04x}{gi:04x}{ci:04x}"


M1, M2, M5, M5B, N1 = mig_uuid(0, 1, 0), mig_uuid(0, 2, 0), mig_uuid(0, 5, 0), mig_uuid(0, 5, 1), mig_uuid(1, 1, 0)

MIG_MASKS = (
    MigRow("unset", None, ("0:1/0",), ("0:1/0", "0:2/0", "0:5/0", "1:1/0", "2"), DOCUMENTED),
    MigRow("one", M2, ("0:2/0",), ("0:2/0",), DOCUMENTED),
    MigRow("older-spelling", f"MIG-{A}/2/0", ("0:2/0",), ("0:2/0",), DOCUMENTED),
    MigRow("older-spelling-abbreviated", "MIG-GPU-01010101/2/0", ("0:2/0",), ("0:2/0",), UNSURE),
    MigRow("two-on-one-gpu", f"{M2},{M1}", ("0:2/0",), ("0:2/0", "0:1/0"), REPORTED),
    MigRow("two-on-two-gpus", f"{N1},{M1}", ("1:1/0",), ("1:1/0", "0:1/0"), REPORTED),
    MigRow("two-of-one-instance", f"{M5B},{M5}", ("0:5/1",), ("0:5/1",), UNSURE),
    MigRow("repeated", f"{M1},{M1}", (), (), UNSURE),
    MigRow("unknown", "MIG-ffffffff", (), (), UNSURE),
    MigRow("prefix", "MIG-02", ("1:1/0",), ("1:1/0",), UNSURE),
    MigRow("ambiguous-prefix", "MIG-01", (), (), UNSURE),
    MigRow("number-of-a-divided-gpu", "1", ("1:1/0",), ("1:1/0",), REPORTED),
    MigRow("number-of-a-gpu-in-many-parts", "0", ("0:1/0",), ("0:1/0", "0:2/0", "0:5/0"), UNSURE),
    MigRow("uuid-of-a-divided-gpu", A, ("0:1/0",), ("0:1/0", "0:2/0", "0:5/0"), UNSURE),
    MigRow("number-of-a-whole-gpu", "2", ("2",), ("2",), UNSURE),
    MigRow("whole-gpu-and-instance", f"{C},{M1}", ("2",), ("2", "0:1/0"), UNSURE),
)


@dataclass(frozen=True)
class AnyMachineRow:
    """A mask for a machine of any number of GPUs; ``{0}`` is the UUID of the one that is ordinal 0 without a mask.

    ``left`` is how many devices it leaves: none, one (that ordinal 0) or all.
    """

    id: str
    mask: str | None
    left: str
    known: str


ANY_MACHINE = (
    AnyMachineRow("unset", None, "all", DOCUMENTED),
    AnyMachineRow("empty", "", "none", DOCUMENTED),
    AnyMachineRow("zero", "0", "one", DOCUMENTED),
    AnyMachineRow("minus-one", "-1", "none", DOCUMENTED),
    AnyMachineRow("minus-one-ends-the-list", "0,-1", "one", DOCUMENTED),
    AnyMachineRow("too-large", "9999", "none", DOCUMENTED),
    AnyMachineRow("too-large-ends-the-list", "0,9999", "one", DOCUMENTED),
    AnyMachineRow("repeated", "0,0", "none", REPORTED),
    AnyMachineRow("repeated-after-too-large", "0,9999,0", "none", UNSURE),
    AnyMachineRow("too-large-repeated", "0,9999,9999", "none", UNSURE),
    AnyMachineRow("repeated-with-plus", "0,+0", "none", UNSURE),
    AnyMachineRow("repeated-with-zero", "0,00", "none", UNSURE),
    AnyMachineRow("repeated-as-minus-zero", "0,-0", "none", UNSURE),
    AnyMachineRow("minus-zero", "-0", "one", REPORTED),
    AnyMachineRow("plus-zero", "+0", "one", REPORTED),
    AnyMachineRow("plus-plus", "++0", "none", UNSURE),
    AnyMachineRow("plus-alone", "+", "none", UNSURE),
    AnyMachineRow("minus-alone", "-", "none", UNSURE),
    AnyMachineRow("blank-first", " 0", "one", UNSURE),
    AnyMachineRow("blank-last", "0 ", "one", UNSURE),
    AnyMachineRow("tab-first", "\t0", "one", UNSURE),
    AnyMachineRow("newline-first", "\n0", "one", UNSURE),
    AnyMachineRow("newline-last", "0\n", "one", UNSURE),
    AnyMachineRow("one-blank", " ", "none", UNSURE),
    AnyMachineRow("suffix", "0gpu", "one", REPORTED),
    AnyMachineRow("range", "0-2", "one", REPORTED),
    AnyMachineRow("fraction", "0.0", "one", UNSURE),
    AnyMachineRow("colon", "0:0", "one", UNSURE),
    AnyMachineRow("leading-zero", "00", "one", UNSURE),
    AnyMachineRow("hexadecimal", "0x9999", "one", UNSURE),
    AnyMachineRow("no-octal", "0,08888", "one", UNSURE),
    AnyMachineRow("word", "all", "none", REPORTED),
    AnyMachineRow("double-quotes", '"0"', "none", UNSURE),
    AnyMachineRow("comma-last", "0,", "one", UNSURE),
    AnyMachineRow("comma-first", ",0", "none", UNSURE),
    AnyMachineRow("comma-twice", "0,,0", "one", UNSURE),
    AnyMachineRow("two-to-the-31", "2147483648", "none", UNSURE),
    AnyMachineRow("two-to-the-32", "4294967296", "none", UNSURE),
    AnyMachineRow("two-to-the-64", "18446744073709551616", "none", UNSURE),
    AnyMachineRow("minus-two-to-the-32", "-4294967296", "none", UNSURE),
    AnyMachineRow("full-width-digit", "\uff10", "none", UNSURE),
    AnyMachineRow("no-break-space", "\u00a00", "none", UNSURE),
    AnyMachineRow("uuid", "{0}", "one", DOCUMENTED),
    AnyMachineRow("uuid-repeated", "{0},{0}", "none", REPORTED),
    AnyMachineRow("unknown-uuid", "GPU-ffffffff-ffff", "none", REPORTED),
    AnyMachineRow("unknown-uuid-ends-the-list", "{0},GPU-ffffffff-ffff", "one", REPORTED),
    AnyMachineRow("number-after-uuid", "{0},0", "one", REPORTED),
    AnyMachineRow("uuid-after-number", "0,{0}", "one", UNSURE),
    AnyMachineRow("blank-before-uuid", " {0}", "none", UNSURE),
    AnyMachineRow("blank-after-uuid", "{0} ", "none", UNSURE),
    AnyMachineRow("uuid-too-long", "{0}0", "none", UNSURE),
)
