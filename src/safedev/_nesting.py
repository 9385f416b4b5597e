"""Several launchers left variables in one environment: which of them is the inner one, and which is left over."""

from __future__ import annotations

from dataclasses import replace

from safedev._launch import LOCAL_RANK, UNKNOWN, number
from safedev._text import quoted
from safedev.errors import LocalRankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safedev._launch import Launch

_HERE = ("local_rank", "local_world_size")
_ALL = (*_HERE, "rank", "world_size")
# Kinds of --gpu-bind and --tres-bind that give each task a set of its own; "closest" and "none" do not.
# Source: https://slurm.schedmd.com/srun.html#OPT_gpu-bind, https://slurm.schedmd.com/srun.html#OPT_tres-bind
_BINDS = frozenset({"map", "map_gpu", "mask", "mask_gpu", "per_task", "single"})


def innermost(environ: Mapping[str, str], launches: Sequence[Launch]) -> Launch | None:
    """Choose among launches that are complete, in the order of precedence.

    A launcher that counts one process on this node is around the others: the one process is its daemon or a shell.

    Raises:
        LocalRankError: Two of them count several processes, and disagree.
    """
    if len(launches) < 2:
        return launches[0] if launches else None
    first, *others = [launch for launch in launches if launch.local_world_size != 1] or launches[:1]
    for other in others:
        if _differ(first, other, _HERE):
            raise _conflict(environ, first, other)
    if first is launches[0] or first.launcher != "slurm":
        return first
    # Others are started by Slurm, and seldom start it: one with a single process may as well be left over.
    left = launches[0]
    return replace(
        first,
        caution=f"{_told(environ, left)} looks left over beside {_told(environ, first)}, which is believed\n"
        f"  fix: unset {left.source or left.launcher}",
    )


def inside_or_left_over(environ: Mapping[str, str], local: Launch | LocalRankError, outer: Launch) -> Launch:
    """Settle between a ``LOCAL_RANK`` that may be left over and another launcher that is complete.

    Args:
        environ: The environment, for messages.
        local: What ``LOCAL_RANK`` says; the error where its companions contradict it.
        outer: What the other launcher says.

    Raises:
        LocalRankError: The two disagree, and either may be the inner one.
    """
    alone = outer.local_world_size == 1 or outer.world_size == 1
    if isinstance(local, LocalRankError):
        if alone:
            raise local
        return replace(outer, caution=_left_over(environ, outer))
    if not _differ(local, outer, _ALL):
        return outer if local.local_world_size is None else local
    signed = local.launcher != UNKNOWN
    # Without a count of its own, a launcher that says 0 may have started one process on this node, or more.
    uncounted = outer.local_world_size is None and outer.local_rank == 0
    if alone or (uncounted and signed):
        doubtful = local.local_rank != outer.local_rank and (uncounted or not local.confirmed)
        return replace(local, caution=_believed(environ, local, outer)) if doubtful else local
    if uncounted or (signed and (local.local_world_size or 0) > 1):
        raise _conflict(environ, local, outer)
    return replace(outer, caution=_left_over(environ, outer) if local.local_rank != outer.local_rank else None)


def beside_those_around(environ: Mapping[str, str], local: Launch, around: Sequence[Launch]) -> Launch:
    """Warn where a launcher that is certainly the inner one seems to run several times on this node."""
    for outer in around:
        several = (outer.local_world_size or outer.local_rank + 1) > 1
        if several and _differ(local, outer, _ALL) and own_devices_bound(environ, outer) is None:
            caution = (
                f"{_told(environ, local)} is believed, and {_told(environ, outer)} counts several processes on this "
                f"node too: each may have started a {local.launcher} of its own, with the same local ranks\n"
                f"  fix: start one {local.launcher} on each node, or unset {outer.source} if it is left over"
            )
            return replace(local, caution=caution)
    return local


def beside_world_size(environ: Mapping[str, str], outer: Launch) -> Launch:
    """Warn where ``WORLD_SIZE`` counts more processes than the launcher that started one on this node."""
    text = environ.get("WORLD_SIZE")
    if text is None or outer.world_size is None or (number(text) or 0) <= outer.world_size:
        return outer
    caution = (
        f"WORLD_SIZE={quoted(text)} counts more processes than {outer.launcher} started ({outer.world_size}), "
        f"and no LOCAL_RANK tells them apart: local rank {outer.local_rank} is taken from {outer.source}\n"
        f"  fix: set LOCAL_RANK in each process, or unset WORLD_SIZE"
    )
    return replace(outer, caution=caution)


def own_devices_bound(environ: Mapping[str, str], launch: Launch) -> str | None:
    """The option by which Slurm gave each task of *launch* devices of its own, as Slurm writes it; None without one."""
    if launch.launcher != "slurm":
        return None
    for part in environ.get("SLURMD_TRES_BIND", "").split("+"):
        resource, _, option = part.partition(":")
        kind = option.partition(":")[0]
        if resource.rpartition("/")[2] == "gpu" and kind in _BINDS:
            return part
    return None


def same_process(one: Launch, other: Launch) -> bool:
    """Whether two launches tell the same of this process, as far as both tell."""
    return not _differ(one, other, _ALL)


def _differ(one: Launch, other: Launch, fields: tuple[str, ...]) -> bool:
    pairs = ((getattr(one, field), getattr(other, field)) for field in fields)
    return any(a is not None and b is not None and a != b for a, b in pairs)


def _told(environ: Mapping[str, str], launch: Launch) -> str:
    shown = (
        f"{launch.source}={quoted(environ.get(launch.source, ''))}"
        if launch.source
        else f"local rank {launch.local_rank}"
    )
    size = "" if launch.local_world_size is None else f", one of {launch.local_world_size} here"
    return f"{shown} ({launch.launcher}{size})"


def _left_over(environ: Mapping[str, str], outer: Launch) -> str:
    return (
        f"LOCAL_RANK={quoted(environ[LOCAL_RANK])} looks left over: {_told(environ, outer)} is believed\n"
        f"  fix: unset LOCAL_RANK before the program is started"
    )


def _believed(environ: Mapping[str, str], local: Launch, outer: Launch) -> str:
    return (
        f"{_told(environ, local)} is believed, although {_told(environ, outer)} says otherwise\n"
        f"  fix: unset LOCAL_RANK if it is left over, or {outer.source or outer.launcher} if that is"
    )


def _conflict(environ: Mapping[str, str], one: Launch, other: Launch) -> LocalRankError:
    problem = (
        f"{_told(environ, one)} and {_told(environ, other)} disagree, and either may be left over: "
        f"unset the variables of the one that did not start this process\n"
        f"  that is {one.source or one.launcher} or {other.source or other.launcher}, with those that belong to it"
    )
    return LocalRankError(f"{one.launcher} and {other.launcher}", one.source, environ.get(one.source), problem)
