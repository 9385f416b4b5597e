"""The audit's report as data: what was read, what the trials showed, and how that was judged."""

from __future__ import annotations

import os
import platform
import threading
from dataclasses import asdict, replace

import safedev
from safedev import _nvml, launchers
from safedev._diagnosis import OBSERVATIONS, Finding, judge
from safedev._mask import CUDA_VISIBLE_DEVICES, parse_mask
from safedev._report import SCHEMA, USABLE, verdict
from safedev._request import request_for
from safedev._resolve import resolve
from safedev._snapshot import Snapshot, Variables, visible_devices
from safedev._text import counted, quoted
from safedev._trial import try_devices
from safedev.errors import LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safedev._diagnosis import Diagnosis
    from safedev._report import Report
    from safedev.launchers import Launch

    Levelled = tuple[str, Finding]  # "fault", "warning" or "observation", and what it is about
    Vitals = dict[int, tuple[int, int, str]]

WARNINGS = frozenset({"device-slow", "launcher-doubt", "order-ambiguous", "stale-local-rank"})
"""Codes of findings that neither stop a run nor mislead it by themselves."""

# What a device's state means, and what to do about it.
_TROUBLES = {
    "hung": (
        "it did not answer within {:g} s",
        "see whether nvidia-smi answers, and the kernel's log (dmesg | grep -i xid); take the device out of the mask",
    ),
    "busy": (
        "another process holds it, or its compute mode lets no process in",
        "nvidia-smi -q -d COMPUTE,PIDS tells which; end that process, or use another device",
    ),
    "out-of-memory": ("its memory is taken", "end the processes that hold it (nvidia-smi), or use another device"),
    "no-kernel-image": (
        "this build of torch has no kernels for it",
        "install a build of torch that has: https://pytorch.org/get-started/locally/",
    ),
    "absent": (
        "torch counts it, and the driver does not show it",
        "run nvidia-smi: the device may be lost, not permitted to this container, or in MIG mode",
    ),
    "lost": (
        "it seems to be lost",
        "see the kernel's log (dmesg | grep -i xid); reset it (nvidia-smi --gpu-reset), or restart the machine",
    ),
    "corrupt": (
        "other bytes came back from it than were sent",
        "do not use it: its memory, or the bus, is at fault (nvidia-smi -q -d ECC)",
    ),
    "failed": ("it refuses", "run nvidia-smi; if that shows no fault, use the device alone in a small program"),
    "slow": (
        "it took more than half of the time limit",
        "keep the driver loaded (nvidia-smi -pm 1), or see what else uses the device (nvidia-smi)",
    ),
}


def collect(*, seconds: float = 20.0, allocate: bool = True, strict: bool = False) -> Report:
    """Read and judge all that the report tells; the object that ``--json`` prints.

    Args:
        seconds: How long counting the devices may take, and each trial.
        allocate: Whether each visible device is tried in a child process.
        strict: Whether a finding of level ``warning`` makes the status 1.
    """
    environ = Variables(os.environ)
    case, version, trouble = _read(environ, seconds)
    snapshot, count = case.snapshot, case.snapshot.device_count
    driver, serves, vitals = _nvml.vitals() if version is None or not trouble else ("", None, {})
    trials = try_devices(range(count + 1), seconds) if allocate and count else []
    devices = list(_devices(snapshot, trials, vitals))
    found = [*trouble, *_of_trials(devices, trials, snapshot, seconds), *_of_case(case, missing=version is None)]
    beyond = trials[-1] if trials else None
    serious = {"fault", "warning"} if strict else {"fault"}
    report: Report = {
        "schema": SCHEMA,
        "verdict": "",
        "status": int(any(level in serious for level, _ in found)),
        "device": None if version is None else case.device,
        "versions": {
            "safedev": safedev.__version__,
            "python": platform.python_version(),
            "torch": version,
            "torch_cuda": snapshot.cuda_build,
            "torch_hip": snapshot.hip_build,
            "driver": driver or None,
            "driver_cuda": f"{serves // 1000}.{serves % 1000 // 10}" if serves else None,
        },
        "mask": asdict(snapshot.mask),
        "variables": environ.read(),
        "device_count": count,
        "physical_count": snapshot.physical_count or len(vitals) or None,
        "accelerator": snapshot.accelerator or None,
        "accelerator_count": snapshot.accelerator_count,
        "devices": devices,
        "past_end": beyond and {"device": f"cuda:{count}", "refused": _refused(beyond), "said": beyond["said"]},
        "too_large": {"device": "cuda:256", "refused": resolve(request_for("cuda:256"), snapshot)[0] is None},
        "launch": _launch(snapshot.launch),
        "launch_error": str(snapshot.launch_error) if snapshot.launch_error is not None else None,
        "other_launchers": list(_other_launchers(environ, snapshot.launch)),
        "findings": [{"level": level, **asdict(finding)} for level, finding in found],
        "unseen": list(_unseen(snapshot, driver, devices)),
    }
    return {**report, "verdict": verdict(report)}


