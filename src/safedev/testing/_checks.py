"""Checks for what others add to safedev: a launcher, a policy."""

from __future__ import annotations

import os

from safedev._text import quoted
from safedev.testing._launched import launched_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safedev._diagnosis import Diagnosis
    from safedev.launchers import Launch, Launcher
    from safedev.policies import Fallback, FallbackPolicy


_GARBLED = ("x1", "-7", "1.0", "٣", "9" * 5000)
"""What is no number of a launch; ``int()`` takes some of it, and raises for the rest."""


def _ranks() -> set[str]:
    """Variables that hold a rank in the whole job, or the number of a node, and under no launcher a local rank."""
    from safedev._launcher_table import TABLE

    told = {name for row in TABLE for field in ("rank", "node_rank") for name in row.variables(field)}
    return told.difference(row.local_rank for row in TABLE)


def check_launcher(launcher: Launcher, *, environ: Mapping[str, str], local_rank: int) -> None:
    """Check that a launcher reads its own environment, believes no other, and raises nothing but ``LocalRankError``.

    Each variable that its launch names as a source is given values that are no numbers, or that do not agree. One that
    is known to hold the rank in the whole job, or the number of a node, is no source of a local rank.

    Args:
        launcher: What ``safedev.launchers.register_launcher`` is to be given.
        environ: The environment of one of its processes, as it was recorded.
        local_rank: The local rank of that process, from 0; best not 0, which is too easily right.

    Raises:
        AssertionError: It does not; the text says what is missing.

    Example:
        >>> from safedev.launchers import EnvLauncher
        >>> acme = EnvLauncher(name="acme", local_rank="ACME_LOCAL_RANK", requires=("ACME_JOB",))
        >>> check_launcher(acme, environ={"ACME_LOCAL_RANK": "1", "ACME_JOB": "7"}, local_rank=1)
    """
    for missing in _missing(launcher, dict(environ), local_rank):
        raise AssertionError(f"launcher {getattr(launcher, 'name', launcher)!r}: {missing}")


def _missing(launcher: Launcher, environ: dict[str, str], local_rank: int) -> Iterator[str]:
    """Yield what is wrong; what comes first may be the reason of what follows."""
    if not isinstance(getattr(launcher, "name", None), str) or not launcher.name:
        yield "it has no name: give it one, as text"
    if not callable(getattr(launcher, "detect", None)):
        yield "it has no method detect(environ)"
    if (launch := _ask(launcher, {}, "in an empty environment")) is not None:
        yield f"in an empty environment it says {launch}: let it return None"
    launch = _ask(launcher, environ, "in the environment given")
    if launch is None and launcher.detect(environ) is not None:
        yield "it sees no launch where the environment is read by name alone: do not copy or search it"
    if launch is None:
        yield "it sees no launch in the environment given: does it require a variable that is not there?"
    else:
        yield from _told(launcher, launch, environ, local_rank)
        yield from _believed(launcher, environ, launch.source)
        yield from _agreed(launcher, environ, launch)


def _told(launcher: Launcher, launch: Launch, environ: dict[str, str], local_rank: int) -> Iterator[str]:
    """Yield what is wrong with its own launch."""
    if launch.local_rank != local_rank:
        yield f"it says local rank {launch.local_rank}, and the process has {local_rank}"
    if launch.launcher != launcher.name:
        yield f"its launch is named {launch.launcher!r}: give Launch the launcher's own name"
    if not launch.source:
        yield 'it does not say where the local rank came from: begin Launch(sources=...) with ("local_rank", VARIABLE)'
    if launch.source in _ranks():
        yield f"it reads {launch.source}, a rank in the whole job or the number of a node: on the next node it is wrong"
    if absent := [f"{variable} for {field}" for field, variable in launch.sources if variable not in environ]:
        yield f"its sources name what is not in the environment given: {', '.join(absent)}"
    if getattr(launcher, "local_rank", launch.source) != launch.source:
        yield f"its attribute local_rank is to name the variable that it reads, {launch.source}: or it is not asked"


