"""Environments that no launcher makes: cut short, mixed, stale, unreadable."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from safedev.errors import LocalRankError
from safedev.launchers import LAUNCHERS, EnvLauncher, Launch, detect_launch

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "data" / "launches.jsonl").read_text().splitlines()]
ENVIRONS = [{**launch["environ"], **process["environ"]} for launch in RECORDED for process in launch["processes"]]
ROWS = [launcher for launcher in LAUNCHERS if isinstance(launcher, EnvLauncher)]
LOCAL_RANKS = sorted({row.local_rank for row in ROWS})
FIELDS = ("local_rank", "local_world_size", "rank", "world_size", "node_rank")
NAMES = sorted({name for row in ROWS for field in FIELDS for name in row.variables(field)} | {"TORCHELASTIC_RUN_ID"})

recorded = st.sampled_from(ENVIRONS)
texts = st.one_of(
    st.integers(-2, 9).map(str),
    st.text(max_size=8),
    st.sampled_from(["", "0,1,2,3", "2(x2)", "4294967290", "9" * 30, "\udc80", "²", "0" * 5000]),
)
made_up = st.dictionaries(st.sampled_from([*NAMES, "SLURM_STEP_ID"]), texts, max_size=12)


def answer(environ: dict[str, str]) -> Launch | str | None:
    """The launch, None, or the error's text. Any other error fails the test."""
    try:
        return detect_launch(environ)
    except LocalRankError as error:
        first = str(error).splitlines()[0]
        assert "unset" in first
        assert first.isprintable()
        return str(error)


def holds(environ: dict[str, str], found: Launch | str | None) -> None:
    """What must be true of any answer: the number stands in a local rank's variable, and the numbers agree."""
    if isinstance(found, Launch):
        assert found.source in LOCAL_RANKS
        assert environ[found.source].isdigit()
        assert found.local_rank == int(environ[found.source])
        assert found.local_rank < (found.local_world_size or found.local_rank + 1)
        assert (found.rank or 0) < (found.world_size or (found.rank or 0) + 1)
        assert all(name in environ for _, name in found.sources)


@given(environ=recorded, data=st.data())
def test_the_order_of_the_variables_does_not_matter(environ: dict[str, str], data: st.DataObject) -> None:
    """
    An environment in any order gives the same answer.
    """
    shuffled = dict(data.draw(st.permutations(sorted(environ.items()))))

    assert answer(environ) == answer(shuffled)


@given(environ=recorded, data=st.data())
def test_an_environment_cut_short_gives_no_wrong_number(environ: dict[str, str], data: st.DataObject) -> None:
    """
    With some of its variables gone, an environment gives a local rank that stands in one of the launchers'
    variables, or none, or a LocalRankError.
    """
    kept = data.draw(st.sets(st.sampled_from(sorted(environ)))) if environ else set()
    cut = {name: environ[name] for name in sorted(kept)}

    holds(cut, answer(cut))


@given(stale=recorded, environ=recorded)
def test_a_stale_environment_under_another_gives_no_wrong_number(
    stale: dict[str, str], environ: dict[str, str]
) -> None:
    """
    One launch's variables over another's left-overs give a local rank of one of the two, or an error that says so.
    """
    mixed = {**stale, **environ}

    holds(mixed, answer(mixed))


@settings(max_examples=500)
@given(environ=made_up)
def test_any_text_gets_an_answer(environ: dict[str, str]) -> None:
    """
    Whatever the variables hold, the answer is a launch that agrees with them, none, or a LocalRankError.
    """
    holds(environ, answer(environ))


@given(environ=recorded, others=st.dictionaries(st.text().map("OTHER_".__add__), st.text(), max_size=5))
def test_other_variables_do_not_matter(environ: dict[str, str], others: dict[str, str]) -> None:
    """
    Variables that no launcher sets change nothing.
    """
    assert answer(environ) == answer({**others, **environ})


@given(environ=made_up)
def test_each_launcher_reads_any_text(environ: dict[str, str]) -> None:
    """
    Each row alone gives a launch under its own name, none, or a LocalRankError under it.
    """
    for row in ROWS:
        found = answer_of(row, environ)

        assert row.name == (found.launcher if found else row.name)


def answer_of(row: EnvLauncher, environ: dict[str, str]) -> Launch | LocalRankError | None:
    try:
        return row.detect(environ)
    except LocalRankError as error:
        return error
