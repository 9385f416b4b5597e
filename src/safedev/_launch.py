"""A launch, and how a launcher's environment variables are read."""

from __future__ import annotations

from dataclasses import dataclass, field

from safedev._quick import quickly
from safedev._text import quoted
from safedev.errors import LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LOCAL_RANK = "LOCAL_RANK"
UNKNOWN = "unknown"  # the launcher behind a LOCAL_RANK that nobody signed
# Slurm numbers the steps that are no tasks from the end: interactive, batch, extern ... (slurm.h, SLURM_*_STEP).
FIRST_PSEUDO_STEP = 0xFFFFFFF0
# The local world size comes last, since Slurm's is found by means of the others.
FIELDS = ("local_rank", "rank", "world_size", "node_rank", "local_world_size")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What is known of the launch that this process belongs to. All numbers come from one launcher.

    Attributes:
        launcher: Name of the launcher: ``"torchrun"``, ``"openmpi"``, ``"slurm"`` ...; ``"unknown"`` for a
            ``LOCAL_RANK`` of which nothing says who set it.
        local_rank: Position among the processes of the launch on this node, from 0.
        local_world_size: How many processes of the launch run on this node, from 1; None where it is not told.
        rank: Position in the whole launch, from 0; None where it is not told.
        world_size: How many processes the launch has, from 1; None where it is not told.
        node_rank: Position of this node among the nodes of the launch, from 0; None where it is not told.
        sources: The environment variable of each value that is known: ``(("local_rank", "LOCAL_RANK"), ...)``.
        confirmed: False for a lone ``LOCAL_RANK``, without any sign of a launcher around it.
        caution: Text for a ``LocalRankWarning``; None where nothing is in doubt.
    """

    launcher: str
    local_rank: int
    local_world_size: int | None = None
    rank: int | None = None
    world_size: int | None = None
    node_rank: int | None = None
    sources: tuple[tuple[str, str], ...] = ()
    confirmed: bool = True
    caution: str | None = None

    @property
    def source(self) -> str:
        """The environment variable that the local rank came from; empty where the launcher did not say."""
        return dict(self.sources).get("local_rank", "")


_launched = quickly(Launch)

# Nearly all that is read, told without a call: `number()` of each would take longer than its reading.
_SMALL: dict[str | None, int] = {str(value): value for value in range(128)}
UNSET = frozenset({None, "", "-1"})  # empty and -1 mean unset to most who write them


def number(text: str) -> int | None:
    """Read ASCII digits; None for anything else. ``int()`` takes blanks, signs and other scripts' digits as well."""
    return int(text) if len(text) <= 18 and text.isdigit() and text.isascii() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvLauncher:
    """A launcher that tells each process its local rank in an environment variable. One row of the table.

    It counts when *local_rank* and all of *requires* are set, and the numbers agree: one lone variable is a left-over.
    Empty text and ``-1`` mean unset.

    Attributes:
        name: What messages call it.
        local_rank: Variable that holds the local rank, from 0.
        documentation: Address of the page that names the variables.
        local_world_size: Variable that holds the number of processes on this node; None where there is none.
        rank: Variable that holds the rank, or several of which the first that is set is read.
        world_size: Variable that holds the number of processes.
        node_rank: Variable that holds the number of this node, from 0.
        requires: Further variables that this launcher always sets. They tell it from left-overs and from others.
        innermost: Whether *requires* proves that this launcher wrote *local_rank* for this very process, so that
            any other launcher's variables describe a process around it.
        shares: Whether its workers see the same devices unless something shows the contrary.

    Raises:
        ValueError: *name* or *local_rank* is empty.
        TypeError: *requires* is text; a tuple of one name has a comma.
    """

    name: str
    local_rank: str
    documentation: str = ""
    local_world_size: str | tuple[str, ...] | None = None
    rank: str | tuple[str, ...] | None = None
    world_size: str | tuple[str, ...] | None = None
    node_rank: str | tuple[str, ...] | None = None
    requires: tuple[str, ...] = ()
    innermost: bool = False
    shares: bool = True
    # Each variable is read once: the marks, of which any text will do, and then those that hold numbers.
    _marks: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _plan: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name or not self.local_rank:
            raise ValueError(
                f"EnvLauncher(name={self.name!r}, local_rank={self.local_rank!r}): neither may be empty; "
                "local_rank names the variable that holds the local rank"
            )
        requires: object = self.requires
        if isinstance(requires, str):  # its letters would be taken for names, and none of them is ever set
            raise TypeError(
                f"EnvLauncher(name={self.name!r}): requires is a tuple of names, and not the text {requires!r}: "
                f"write requires=({requires!r},)"
            )
        plan = tuple((name, variable) for name in self._numbers() for variable in self.variables(name))
        read = {variable for _, variable in plan}
        object.__setattr__(self, "_marks", tuple(variable for variable in self.requires if variable not in read))
        object.__setattr__(self, "_plan", plan)

    def variables(self, name: str) -> tuple[str, ...]:
        """The variables of one field of ``Launch``, in the order in which they are tried."""
        names: str | tuple[str, ...] | None = getattr(self, name)
        return (names,) if isinstance(names, str) else names or ()

    def detect(self, environ: Mapping[str, str], /) -> Launch | None:
        """Read the launch from *environ*.

        Returns:
            The launch; None where this launcher did not start the process, or its variables are left over.

        Raises:
            LocalRankError: A variable of a launcher that is otherwise complete holds no number; or ``LOCAL_RANK``
                and its companions contradict each other.
        """
        get = environ.get
        for variable in self._marks:
            if get(variable) in UNSET:
                return None
        values: dict[str, int] = {}
        sources = []
        unreadable = None
        for source in self._plan:
            name, variable = source
            text = get(variable)
            value = _SMALL.get(text)
            if value is None and text is not None and text not in UNSET:
                value = number(text)
                if value is None:
                    unreadable = source if unreadable is None and name not in values else unreadable
                    continue
            if value is None:
                if name == "local_rank" or variable in self.requires:
                    return None
            elif name not in values:
                values[name] = value
                sources.append(source)
        if unreadable is not None and (self.requires or unreadable[0] == "local_rank"):
            # Companions of a LOCAL_RANK that nobody signed cannot be relied on: they are passed over.
            raise self._unreadable(environ, unreadable[1])
        return self._launch(environ, values, sources)

    def _numbers(self) -> tuple[str, ...]:
        return FIELDS

    def _launch(
        self, environ: Mapping[str, str], values: dict[str, int], sources: list[tuple[str, str]]
    ) -> Launch | None:
        wrong = _contradiction(values)
        if wrong is None:
            signed = len(values) > 1 or bool(self.requires) or self.local_rank != LOCAL_RANK
            told: dict[str, Any] = values  # its names are those of the fields
            return _launched(launcher=self.name, sources=tuple(sources), confirmed=signed, **told)
        if self.local_rank != LOCAL_RANK:
            return None
        text, other = environ[LOCAL_RANK], dict(sources)[wrong]
        problem = (
            f"{LOCAL_RANK}={quoted(text)} and {other}={quoted(environ[other])} contradict each other: "
            f"unset both if nothing launched this process\n"
            f"  a local rank counts from 0 and is less than the number of processes"
        )
        raise LocalRankError(self.name, LOCAL_RANK, text, problem)

    def _unreadable(self, environ: Mapping[str, str], variable: str) -> LocalRankError:
        text = environ[variable]
        what = "a local rank" if variable == self.local_rank else "a number from 0"
        problem = f"{variable}={quoted(text)} is not {what}: unset {variable}, or set it in digits"
        return LocalRankError(self.name, variable, text, problem)