def level_of(code: str, case: Diagnosis) -> str:
    """How much a finding of a diagnosis weighs: ``fault``, ``warning`` or ``observation``."""
    if code in OBSERVATIONS:
        return "warning" if case.remark == "doubt" else "observation"
    return "warning" if code in WARNINGS else "fault"


def _read(environ: Variables, seconds: float) -> tuple[Diagnosis, str | None, list[Levelled]]:
    """What a process without a wish gets; the version of torch; and what kept this from being read in full."""
    request = request_for(None)
    try:
        from safedev import _torch
    except Exception as error:  # noqa: BLE001 - a broken torch fails to be imported in many ways
        words = quoted(f"{type(error).__name__}: {error}", 160)
        remedy = "install torch: https://pytorch.org/get-started/locally/ has the command"
        missing = Finding(code="torch-missing", reason=f"torch cannot be imported: {words}", remedy=remedy)
        machine = _nvml.inventory()
        number = _nvml.count() if machine is None else len(machine)
        return (
            judge(request, replace(_blind(environ), physical=machine, physical_count=number)),
            None,
            [("fault", missing)],
        )
    snapshot = _within(seconds, lambda: _torch.take_snapshot(request, environ))
    if snapshot is None:
        silent = Finding(
            code="driver-unusable",
            reason=f"counting the devices did not end within {seconds:g} s: NVML, or the driver, does not answer",
            remedy="see whether nvidia-smi answers, and what the kernel's log says (dmesg); restart the machine if not",
        )
        return judge(request, _blind(environ)), _torch.version(), [("fault", silent)]
    return judge(request, _torch.look_closer(request, snapshot, environ, os.environ, deep=True)), _torch.version(), []


def _of_trials(
    devices: Sequence[Report], trials: Sequence[Report], snapshot: Snapshot, seconds: float
) -> Iterator[Levelled]:
    """What the trials showed; one finding for all the devices that failed alike."""
    if trials and not any("driver_count" in trial or trial["state"] == "hung" for trial in trials):
        refusal = replace(snapshot, refusal=trials[0]["said"], refused="cuda:0", device_count=0)
        yield from (("fault", f) for f in judge(request_for("cuda:0"), refusal).findings if f.code == "driver-unusable")
        return
    if trials and not _refused(trials[-1]):
        reason = f"torch counts {counted(len(devices), 'device')}, and the driver shows more"
        yield "fault", Finding(code="out-of-range", reason=reason, remedy="run nvidia-smi, and this command again")
    alike: dict[tuple[str, str], list[str]] = {}
    for device in devices:
        alike.setdefault((device["state"], device["said"]), []).append(f"cuda:{device['ordinal']}")
    first = next((f"cuda:{device['ordinal']}" for device in devices if device["state"] in USABLE), None)
    for (state, said), names in alike.items():
        if state in _TROUBLES:
            words, remedy = _TROUBLES[state]
            reason = f"{', '.join(names)}: {words.format(seconds)}" + (f" ({quoted(said, 160)})" if said else "")
            code, level = ("device-slow", "warning") if state == "slow" else ("device-unusable", "fault")
            yield level, Finding(code=code, reason=reason, remedy=remedy, suggestion=first)


