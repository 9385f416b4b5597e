"""The audit's report as data: what was read, what the trials showed, and how that was judged."""

from __future__ import annotations

import importlib
import os
import pickle
import platform
from dataclasses import asdict
from importlib.util import find_spec

import safedev
from safedev import _isolation, _nvml, launchers
from safedev._child import can_fork, in_children
from safedev._closer import look_closer
from safedev._diagnosis import OBSERVATIONS, Finding
from safedev._host_rules import look_further
from safedev._launch import UNKNOWN
from safedev._mask import CUDA_VISIBLE_DEVICES, parse_mask
from safedev._mask_rules import lister
from safedev._quick import changed
from safedev._report import SCHEMA, USABLE, verdict
from safedev._request import request_for
from safedev._resolve import resolve
from safedev._rules import judge
from safedev._sharing import read_launch
from safedev._snapshot import Snapshot, Variables, visible_devices
from safedev._text import counted, quoted
from safedev._trial import TROUBLES, past_end, try_devices
from safedev.errors import LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safedev._diagnosis import Diagnosis
    from safedev._report import Report
    from safedev.launchers import Launch

    Versions = tuple[str | None, str | None, str | None]
    Levelled = tuple[str, Finding]  # "fault", "warning" or "observation", and what it is about
    Vitals = dict[int, tuple[int, int, str]]

WARNINGS = frozenset({"count-disagrees", "launcher-doubt", "order-ambiguous", "stale-local-rank"})
"""Codes of a diagnosis that neither stop a run nor mislead it by themselves."""

MADE_OF_TEXT = ("launcher-doubt", "mask-", "no-local-rank")
"""How the codes begin of what is true whatever torch would have told."""


def collect(*, seconds: float = 20.0, allocate: bool = True, strict: bool = False) -> Report:
    """Read and judge all that the report tells; the object that ``--json`` prints.

    Args:
        seconds: How long counting the devices may take, and each trial.
        allocate: Whether each visible device is tried in a child process.
        strict: Whether a finding of level ``warning`` makes the status 1.
    """
    environ = Variables(os.environ)
    case, of_torch, trouble = _read(environ, seconds)
    snapshot, count, known = case.snapshot, case.snapshot.device_count, trouble is None
    trials = try_devices(range(count + 1), seconds) if allocate and count else []
    driver, serves, vitals = _nvml.vitals() if known or of_torch[0] is None else ("", None, {})
    devices = list(_devices(snapshot, trials, vitals))
    found = [("fault", trouble)] if trouble is not None else list(_of_trials(devices, trials, case, seconds))
    found += _of_case(case, known=known)
    physical = len(vitals) if snapshot.physical_count is None and driver else snapshot.physical_count
    seen = snapshot.isolation or _isolation.Isolation()
    serious = {"fault", "warning"} if strict else {"fault"}
    report: Report = {
        "schema": SCHEMA,
        "verdict": "",
        "status": int(any(level in serious for level, _ in found)),
        "device": case.device if known else None,
        "versions": _versions(of_torch, driver, serves),
        "mask": asdict(snapshot.mask),
        "device_count": count if known else None,
        "physical_count": physical,
        "isolation": {**asdict(seen), "evidence": _isolation.evidence(seen, physical)},
        "accelerator": snapshot.accelerator or None,
        "accelerator_count": snapshot.accelerator_count,
        "devices": devices,
        "past_end": past_end(trials),
        "too_large": {"device": "cuda:256", "refused": resolve(request_for("cuda:256"), snapshot)[0] is None},
        "launch": _launch(snapshot.launch),
        "launch_error": str(snapshot.launch_error) if snapshot.launch_error is not None else None,
        "other_launchers": list(_other_launchers(environ, snapshot.launch)),
        "variables": {**environ.read(), **snapshot.variables},
        "findings": [{"level": level, **asdict(finding)} for level, finding in found],
        "unseen": list(_unseen(snapshot, driver, devices)),
    }
    return {**report, "verdict": verdict(report)}


def _versions(of_torch: Versions, driver: str, serves: int | None) -> Report:
    torch, cuda, hip = of_torch
    return {
        "safedev": safedev.__version__,
        "python": platform.python_version(),
        "torch": torch,
        "torch_cuda": cuda,
        "torch_hip": hip,
        "driver": driver or None,
        "driver_cuda": f"{serves // 1000}.{serves % 1000 // 10}" if serves else None,
    }


