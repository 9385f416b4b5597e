"""``python -m benchmarks``: measures, prints tables in Markdown, and says which limits are held."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import rig as pretend
from benchmarks import auditing, calling, importing, leaving
from benchmarks.measure import ROOT, library
from benchmarks.report import as_data, machine, table, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.report import Section

SECTIONS = ("import", "rank", "select", "first", "growth", "left", "audit", "gpu")
PRETENDED = frozenset({"rank", "select", "first", "growth", "left", "audit"})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all but gpu if none")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is measured, in turns (15)")
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions with valgrind in place of CPU time; slow"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here, too")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a limit is not held")
    options = parser.parse_args(arguments)
    wanted = options.sections or [name for name in SECTIONS if name != "gpu"]
    if unknown := set(wanted) - set(SECTIONS):
        parser.error(f"no section is called {', '.join(sorted(unknown))}")
    if (why := pretend.missing()) and PRETENDED & set(wanted):
        parser.error(f"there can be no pretend GPUs here: {why}")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    print(f"{machine()}\n", flush=True)
    sections = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        for one in measured(Path(name), wanted, options.rounds, by_instructions=options.instructions):
            print(table(one), flush=True)
            sections.append(one)
    print(verdict(sections))
    if options.json:
        options.json.write_text(json.dumps(as_data(sections), indent=1) + "\n")
    return int(options.strict and any(row.missed for section in sections for row in section.rows))


def measured(folder: Path, wanted: Sequence[str], rounds: int, *, by_instructions: bool) -> Iterator[Section]:
    (folder / "machine").mkdir()
    rig = pretend.Rig(folder / "machine") if PRETENDED & set(wanted) else None
    shim = library(folder) if by_instructions else None
    if by_instructions and shim is None:
        raise SystemExit("--instructions needs valgrind, its headers and a C compiler")
    if "import" in wanted:
        yield importing.section(rounds, by_instructions=by_instructions)
    if rig is not None:
        calls = calling.Calls(rig, rounds, shim)
        makers: dict[str, Callable[[], Section]] = {
            "rank": lambda: calling.local_rank(calls),
            "select": lambda: calling.device(calls),
            "first": lambda: calling.first_call(calls),
            "growth": lambda: calling.sizes(calls),
            "left": lambda: leaving.section(rig),
            "audit": lambda: auditing.section(rig, rounds),
        }
        for name, make in makers.items():
            if name in wanted:
                yield make()
    if "gpu" in wanted:
        yield calling.on_this_machine(rounds)


if __name__ == "__main__":
    raise SystemExit(main())