def _of_case(case: Diagnosis, *, missing: bool) -> Iterator[Levelled]:
    """What the reading shows, before any device is used."""
    snapshot = case.snapshot
    if snapshot.launch_error is not None:
        words, *rest = str(snapshot.launch_error).split("\n")
        level = "fault" if case.device is None or missing else "warning"
        yield level, Finding(code="no-local-rank", reason=words, remedy="; ".join(line.strip() for line in rest))
    for finding in case.findings:
        if not missing or finding.code.startswith("mask-"):
            yield level_of(finding.code, case), finding
    if snapshot.launch is not None and snapshot.launch.caution:
        yield "warning", Finding(code="launcher-doubt", reason=snapshot.launch.caution)
    if case.device == "cpu" and not missing:  # which is in order, and seldom what a run is started for
        known = {finding.code for finding in case.findings}
        for finding in judge(request_for("cuda"), snapshot).findings:
            if finding.code not in known:
                yield "warning", finding


def _devices(snapshot: Snapshot, trials: Sequence[Report], vitals: Vitals) -> Iterator[Report]:
    machine = {device.uuid: device for device in snapshot.physical or () if device.uuid}
    expected = visible_devices(snapshot)
    for ordinal in range(snapshot.device_count):
        trial = trials[ordinal] if trials else {"state": "untried", "said": "", "seconds": None}
        device = machine.get(str(trial.get("uuid"))) or (expected[ordinal] if expected else None)
        free, total, capability = vitals.get(device.index if device else -1, (None, None, None))
        yield {
            "ordinal": ordinal,
            "physical_index": device.index if device else None,
            "state": trial["state"],
            "said": trial["said"],
            "seconds": trial["seconds"],
            "name": trial.get("name") or (device.name if device else ""),
            "uuid": trial.get("uuid") or (device.uuid if device else ""),
            "bus": device.bus if device else "",
            "memory_free": trial.get("memory_free") if free is None else free,
            "memory_total": trial.get("memory_total") if total is None else total,
            "capability": trial.get("capability") or capability,
        }


def _refused(trial: Report) -> bool:
    return trial["state"] not in USABLE


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
        if error or (found is not None and (launch is None or launcher.name != launch.launcher)):
            yield {"launcher": launcher.name, "local_rank": found.local_rank if found else None, "error": error}


def _unseen(snapshot: Snapshot, driver: str, devices: Sequence[Report]) -> Iterator[str]:
    if not driver and devices:
        yield "the driver's version and the machine's devices: NVML does not answer"
    elif driver and snapshot.physical is None:
        yield "which devices of the machine these are: safedev[nvml] is not installed"
    if any(device["state"] == "untried" for device in devices):
        yield "whether the devices work: none was tried"


def _blind(environ: Variables) -> Snapshot:
    """What can be known without asking torch."""
    launch, error = None, None
    try:
        launch = launchers.detect_launch(environ)
    except LocalRankError as problem:
        error = problem
    mask = parse_mask(environ.get(CUDA_VISIBLE_DEVICES))
    return Snapshot(mask=mask, device_count=0, launch=launch, launch_error=error, variables=environ.read())


def _within(seconds: float, question: Callable[[], Snapshot]) -> Snapshot | None:
    """The answer; None if it does not come in time."""
    answers: list[Snapshot] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(question())
        except Exception as error:  # noqa: BLE001 - raised below, where it can be seen
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    for error in errors:
        raise error
    return answers[0] if answers else None
