"""The reasons that lie in ROCm's masks, each read by its own grammar."""

from __future__ import annotations

import re

from safedev._diagnosis import Finding
from safedev._mask import CUDA_VISIBLE_DEVICES, parse_mask
from safedev._mask_rules import wants_cuda
from safedev._rocm import HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, hip_end, hip_entries, rocr_entries, stacked
from safedev._text import counted, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safedev._diagnosis import Diagnosis
    from safedev._snapshot import Snapshot


def stacked_masks(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    snapshot, count = case.snapshot, case.snapshot.device_count
    if not snapshot.hip_build or not wants_cuda(case):
        return
    outer, hip = (snapshot.variables.get(name) for name in (ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES))
    name = HIP_VISIBLE_DEVICES if hip else CUDA_VISIBLE_DEVICES
    inner = hip or snapshot.variables.get(CUDA_VISIBLE_DEVICES) or snapshot.mask.raw
    if outer is None or not inner:
        return
    shown, lost = stacked(outer, inner)
    # Each shows what its masks leave, at most: fewer may be all that the machine has.
    fewer = count == len(snapshot.mask.entries) < shown
    longer = ROCR_VISIBLE_DEVICES in snapshot.count_evidence  # torch refuses one of HIP's with more entries
    shows = counted(shown, "device") + " at most" * bool(shown)
    if lost or shown < count or fewer or longer:
        yield Finding(
            code="masks-stacked",
            reason=f"{ROCR_VISIBLE_DEVICES}={quoted(outer)} acts first, and {name}={quoted(inner)} counts, from 0, "
            f"inside what it leaves: ROCm shows {shows}, and torch counts {count}",
            remedy=_unstacked(outer, name, inner, empty=hip == ""),
        )


def _unstacked(outer: str, name: str, inner: str, *, empty: bool) -> str:
    """What to do about two masks; *empty*: HIP's is set, and empty, which hides all from torch."""
    meant = [(ROCR_VISIBLE_DEVICES, _as_meant(outer)), (name, _as_meant(inner))]
    # -1 is written for HIP: torch counts one device under ROCr's.
    told = [f"{HIP_VISIBLE_DEVICES if text == '-1' else one}={text}" for one, text in meant if text]
    if not told:
        return "unset both, or list numbers in one of them, each once"
    one_alone = "set one of them alone"
    if told != [f"{ROCR_VISIBLE_DEVICES}={outer}", f"{name}={inner}"]:
        one_alone += f" ({' or '.join(dict.fromkeys(told))})"
    elif empty:
        one_alone = f"unset {HIP_VISIBLE_DEVICES}, and set one of the others alone"
    inside = f", or count in {HIP_VISIBLE_DEVICES} from 0 inside what {ROCR_VISIBLE_DEVICES} leaves"
    return one_alone + inside * bool(rocr_entries(outer))


def rocm_reads_otherwise(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    """Tell both counts where torch and ROCm read one mask differently, as far as its text alone shows it."""
    snapshot, count = case.snapshot, case.snapshot.device_count
    if not snapshot.hip_build or not wants_cuda(case) or snapshot.refusal:
        return
    rocr, hip = map(snapshot.variables.get, (ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES))
    inner = hip or snapshot.variables.get(CUDA_VISIBLE_DEVICES)
    if rocr is not None and inner:
        return  # of masks that are stacked another rule tells
    if snapshot.mask.raw == "" and count == 0:
        yield from _empty(snapshot.mask.variable, rocr, inner)
    elif rocr is not None:
        entries = rocr_entries(rocr)
        if count > len(entries):
            rule = "ROCr reads the entries, and torch counts the commas alone, if it reads that mask at all"
            read = count <= rocr.count(",") + 1
            yield _read_otherwise(snapshot, ROCR_VISIBLE_DEVICES, rocr, len(entries), rule if read else "")
    elif inner:
        yield from _of_hip(snapshot, HIP_VISIBLE_DEVICES if hip else CUDA_VISIBLE_DEVICES, inner)


def _empty(name: str, rocr: str | None, inner: str | None) -> Iterator[Finding]:
    """Tell of an empty mask, under which torch counts 0; *inner* is that of CUDA, which ROCm then takes for HIP's."""
    shows, use = "shows all that no other hides", "unset it"
    here = rocr_entries(rocr) if rocr is not None else hip_entries(inner) if inner else [0]
    if inner:
        shows = f"reads {CUDA_VISIBLE_DEVICES}={quoted(inner)} in its place and shows {len(here)} at most"
        use = f"{name}={_as_meant(inner)} to use them" if _as_meant(inner) else "list numbers in it, each once"
    if here:
        yield Finding(
            code="count-disagrees",
            reason=f"torch counts 0 devices under {name}='', and ROCm, which takes an empty mask as unset, {shows}",
            remedy=f"write {name}=-1 to hide every device, or {use}",
        )


def _of_hip(snapshot: Snapshot, name: str, raw: str) -> Iterator[Finding]:
    """Tell of one mask of HIP's, or of CUDA's in its place, that torch and HIP read differently."""
    count, mask, entries, end = snapshot.device_count, parse_mask(raw), hip_entries(raw), hip_end(raw)
    span: tuple[int, int] | None
    if count > len(mask.entries) and count > len(entries):
        rule, span = "", None
    elif count > len(entries) and end is not None:
        span = mask.span_of(end)
        ending = quoted(raw[slice(*span)])
        rule = f"ROCm ends the list at {ending}, since it takes plain numbers, without blanks, signs or leading zeros"
    elif count == len(mask.entries) < len(entries):
        span = mask.defects[-1].span if mask.defects else None
        rule = _RULES.get(mask.defects[-1].code if mask.defects else "", _ANY_UUID)
    else:
        return
    yield _read_otherwise(snapshot, name, raw, len(entries), rule, span if raw == snapshot.mask.raw else None)


_ANY_UUID = "ROCm takes whatever has GPU- in it for a UUID"
_RULES = {
    "mask-mixed": "torch ends the list where numbers and UUIDs meet, and ROCm takes both in one list",
    "mask-repeated": "torch takes an entry that comes again to hide every device, and ROCm skips it",
}


def _read_otherwise(
    snapshot: Snapshot, name: str, raw: str, here: int, rule: str, span: tuple[int, int] | None = None
) -> Finding:
    """Tell that torch's count under a mask is not ROCm's, *here*, by which *rule*; empty: torch does not read it."""
    plain = _as_meant(raw)
    if not rule:
        remedy = f"use {HIP_VISIBLE_DEVICES} in its place, which it reads" + (f" ({plain})" if plain else "")
    elif plain == "-1":
        remedy = f"unset it; {HIP_VISIBLE_DEVICES}=-1 hides every device"
    elif plain:
        remedy = f"write {name}={plain}"
    elif _is_mixed(raw):
        remedy = f"name all devices in {name} in one way: numbers, or UUIDs"
    else:
        remedy = f"unset {name}, or list numbers in it, each once"
    reason = (
        f"torch counts {counted(snapshot.device_count, 'device')} under {name}={quoted(raw)}, and ROCm shows "
        f"{f'{here} at most' if here else 'none'}: {rule or 'this torch does not read that mask'}"
    )
    return Finding(code="count-disagrees", reason=reason, remedy=remedy, span=span)


def _as_meant(raw: str) -> str:
    """What *raw* was meant to say, in a text that torch, HIP and ROCr read alike; empty: that is not known.

    ``-1``, which hides every device, is the one text that torch does not read alike where it is ROCr's.
    """
    mask = parse_mask(raw)
    if mask.hides_all:
        return "-1"
    text = (mask.defects[-1].instead or "") if mask.defects else ",".join(map(str, mask.entries))
    if text == "-1":
        return text
    alike = len(hip_entries(text)) == len(rocr_entries(text)) == text.count(",") + 1
    return text if alike and len(text) <= _LONGEST and not _is_mixed(raw) else ""


_LONGEST = 1000  # characters of a mask that is written anew


def _is_mixed(raw: str) -> bool:
    """Whether a mask has UUIDs, and entries that are none."""
    tokens = [token for token in re.split(r"[,;|&\s]+", raw) if token]
    return 0 < sum("GPU-" in token.upper() for token in tokens) < len(tokens)
