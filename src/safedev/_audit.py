"""The command: shows what is known of the devices, and tells by its exit status whether all is sound."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import warnings
from dataclasses import asdict

import safedev
from safedev._collect import collect, level_of, torch_missing
from safedev._report import SCHEMA, plain, render
from safedev._rules import untold_rank
from safedev.errors import DeviceSpecError, LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safedev._diagnosis import Finding
    from safedev._report import Report

_SECONDS, _LONGEST = 20.0, 86400.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Those of the command line; None: the ones that this process was started with.

    Returns:
        The exit status: 0 sound, 1 a finding that would stop or mislead a run, 130 interrupted.

    Raises:
        SystemExit: Status 2, for wrong usage; 0, for ``--help`` and ``--version``.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "explain" and (options.strict or not options.allocate or options.timeout is not None):
        parser.error("--strict, --no-allocate and --timeout belong to the report: explain tries no device")
    try:
        with warnings.catch_warnings():
            # torch runs without it, and says so when it is imported: nothing that the reader of a report asked for.
            warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
            if options.command == "explain":
                report = _explain(options.spec)
                text = report["text"]
            else:
                seconds = _SECONDS if options.timeout is None else options.timeout
                report = collect(seconds=seconds, allocate=options.allocate, strict=options.strict)
                text = _render(report)
    except DeviceSpecError as error:
        return parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    return int(report["status"]) if _print(json.dumps(report) if options.json else text) else 1


def _explain(spec: str) -> Report:
    """One request, judged as ``diagnose`` does."""
    report: Report = {"schema": SCHEMA, "status": 1, "request": spec, "device": None}
    if (missing := torch_missing()) is not None:
        return {**report, **_stopped(missing, f"{missing.reason} [{missing.code}]\n  fix: {missing.remedy}")}
    try:
        case = safedev.diagnose(spec)
    except LocalRankError as error:
        return {**report, **_stopped(untold_rank(error), str(error))}
    report.update(status=int(not case.is_valid), device=case.device, text=_lines(case.render()))
    findings = [{"level": level_of(finding.code, case), **asdict(finding)} for finding in case.findings]
    return {**report, "findings": findings}


def _stopped(finding: Finding, words: str) -> Report:
    """What a report on a request tells that could not be judged."""
    return {"text": _lines(words), "findings": [{"level": "fault", **asdict(finding)}]}


def _lines(text: str) -> str:
    return "\n".join(map(plain, text.split("\n")))


def _print(text: str) -> bool:
    """Print the report; False where it could not be written."""
    if sys.stdout is None:  # closed before this program was started
        return True
    try:
        sys.stdout.write(f"{text}\n")  # in one piece: the workers of a launch print at the same time
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        if isinstance(error, BrokenPipeError):  # whoever reads has read enough
            return True
        sys.stderr.write(f"safedev: the report could not be written: {error}\n")
        return False
    return True


def _render(report: Report) -> str:
    if sys.stdout is None or not sys.stdout.isatty():
        return render(report)
    plainly = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or sys.platform == "win32"
    return render(report, width=shutil.get_terminal_size().columns, colour=not plainly)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="safedev",
        description="Show which devices this process can use, and try each of them.",
        epilog="Exit status: 0 sound; 1 a finding that would stop or mislead a run; 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=f"safedev {safedev.__version__}")
    parser.add_argument("--json", action="store_true", help="print one JSON object, on one line")
    parser.add_argument(
        "--no-allocate",
        dest="allocate",
        action="store_false",
        help="try no device; start no driver where torch can count without it",
    )
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="limit of a trial (20)")
    parser.add_argument("--strict", action="store_true", help="let warnings count for the exit status")
    commands = parser.add_subparsers(dest="command", title="instead of the report")
    explain = commands.add_parser("explain", help="judge one request, such as cuda:3, and try no device")
    explain.add_argument("spec", metavar="SPEC", help="a device, as select_device() takes it")
    explain.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!a} is no number of seconds above 0 and at most {_LONGEST:g}")
    return seconds