def _contradiction(values: Mapping[str, int]) -> str | None:
    """The field that the others cannot be true beside; None where all agree."""
    get, local_rank = values.get, values["local_rank"]
    count, world = get("local_world_size"), get("world_size")
    if count is not None and (count <= local_rank or (world is not None and count > world)):
        return "local_world_size"
    if world is not None and (world <= local_rank or world <= get("rank", 0)):
        return "world_size"
    return None


def slurm_step(environ: Mapping[str, str]) -> int | None:
    """The number of the Slurm step that this is a task of; -1 where it cannot be read, None where it is no task."""
    text = environ.get("SLURM_STEP_ID")
    if text is None or text in UNSET:
        return None
    step = number(text)
    if step is None:
        return -1
    return step if step < FIRST_PSEUDO_STEP else None


class SlurmLauncher(EnvLauncher):
    """Slurm's ``srun``: only a task of a real step was launched by it.

    A batch script and an ``salloc`` shell have no ``SLURM_STEP_ID``; an interactive step has a number from the end.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_marks", ())  # slurm_step() reads SLURM_STEP_ID

    def detect(self, environ: Mapping[str, str], /) -> Launch | None:
        """Read the launch from *environ*; see ``EnvLauncher.detect``."""
        step = slurm_step(environ)
        launch = None if step is None else EnvLauncher.detect(self, environ)
        if launch is not None and step == -1:
            raise self._unreadable(environ, "SLURM_STEP_ID")
        return launch

    def _numbers(self) -> tuple[str, ...]:
        return FIELDS[:-1]  # the number of tasks on this node stands in lists

    def _launch(
        self, environ: Mapping[str, str], values: dict[str, int], sources: list[tuple[str, str]]
    ) -> Launch | None:
        variable = "SLURM_GTIDS"
        tasks = _tasks_listed(environ.get(variable), values)
        if tasks is None:
            variable = "SLURM_STEP_TASKS_PER_NODE"
            tasks = _tasks_on_node(environ.get(variable, ""), values.get("node_rank"))
        if tasks is not None:
            values["local_world_size"] = tasks
            sources.append(("local_world_size", variable))
        return EnvLauncher._launch(self, environ, values, sources)  # noqa: SLF001 - its own class


def _tasks_listed(text: str | None, values: Mapping[str, int]) -> int | None:
    """Count the tasks in a list such as ``0,2,3``: the ranks on this node, by local rank."""
    ranks = text.split(",") if text else ()
    here = values["local_rank"]
    if here >= len(ranks):
        return 0 if ranks else None
    rank = number(ranks[here])
    if rank is None:
        return None
    # Where the local rank's place does not hold this rank, the variables are not one task's. No local rank is below 0.
    return len(ranks) if rank == values["rank"] else 0


def _tasks_on_node(text: str, node: int | None) -> int | None:
    """Look up node *node* in a list such as ``3,1`` or ``2(x2),1``."""
    if node is None:
        return None
    for entry in text.split(","):
        tasks, _, times = entry.partition("(x")
        nodes = number(times.removesuffix(")")) if times else 1
        if nodes is None:
            return None
        if node < nodes:
            return number(tasks)
        node -= nodes
    return None
