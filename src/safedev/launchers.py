"""Which launcher started this process, and its local rank: pure functions of an environment.

A launcher is an object with a name and a ``detect`` method: usually one row of data, an ``EnvLauncher``.
``LAUNCHERS`` holds them in the order of precedence. Add one of your own with ``register_launcher``.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Protocol

from safedev._launch import LOCAL_RANK, UNKNOWN, UNSET, EnvLauncher, Launch, number, slurm_step
from safedev._launcher_table import TABLE
from safedev._nesting import beside_those_around, beside_world_size, innermost, inside_or_left_over
from safedev._text import quoted
from safedev.errors import LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LAUNCHERS", "EnvLauncher", "Launch", "Launcher", "detect_launch", "register_launcher"]

# Counts of processes that are looked at where no local rank is found, behind the rank that has to stand beside them,
# since a count alone is left over. WORLD_SIZE says it alone: its RANK may be in the script. Not every launcher's count
# is here, since each name takes its time. MPICH's gforker sets PMI_RANK and PMI_SIZE and no local rank.
_COUNTS = (
    ("WORLD_SIZE", ("WORLD_SIZE",)),
    ("PMI_RANK", ("PMI_SIZE",)),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
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
        ValueError: There is another launcher of that name.

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
        if launcher in LAUNCHERS:
            return  # the cell of a notebook that is run again
        if any(name == known.name for known in LAUNCHERS):
            raise ValueError(f"there is a launcher named {name!r} already: give this one another name")
        sets_local_rank = [getattr(known, "local_rank", None) == LOCAL_RANK for known in LAUNCHERS]
        first = 0 if getattr(launcher, "local_rank", None) == LOCAL_RANK else sets_local_rank.index(False)
        LAUNCHERS = (*LAUNCHERS[:first], launcher, *LAUNCHERS[first:])  # pyright: ignore[reportConstantRedefinition]


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

    Source:
        The page of each launcher that names its variables: ``documentation`` of its row in ``LAUNCHERS``.
    """
    environ = os.environ if environ is None else environ
    local, inner, others = _present(environ)
    launch: Launch | LocalRankError | None
    if local is None and len(others) == 1:  # nothing to settle
        launch = others[0].detect(environ)
    else:
        launch = _settle(environ, local, others, inner=inner) if others else local
    if isinstance(launch, LocalRankError):
        raise launch
    if launch is None:
        _refuse_several(environ)
    elif local is None and launch.local_world_size == 1:
        return beside_world_size(environ, launch)
    return launch


def _present(environ: Mapping[str, str]) -> tuple[Launch | LocalRankError | None, bool, list[Launcher]]:
    """What ``LOCAL_RANK`` says, whether that is certainly the inner launch, and who else left a local rank."""
    get = environ.get
    local: Launch | LocalRankError | None = None
    inner = False
    others: list[Launcher] = []
    is_there = get(LOCAL_RANK)
    for launcher in LAUNCHERS:
        variable = getattr(launcher, "local_rank", None)
        if variable == LOCAL_RANK:
            if is_there and local is None:
                local = _ask(environ, launcher)
                inner = local is not None and getattr(launcher, "innermost", False)
        elif variable is None or get(variable):
            others.append(launcher)
    return local, inner, others


def _ask(environ: Mapping[str, str], launcher: Launcher) -> Launch | LocalRankError | None:
    """Ask a launcher that sets ``LOCAL_RANK``. Where that contradicts its companions, another may settle the matter."""
    try:
        return launcher.detect(environ)
    except LocalRankError as error:
        if getattr(launcher, "innermost", False) or number(error.value or "") is None:
            raise
        return error


def _settle(
    environ: Mapping[str, str], local: Launch | LocalRankError | None, others: list[Launcher], *, inner: bool
) -> Launch | LocalRankError | None:
    """Settle between what ``LOCAL_RANK`` says and the launchers whose own variable is there."""
    if inner and isinstance(local, Launch):
        return beside_those_around(environ, local, _answers(environ, others, strict=False))
    outer = innermost(environ, _answers(environ, others, strict=True))
    if local is None or outer is None:
        return outer or local
    return inside_or_left_over(environ, local, outer)


def _answers(environ: Mapping[str, str], others: list[Launcher], *, strict: bool) -> list[Launch]:
    """What *others* say. Unless *strict*, one that cannot be read says nothing."""
    answers = []
    for launcher in others:
        try:
            launch = launcher.detect(environ)
        except LocalRankError:
            if strict:
                raise
            continue
        if launch is not None:
            answers.append(launch)
    return answers


def _refuse_several(environ: Mapping[str, str]) -> None:
    """Refuse where several processes are counted: without a local rank all of them would take the first device."""
    counts = (name for rank, names in _COUNTS if environ.get(rank) not in UNSET for name in names)
    for name in counts:
        text = environ.get(name)
        if not text or _counted(text) <= 1 or not _is_task(environ, name):
            continue
        looked_for = dict.fromkeys(filter(None, (getattr(known, "local_rank", None) for known in LAUNCHERS)))
        told = ", ".join(f"{one}={quoted(environ[one])}" for one in looked_for if environ.get(one) not in UNSET)
        doubt = f"not believed: {told}, since other variables of that launcher are missing or contradict it"
        problem = (
            f"{name}={quoted(text)} counts several processes, and no variable tells the local rank of this one: "
            f"set LOCAL_RANK, or unset {name} if this process is alone\n"
            f"  looked for: {', '.join(looked_for)}\n"
            f"  a rank or the number of a pod or node is no local rank; "
            f"{doubt if told else 'a variable without the others of its launcher is left over'}"
        )
        raise LocalRankError(UNKNOWN, LOCAL_RANK, environ.get(LOCAL_RANK), problem)


def _counted(text: str) -> int:
    """The number that a script reads from *text* by ``int()``, blanks and all; 0 where that fails."""
    try:
        return int(text)
    except ValueError:  # of more digits than Python reads, too
        return 0


def _is_task(environ: Mapping[str, str], count: str) -> bool:
    if count == "SLURM_NTASKS":  # a batch script has it, too, and is number 0
        return environ.get("SLURM_PROCID") != "0"
    return count != "SLURM_STEP_NUM_TASKS" or slurm_step(environ) is not None