def _believed(launcher: Launcher, environ: dict[str, str], source: str) -> Iterator[str]:
    """Yield which environments it believes though they are no launch of its own."""
    for value in _GARBLED:
        if _ask(launcher, {**environ, source: value}, f"under {source}={quoted(value)}") is not None:
            yield f"it takes {source}={quoted(value)} for a local rank: let it raise LocalRankError"
    for value in ("", "-1"):
        if _ask(launcher, {**environ, source: value}, f"under {source}={value!r}") is not None:
            yield f"it sees a launch under {source}={value!r}, which means unset: let it return None"
    without = {variable: value for variable, value in environ.items() if variable != source}
    if _ask(launcher, without, f"without {source}") is not None:
        yield f"it sees a launch without {source}: let it return None"
    if source != "LOCAL_RANK" and _ask(launcher, {source: environ[source]}, f"with {source} alone") is not None:
        yield f"it believes {source} alone, which may be left over: require another variable that it always sets"


def _agreed(launcher: Launcher, environ: dict[str, str], launch: Launch) -> Iterator[str]:
    """Yield where its numbers do not agree; its other variables are garbled as well, which it is to survive."""
    for _, variable in launch.sources:
        for value in (environ.get(variable, ""), "", "0", "999", *_GARBLED):
            where = f"under {variable}={quoted(value)}"
            told = _ask(launcher, {**environ, variable: value}, where)
            if told is not None and told.local_world_size is not None and told.local_rank >= told.local_world_size:
                yield (
                    f"{where} it says local rank {told.local_rank} of {told.local_world_size}, and they count from 0: "
                    "let it raise LocalRankError"
                )


def _ask(launcher: Launcher, environ: dict[str, str], where: str) -> Launch | None:
    """What it says; a ``LocalRankError`` is as good as nothing."""
    from safedev._snapshot import Variables
    from safedev.errors import LocalRankError
    from safedev.launchers import Launch

    try:
        launch = launcher.detect(Variables(environ))  # read by name alone, and not to be written to
    except LocalRankError:
        return None
    except Exception as error:
        raise AssertionError(
            f"launcher {launcher.name!r}: {where}, detect() raised {type(error).__name__}: {error}\n"
            "  fix: read the environment by name, and raise LocalRankError where a value cannot be read"
        ) from error
    if launch is not None and not isinstance(launch, Launch):
        raise AssertionError(f"launcher {launcher.name!r}: {where}, detect() returned no Launch, and not None")
    return launch


def check_policy(policy: Fallback) -> None:
    """Check that a policy gives an answer, or declines, wherever it may be asked; on pretended machines.

    Args:
        policy: What ``select_device(fallback=...)`` is to be given.

    Raises:
        AssertionError: It raises, answers with what is no device or cannot be had, or acts where it is to choose.
        ValueError: *policy* is text that names none.
        TypeError: *policy* is neither text nor callable.

    Example:
        >>> check_policy(lambda diagnosis: "cpu")
    """
    from safedev._select import diagnose
    from safedev.policies import named
    from safedev.testing._fake import fake_cuda

    policy = named(policy)
    torchrun = launched_by("torchrun", local_rank=3, local_world_size=4)
    own_device = launched_by("slurm", local_rank=1, local_world_size=4, devices="per-task")
    for count, environ, preferred in (
        (2, {}, 7),
        (0, {}, "cuda"),
        (1, {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (2, torchrun, None),
        (4, own_device, 1),
        (1, {}, "xpu"),
    ):
        with fake_cuda(count, environ=environ) as machine:
            before = dict(os.environ)
            diagnosis = diagnose(preferred)
            wrong = _answered(policy, diagnosis)
            if machine.started_by is not None:
                wrong = f"it calls {machine.started_by}, which starts the driver: a policy chooses, and does not act"
            if dict(os.environ) != before:
                wrong = "it changes os.environ: a policy chooses, and does not act"
        if wrong:
            raise AssertionError(
                f"policy {getattr(policy, '__name__', policy)}: {wrong}\n  asked about: {diagnosis.render()}"
            )


def _answered(policy: FallbackPolicy, diagnosis: Diagnosis) -> str:
    """What is wrong with the answer; empty if nothing is."""
    from safedev import _torch
    from safedev._request import request_for
    from safedev._resolve import resolve

    try:
        answer = policy(diagnosis)
    except Exception as error:  # noqa: BLE001 - whatever a policy raises, it is not to
        return f"it raises {type(error).__name__}: {error}; let it return None to decline"
    if answer is None:
        return ""
    try:
        wanted = request_for(answer)
        device = resolve(wanted, _torch.complete(wanted, diagnosis.snapshot, os.environ))[0]
    except (TypeError, ValueError) as error:
        return f"it answers with what is no device: {error}"
    if device is None:
        return f"it answers {answer!r}, which cannot be had there: that counts as declining; let it return None"
    return ""
