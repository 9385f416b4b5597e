"""Which launcher started this process, and its local rank: pure functions of an environment.

A launcher is an object with a name and a ``detect`` method: usually one row of data, an ``EnvLauncher``.
``LAUNCHERS`` holds them in the order of precedence. Add one of your own with ``register_launcher``.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Protocol

from safedev._launch import LOCAL_RANK, UNKNOWN, EnvLauncher, Launch, number
from safedev._launcher_table import TABLE
from safedev._nesting import beside_those_around, beside_world_size, innermost, inside_or_left_over
from safedev._text import quoted
from safedev.errors import LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LAUNCHERS", "EnvLauncher", "Launch", "Launcher", "detect_launch", "register_launcher"]

# Counts of processes that are looked at where no local rank is found. Reading one that is absent takes a microsecond.
_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_REGISTERING = Lock()


class Launcher(Protocol):
    """What tells whether a certain launcher started a process."""

    @property
    def name(self) -> str:
        """What messages call the launcher."""
        ...

    def detect(self, environ: Mapping[str, str], /) -> Launch | None:
        """Read the launch from *environ* and from nothing else.

        Returns:
            The launch; None where this launcher did not start the process.

        Raises:
            LocalRankError: The launcher is there, and its local rank cannot be read.
        """
        ...


LAUNCHERS: tuple[Launcher, ...] = TABLE
"""Every launcher, in the order of precedence. The reason for each place stands beside the row."""


def register_launcher(launcher: Launcher) -> None:
    """Add a launcher to ``LAUNCHERS``, for this process.

    It goes before the launchers of its kind that are there: who registers one knows of it, and the table does not.
    There are two kinds. A row whose variable is ``LOCAL_RANK`` goes before all others. Any other launcher goes behind
    the rows for ``LOCAL_RANK``, since a launcher that sets ``LOCAL_RANK`` is the one that runs inside another.

    Args:
        launcher: An ``EnvLauncher``, or any object with a name and a ``detect`` method. A ``local_rank`` attribute,
            if it has one, names the variable without which ``detect`` need not be called.

    Raises:
        TypeError: *launcher* has no name or no ``detect`` method.
        ValueError: There is a launcher of that name.

    Example:
        >>> from safedev.launchers import EnvLauncher, register_launcher
        >>> register_launcher(
        ...     EnvLauncher(
        ...         name="sitelaunch",
        ...         local_rank="SITELAUNCH_LOCAL_RANK",
        ...         local_world_size="SITELAUNCH_LOCAL_SIZE",
        ...         requires=("SITELAUNCH_LOCAL_SIZE",),
        ...     )
        ... )
    """
    global LAUNCHERS  # noqa: PLW0603 - the one registry; readers see the old tuple or the new one
    name = getattr(launcher, "name", None)
    if not isinstance(name, str) or not name or not callable(getattr(launcher, "detect", None)):
        raise TypeError(f"a launcher has a name and a method detect(environ), and {launcher!r} has not")
    with _REGISTERING:
        if any(name == known.name for known in LAUNCHERS):
            raise ValueError(f"there is a launcher named {name!r} already: give this one another name")
        first = 0
        while (
            _variable(launcher) != LOCAL_RANK and first < len(LAUNCHERS) and _variable(LAUNCHERS[first]) == LOCAL_RANK
        ):
            first += 1
        LAUNCHERS = (*LAUNCHERS[:first], launcher, *LAUNCHERS[first:])


def detect_launch(environ: Mapping[str, str] | None = None) -> Launch | None:
    """Tell which launcher started this process, and with which local rank.

    Variables are read by name, so the size of the environment does not matter. ``RANK``, ``PMI_RANK``,
    ``SLURM_PROCID`` and the number of a pod or a node are never taken for a local rank.

    Args:
        environ: The environment to read; ``os.environ`` if None.

    Returns:
        The launch; None where nothing launched this process.

    Raises:
        LocalRankError: A launcher's variables cannot be read; two launchers disagree, and neither runs inside the
            other; or there are several processes and no local rank is to be had.
    """
    environ = os.environ if environ is None else environ
    get = environ.get
    present: list[Launcher] = []
    last, value = "", None
    for launcher in LAUNCHERS:
        variable = _variable(launcher)
        if variable is not None:
            if variable != last:
                last, value = variable, get(variable)
            if not value:
                continue
        present.append(launcher)
    launch = _settle(environ, present) if present else None
    if launch is None:
        _refuse_several(environ, present)
    return launch


def _variable(launcher: Launcher) -> str | None:
    variable: str | None = getattr(launcher, "local_rank", None)
    return variable


def _settle(environ: Mapping[str, str], present: list[Launcher]) -> Launch | None:
    """Ask those launchers whose variable is there, and settle between their answers."""
    local: Launch | LocalRankError | None = None
    for launcher in present:
        if local is None and _variable(launcher) == LOCAL_RANK:
            proof: bool = getattr(launcher, "innermost", False)
            try:
                local = launcher.detect(environ)
            except LocalRankError as error:
                if proof or number(error.value or "") is None:
                    raise
                local = error  # it contradicts its companions: left over if another launcher is there
            if proof and isinstance(local, Launch):
                return beside_those_around(environ, local, _answers(environ, present, strict=False))
    outer = innermost(environ, _answers(environ, present, strict=True))
    if local is None:
        return outer and beside_world_size(environ, outer)
    if outer is not None:
        return inside_or_left_over(environ, local, outer)
    if isinstance(local, LocalRankError):
        raise local
    return local


def _answers(environ: Mapping[str, str], present: list[Launcher], *, strict: bool) -> list[Launch]:
    """What the launchers say that do not set ``LOCAL_RANK``. Unless *strict*, one that cannot be read says nothing."""
    answers = []
    for launcher in present:
        if _variable(launcher) != LOCAL_RANK:
            try:
                launch = launcher.detect(environ)
            except LocalRankError:
                if strict:
                    raise
                continue
            if launch is not None:
                answers.append(launch)
    return answers


def _refuse_several(environ: Mapping[str, str], present: list[Launcher]) -> None:
    """Refuse where several processes are counted: without a local rank all of them would take the first device."""
    names = [*_COUNTS, *(name for launcher in present for name in _counts(launcher))]
    for name in names:
        text = environ.get(name)
        if text and (number(text) or 0) > 1:
            looked_for = dict.fromkeys(filter(None, map(_variable, LAUNCHERS)))
            problem = (
                f"{name}={quoted(text)} counts several processes, and no variable tells the local rank of this one: "
                f"set LOCAL_RANK, or unset {name} if this process is alone\n"
                f"  looked for: {', '.join(looked_for)}\n"
                f"  a rank or the number of a pod or node is no local rank; a variable alone, without its launcher's "
                f"others, is left over"
            )
            raise LocalRankError(UNKNOWN, LOCAL_RANK, environ.get(LOCAL_RANK), problem)


def _counts(launcher: Launcher) -> tuple[str, ...]:
    return launcher.variables("world_size") if isinstance(launcher, EnvLauncher) else ()