def level_of(code: str, case: Diagnosis, *, known: bool = True) -> str:
    """How much a finding of a diagnosis weighs: ``fault``, ``warning`` or ``observation``.

    Args:
        code: That of the finding.
        case: The diagnosis that it is of.
        known: Whether the devices have been counted: a local rank is needed where they might be several.
    """
    if code in OBSERVATIONS:
        return "warning" if case.remark == "doubt" else "observation"
    if code == "count-disagrees" and case.snapshot.hip_build and case.snapshot.mask.defects:
        return "fault"  # that of the mask, told by ROCm's grammar
    if code == "no-local-rank":
        return "warning" if known and case.is_valid else "fault"
    return "warning" if code in WARNINGS else "fault"


def torch_missing() -> Finding | None:
    """Import torch; tell why that cannot be done, or None."""
    try:
        importlib.import_module("safedev._torch")
    except Exception as error:  # noqa: BLE001 - a broken torch fails to be imported in many ways
        words = quoted(f"{type(error).__name__}: {error}", 160)
        remedy = "install torch: https://pytorch.org/get-started/locally/ has the command"
        return Finding(code="torch-missing", reason=f"torch cannot be imported: {words}", remedy=remedy)
    return None


def _read(environ: Variables, seconds: float) -> tuple[Diagnosis, Versions, Finding | None]:
    """What a process without a wish gets; the versions of torch; and what kept that from being read."""
    request, missing = request_for(None), torch_missing()
    if missing is not None:
        machine = _nvml.inventory()
        number = _nvml.count() if machine is None else len(machine)
        blind = changed(_blind(environ), physical=machine, physical_count=number)
        return judge(request, blind), (None, None, None), missing
    from safedev import _torch

    def question() -> Diagnosis:
        snapshot = _torch.take_snapshot(request, environ)
        return judge(request, look_closer(request, snapshot, environ, os.environ, deep=True))

    case = _asked(question, seconds)
    if not isinstance(case, str):
        return case, _torch.versions(), None
    silent = Finding(
        code="driver-unusable",
        reason=f"the devices could not be counted, since {case}: NVML, or the driver, does not work",
        remedy="see whether nvidia-smi answers, and what the kernel's log says (dmesg); restart the machine if not",
    )
    return judge(request, _blind(environ)), _torch.versions(), silent


def _asked(question: Callable[[], Diagnosis], seconds: float) -> Diagnosis | str:
    """The answer; or why there is none, in a clause.

    It is asked in a child process, where there can be one. Torch may have to start the driver to count, and a process
    that has started it cannot fork those that try the devices.
    """
    if not can_fork():
        return question()

    def work(writer: int) -> None:
        try:
            answer: Diagnosis | Exception = question()
        except Exception as error:  # noqa: BLE001 - raised below, where it can be seen
            answer = error
        with os.fdopen(writer, "wb", closefd=False) as pipe:
            pickle.dump(answer, pipe)

    text, ending = in_children([(work, "")], seconds)[0]
    if ending is None:
        return f"no answer came within {seconds:g} s"
    if ending or not text:
        return f"the process that counted died ({ending or 'exit status 0'})"
    answer: Diagnosis | Exception = pickle.loads(text)  # noqa: S301 - our own child wrote it
    if isinstance(answer, Exception):
        raise answer
    return answer


def _of_trials(
    devices: Sequence[Report], trials: Sequence[Report], case: Diagnosis, seconds: float
) -> Iterator[Levelled]:
    """What the trials showed; one finding for all the devices that failed alike."""
    dead = [trial["said"] for trial in trials if trial["state"] == "no-driver"]
    never = bool(dead) and not any(device["state"] in USABLE for device in devices)
    if never:  # one device that works shows that the driver can start
        refusal = changed(case.snapshot, refusal=dead[0], refused=("cuda:0",), device_count=0)
        yield from (("fault", f) for f in judge(request_for("cuda:0"), refusal).findings if f.code == "driver-unusable")
    expected = any(finding.code == "count-disagrees" for finding in case.findings)
    if trials and trials[-1]["state"] in USABLE and not expected:
        reason = f"torch counts {counted(len(devices), 'device')} before the driver starts, and the driver shows more"
        yield "warning", Finding(code="count-disagrees", reason=reason, remedy="name devices by UUID in the mask")
    alike: dict[tuple[str, str], list[str]] = {}
    for device in devices:
        alike.setdefault((device["state"], device["said"]), []).append(f"cuda:{device['ordinal']}")
    first = next((f"cuda:{device['ordinal']}" for device in devices if device["state"] in USABLE), None)
    for (state, said), names in alike.items():
        if state in TROUBLES and not (never and state == "no-driver"):
            words, remedy = TROUBLES[state]
            reason = f"{', '.join(names)}: {words.format(seconds)}" + (f" ({quoted(said, 160)})" if said else "")
            if state == "slow":
                yield "warning", Finding(code="device-slow", reason=reason, remedy=remedy)
            else:
                yield "fault", Finding(code="device-unusable", reason=reason, remedy=remedy, suggestion=first)


