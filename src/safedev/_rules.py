"""The reasons why a device cannot be had, or is not the one that was meant."""

from __future__ import annotations

from safedev import _host_rules, _mask_rules, _mig_rules, _rocm_rules
from safedev._diagnosis import Diagnosis, Finding, describe_visible
from safedev._mask_rules import codes, first, lister, use_one_of, wants_cuda
from safedev._quick import changed, quickly
from safedev._resolve import resolve
from safedev._text import counted, quoted, quoted_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safedev._request import Request
    from safedev._snapshot import Snapshot
    from safedev.errors import LocalRankError

    Rule = Callable[[Diagnosis, Sequence[Finding]], Iterator[Finding]]


def _refused(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    snapshot = case.snapshot
    if not snapshot.refusal:
        return
    said = quoted(snapshot.refusal, 300)
    if not snapshot.refused[-1].startswith("cuda"):
        yield Finding(
            code="device-unusable",
            reason=f"the device is there and refuses: {said}",
            remedy="use another device, or see what its driver's own tools say",
            suggestion="cpu",
        )
        return
    if "out of memory" in snapshot.refusal:  # so it is there, whoever has told the count
        yield Finding(
            code="device-unusable",
            reason=f"the device is there and refuses: {said}",
            remedy=f"run {lister(snapshot)} to see which processes hold its memory, and end them; "
            f"or use {'another device' if first(snapshot) else 'the CPU'}",
            suggestion=first(snapshot) or "cpu",
        )
        return
    if snapshot.driver_count is None:
        # CUDA's runtime asks the driver once; what it then saw under a mask that hid all holds for the whole process.
        hidden = "if a mask hid every device when CUDA was first asked, start the program anew; else "
        yield Finding(
            code="driver-unusable",
            reason=f"the CUDA driver did not start: {said}",
            remedy=hidden
            * ("No CUDA GPUs are available" in snapshot.refusal)
            + "run nvidia-smi: if it fails, or shows an older CUDA than torch was built for"
            f" ({snapshot.cuda_build}), update the driver, or install a build of torch for that CUDA",
            suggestion="cpu",
        )
        return
    if case.ordinal is not None and case.ordinal >= snapshot.driver_count:
        said = f"the driver shows {counted(snapshot.driver_count, 'device')}, and NVML had counted more"
    yield Finding(
        code="device-unusable",
        reason=f"the device is there and refuses: {said}",
        remedy=f"run {lister(snapshot)} to see whether another process holds it in exclusive mode, or it is lost; "
        f"or use {'another device' if first(snapshot) else 'the CPU'}",
        suggestion=first(snapshot) or "cpu",
    )


def _forked(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    if case.snapshot.forked and wants_cuda(case):
        yield Finding(
            code="driver-unusable",
            reason="this process was forked after its parent had started CUDA, and cannot use CUDA at all",
            remedy='start processes with the "spawn" or "forkserver" method, or fork before CUDA starts',
            suggestion="cpu",
        )


def _global_rank(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    launch, count = case.snapshot.launch, case.snapshot.device_count
    if case.request.kind != "ordinal" or case.device is not None or launch is None or launch.rank is None:
        return
    own = case.snapshot.sharing is not None and case.snapshot.sharing.kind == "own"
    local = 0 if own else launch.local_rank
    if launch.rank == case.request.ordinal and launch.rank not in {launch.local_rank, local} and local < count:
        yield Finding(
            code="global-rank",
            reason=f"{launch.rank} is the rank of this process in the whole job, {launch.local_rank} its local rank",
            remedy=f"use cuda:{local}: the local rank, not the rank, tells the device",
            suggestion=f"cuda:{local}",
        )


def _one_device_per_rank(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    launch, sharing = case.snapshot.launch, case.snapshot.sharing
    if sharing is None or not case.snapshot.device_count or not wants_cuda(case):
        return
    if case.remark == "doubt" and launch is not None:
        yield Finding(
            code="one-device-per-rank",
            reason=f"local rank {launch.local_rank} sees one device: either it was given that device for itself, or "
            f"its siblings share it ({sharing.reason})",
            remedy="if each has its own, all is well"
            + (": name cuda:0 to silence this" if case.device is not None else "")
            + "; if they share it, start fewer workers, or show each of them the devices of the node",
            suggestion=first(case.snapshot),
        )
        return
    missed = case.device is None and not case.snapshot.refusal
    if sharing.kind == "own" and (
        case.remark == "own" or (missed and launch is not None and case.request.ordinal == launch.local_rank)
    ):
        yield Finding(
            code="one-device-per-rank",
            reason=f"this process has devices of its own, so its ordinal is 0 whatever its rank: {sharing.reason}",
            remedy="" if case.remark == "own" else "use cuda:0, or let every worker see all devices of the node",
            suggestion=first(case.snapshot),
        )


def _oversubscribed(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    launch, count = case.snapshot.launch, case.snapshot.device_count or case.snapshot.accelerator_count
    if case.remark != "oversubscribed" or launch is None:
        return
    workers = f"{launch.local_world_size} workers" if launch.local_world_size else f"local rank {launch.local_rank}"
    why = f": {case.snapshot.sharing.reason}" if case.snapshot.sharing is not None else ""
    yield Finding(
        code="oversubscribed",
        reason=f"{workers} and {counted(count, 'device')} on this node{why}",
        remedy=f"start {counted(count, 'worker')} on this node, or make more devices visible; to share on purpose, "
        "pass fallback=safedev.policies.share",
    )


def _stale_local_rank(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    launch = case.snapshot.launch
    if launch is not None and not launch.confirmed and case.request.kind in {"auto", "cuda"}:
        yield Finding(
            code="stale-local-rank",
            reason=f"{launch.source} is set, and no launcher that counts its workers is around: it may be left over",
            remedy=f"unset {launch.source} if nothing launched this process",
        )


def _no_local_rank(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    error = case.snapshot.launch_error
    if error is not None and case.request.kind in {"auto", "cuda", "accelerator"}:
        yield untold_rank(error)


def untold_rank(error: LocalRankError) -> Finding:
    """The finding that the local rank cannot be told, as *error* tells it."""
    words = error.problem.split("\n")[0]
    reason, colon, remedy = words.rpartition(": ")  # the last one: a value that is quoted may have one too
    return Finding(code="no-local-rank", reason=reason if colon else words, remedy=remedy if colon else "")


def _launcher_doubt(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    launch = case.snapshot.launch
    if launch is not None and launch.caution and case.request.kind in {"auto", "cuda", "accelerator"}:
        reason, _fix, remedy = launch.caution.partition("\n  fix: ")
        yield Finding(code="launcher-doubt", reason=reason, remedy=remedy)


def _not_visible(case: Diagnosis, findings: Sequence[Finding]) -> Iterator[Finding]:
    snapshot, found = case.snapshot, case.snapshot.found
    if case.request.kind != "uuid" or case.device is not None or codes(findings) & _mask_rules.REFUSALS:
        return
    wanted = case.request.uuid.lower()
    hidden = [device.uuid for device in snapshot.physical or () if device.uuid.lower().startswith(wanted)]
    if codes(findings) & {"mask-too-late", "mask-not-in-force"}:
        reason, remedy = "no device that the driver shows has it", ""
    elif found is None:
        reason, remedy = "nobody could tell the UUIDs of the visible devices", "use an ordinal"
    elif len(found) > 1:
        fits = ", ".join(f"cuda:{n}" for n in found[:8])
        reason, remedy = f"it fits {len(found)} devices: {fits}", "give more of the UUID"
    elif snapshot.mask.raw is not None and len(hidden) == 1:
        reason = "the machine has that device, and the mask hides it"
        entries = [
            str(entry) for entry in snapshot.mask.entries if str(entry).startswith("GPU-")
        ]  # a mask holds one kind
        wider = ",".join([*entries[: snapshot.device_count], hidden[0]])
        remedy = f"write {snapshot.mask.variable}={wider}, where the mask is set"
    else:
        lists = "rocm-smi --showuniqueid" if snapshot.hip_build else "nvidia-smi -L"
        reason, remedy = "no visible device has it", f"{lists} lists the UUIDs of the machine"
    yield Finding(code="not-visible", reason=reason, remedy=remedy, suggestion=first(snapshot))


def _no_such_accelerator(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    request, snapshot = case.request, case.snapshot
    if request.kind != "accelerator" or case.device is not None or case.remark or snapshot.refusal:
        return
    there = snapshot.accelerator_count if request.type == snapshot.accelerator else 0
    if there:
        reason = f"{describe_visible(there, request.type)}, and {request.ordinal} is asked for"
    else:
        reason = f"this build of torch, or this machine, has no {request.type} device"
    yield Finding(
        code="no-such-accelerator",
        reason=reason,
        remedy="use a device that is there" if there else "use another device, or install the build that drives it",
        suggestion=f"{request.type}:0" if there else "cpu",
    )


def _negative(case: Diagnosis, _: Sequence[Finding]) -> Iterator[Finding]:
    if case.request.ordinal is not None and case.request.ordinal < 0:
        yield Finding(
            code="negative-ordinal",
            reason=f"{quoted_number(case.request.ordinal)} is below 0: ordinals count from 0, and a negative one is "
            "never the last device (torch's set_device ignores it)",
            remedy=f"{use_one_of(case.snapshot)}; give 'cpu' if no GPU was meant",
            suggestion=first(case.snapshot),
        )


RULES: tuple[Rule, ...] = (
    _refused,
    _forked,
    _host_rules.old_driver,
    _host_rules.build_without_cuda,
    _host_rules.nothing_there,
    _mask_rules.too_late,
    _mask_rules.not_in_force,
    _rocm_rules.stacked_masks,
    _rocm_rules.rocm_reads_otherwise,
    _mask_rules.mask_defects,
    _mask_rules.one_device_twice,
    _mask_rules.unknown_entry,
    _mask_rules.hides_all,
    _mig_rules.mig,
    _mig_rules.divided,
    _negative,
    _mask_rules.physical_index,
    _global_rank,
    _stale_local_rank,
    _oversubscribed,
    _one_device_per_rank,
    _no_local_rank,
    _not_visible,
    _no_such_accelerator,
    _host_rules.out_of_range,
    _host_rules.nothing_visible,
    _launcher_doubt,
    _mask_rules.misspelled,
    _mask_rules.order_ambiguous,
)
"""Most specific first; the last ones speak only where nothing more specific is known, or beside it."""

_diagnosis_of = quickly(Diagnosis)


def judge(request: Request, snapshot: Snapshot) -> Diagnosis:
    """Judge *request* by *snapshot*, and nothing else."""
    device, ordinal, remark = resolve(request, snapshot)
    if device in snapshot.refused:
        device = None
    bare = _diagnosis_of(request=request, snapshot=snapshot, device=device, ordinal=ordinal, remark=remark, findings=())
    findings: list[Finding] = []
    for rule in RULES:
        findings += rule(bare, findings)
    return changed(bare, findings=tuple(findings))
