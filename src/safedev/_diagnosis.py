"""A request, the reading it was judged by, and what was found."""

from __future__ import annotations

from dataclasses import dataclass

from safedev._launch import UNKNOWN
from safedev._text import counted, marked, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safedev._request import Request
    from safedev._snapshot import Snapshot
    from safedev._terms import Ordinal

OBSERVATIONS = frozenset({"one-device-per-rank"})
"""Codes of findings that tell what is, and no fault."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One reason, with one remedy, under a stable code.

    Attributes:
        code: Stable name of the reason; the documentation has a section for each.
        reason: What is so, with the values that show it.
        remedy: What to do; empty where there is nothing to do.
        suggestion: A device that is valid here, as ``cuda:1`` or ``cpu``; None: none is suggested.
        span: The part of the mask that it is about: its first character, from 0, and the one after its last.
    """

    code: str
    reason: str
    remedy: str = ""
    suggestion: str | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What became of a request, and why.

    Attributes:
        request: What was asked for.
        snapshot: What it was judged by. It holds the variables that were looked at, and no others.
        device: The device that the request gets, as ``cuda:1``; None: it cannot be had.
        ordinal: The ordinal that was meant, from 0; None where it is not known, or none was meant.
        remark: What is special about the answer: ``""``, ``"own"``, ``"doubt"``, ``"no-local-rank"``,
            ``"oversubscribed"`` or ``"unusable"``.
        findings: The reasons, most specific first.
    """

    request: Request
    snapshot: Snapshot
    device: str | None
    ordinal: Ordinal | None
    remark: str
    findings: tuple[Finding, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the request can be had as it is."""
        return self.device is not None

    def render(self) -> str:
        """The whole diagnosis as text; its first line stands alone."""
        lines = [_headline(self)]
        if asker := _asker(self):
            lines.append(f"  asked for by: {asker}")
        lines += _mask_lines(self)
        remedies = [finding.remedy for finding in self.findings]
        for place, finding in enumerate(self.findings):
            lines.append(f"  why: {finding.reason} [{finding.code}]")
            if finding.remedy and not _is_told(finding.remedy, remedies[:place], remedies):
                lines.append(f"  fix: {finding.remedy}")
        return "\n".join(lines)


def _is_told(remedy: str, before: Sequence[str], remedies: Sequence[str]) -> bool:
    """Whether another remedy says the same: one that stood *before*, or one that has this one among several."""
    return remedy in before or any(other.startswith(f"{remedy}, or ") for other in remedies)


def describe_visible(count: int, kind: str) -> str:
    """Say which devices there are, in a clause."""
    if count == 0:
        return f"no {'CUDA' if kind == 'cuda' else kind} device is visible"
    if count == 1:
        return f"{kind}:0 is the only visible device"
    return f"{counted(count, 'device')} are visible, {kind}:0 to {kind}:{count - 1}"


def _headline(diagnosis: Diagnosis) -> str:  # noqa: PLR0911 - a table of cases
    request, snapshot = diagnosis.request, diagnosis.snapshot
    other = request.kind == "accelerator"
    kind = request.type if other else "cuda"
    count = snapshot.device_count
    if other:
        count = snapshot.accelerator_count if request.type == snapshot.accelerator else 0
    elif not count and snapshot.accelerator_count and request.kind == "auto":
        kind, count = snapshot.accelerator, snapshot.accelerator_count
    visible = describe_visible(count, kind)
    if diagnosis.remark in {"doubt", "no-local-rank"} and diagnosis.device is not None:
        return f"{diagnosis.device} was chosen as the only visible device, and others may use it too"
    if diagnosis.device is not None:
        if diagnosis.device == request.spec:
            return f"{request.spec} is valid: {visible}"
        return f"{_meant(diagnosis)} is {diagnosis.device}: {visible}"
    if snapshot.refusal:
        return f"{_meant(diagnosis)} cannot be used: the driver refused it"
    if any(finding.code == "driver-unusable" for finding in diagnosis.findings):
        wanted = "no CUDA device can" if request.kind == "auto" else f"{_meant(diagnosis)} cannot"
        return f"{wanted} be used: CUDA cannot start in this process"
    if diagnosis.remark == "oversubscribed" and (launch := snapshot.launch) is not None:
        workers = launch.local_world_size
        crowd = f"{counted(workers, 'worker')} on this node" if workers else "the workers on this node"
        return f"no device for local rank {launch.local_rank}: {crowd} share {counted(count, 'visible device')}"
    if diagnosis.remark == "unusable":
        has = counted(snapshot.physical_count, "CUDA device") if snapshot.physical_count else "CUDA devices"
        return f"no CUDA device can be used: this process sees none, although the machine has {has}"
    return f"{_meant(diagnosis)} is invalid: {visible}"


def _meant(diagnosis: Diagnosis) -> str:
    if diagnosis.request.kind not in {"auto", "cuda"}:
        return diagnosis.request.spec
    if diagnosis.device is not None:
        return "the device of this process"
    if diagnosis.ordinal is None:
        return diagnosis.request.spec
    return f"{'cuda' if diagnosis.snapshot.device_count else diagnosis.snapshot.accelerator}:{diagnosis.ordinal}"


def _asker(diagnosis: Diagnosis) -> str:
    """Who asked: the local rank, with its variable, or nobody but the caller."""
    launch = diagnosis.snapshot.launch
    if launch is None or diagnosis.request.kind not in {"auto", "cuda", "accelerator"}:
        return ""
    value = diagnosis.snapshot.variables.get(launch.source)
    shown = f"{launch.source}={quoted(value)}" if value is not None else f"local rank {launch.local_rank}"
    return shown if launch.launcher == UNKNOWN else f"{shown} ({launch.launcher})"


def _mask_lines(diagnosis: Diagnosis) -> list[str]:
    """The mask, with the entry marked that the first finding about it names."""
    mask = diagnosis.snapshot.mask
    if mask.raw is None:
        return []
    lead = f"  mask: {mask.variable}="
    span = next((finding.span for finding in diagnosis.findings if finding.span is not None), None)
    if span is None:
        return [lead + quoted(mask.raw)]
    shown, carets = marked(mask.raw, *span)
    return [lead + shown, " " * len(lead) + carets]