def _of_case(case: Diagnosis, *, known: bool) -> Iterator[Levelled]:
    """What the reading shows, before any device is used; the mask and the launcher alone, where torch told nothing."""
    snapshot = case.snapshot
    for finding in case.findings:
        if known or finding.code.startswith(MADE_OF_TEXT):
            yield level_of(finding.code, case, known=known), finding
    if known and case.device == "cpu":  # which is in order, and seldom what a run is started for
        codes = {finding.code for finding in case.findings}
        for finding in judge(request_for("cuda"), snapshot).findings:
            if finding.code not in codes:
                remedy = _no_device(snapshot) if finding.remedy == look_further(snapshot) else finding.remedy
                yield "warning", changed(finding, remedy=remedy)


def _no_device(snapshot: Snapshot) -> str:
    shows = lister(snapshot)
    return f"if the machine has one: see whether {shows} lists it, and whether the container was given it (--gpus all)"


def _devices(snapshot: Snapshot, trials: Sequence[Report], vitals: Vitals) -> Iterator[Report]:
    machine = {device.uuid: device for device in snapshot.physical or () if device.uuid}
    # The driver tells the UUID of an instance without its kind.
    parts = {f"GPU-{uuid[4:]}": device for device in snapshot.physical or () for uuid in device.instances or ()}
    expected = visible_devices(snapshot)
    for ordinal in range(snapshot.device_count):
        trial = trials[ordinal] if trials else {"state": "untried", "said": "", "seconds": None}
        uuid = str(trial.get("uuid") or "")
        part, device = parts.get(uuid), machine.get(uuid) or (expected[ordinal] if expected else None)
        if trial["state"] == "absent" or (uuid and device and device.mig):
            device = None  # which of those that were expected the driver does not show, or shows in parts, is not known
        device = part or device
        free, total, capability = vitals.get(device.index if device and not part else -1, (None, None, None))
        yield {
            "ordinal": ordinal,
            "physical_index": device.index if device else None,
            "state": trial["state"],
            "said": trial["said"],
            "seconds": trial["seconds"],
            "name": trial.get("name") or (device.name if device else ""),
            "uuid": f"MIG-{uuid[4:]}" if part else uuid or (device.uuid if device else ""),
            "bus": device.bus if device else "",
            "memory_free": trial.get("memory_free") if free is None else free,
            "memory_total": trial.get("memory_total") if total is None else total,
            "capability": trial.get("capability") or capability,
        }


def _launch(launch: Launch | None) -> Report | None:
    if launch is None:
        return None
    names = ("launcher", "local_rank", "local_world_size", "rank", "world_size", "node_rank", "source")
    return {name: getattr(launch, name) for name in names}


def _other_launchers(environ: Variables, launch: Launch | None) -> Iterator[Report]:
    """The other launchers whose variables are there."""
    for launcher in launchers.LAUNCHERS:
        try:
            found, error = launcher.detect(environ), None
        except LocalRankError as problem:
            found, error = None, str(problem).split("\n")[0]
        known = launcher.name in {UNKNOWN, launch.launcher if launch is not None else UNKNOWN}
        if not known and (error or found is not None):
            yield {"launcher": launcher.name, "local_rank": found.local_rank if found else None, "error": error}


def _unseen(snapshot: Snapshot, driver: str, devices: Sequence[Report]) -> Iterator[str]:
    if driver and devices and snapshot.physical is None:
        why = "safedev[nvml] is not installed" if find_spec("pynvml") is None else "nvidia-ml-py gave no answer"
        yield f"which devices of the machine these are: {why}"
    if any(device["state"] == "untried" for device in devices):
        yield "whether the devices work: none was tried"


def _blind(environ: Variables) -> Snapshot:
    """What can be known without asking torch."""
    mask, seen = parse_mask(environ.get(CUDA_VISIBLE_DEVICES)), _isolation.read()
    launch, error, _ = read_launch(mask, 0, environ)
    return Snapshot(
        mask=mask, device_count=0, launch=launch, launch_error=error, isolation=seen, variables=environ.read()
    )
