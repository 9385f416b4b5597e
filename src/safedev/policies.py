"""What chooses another device when the wanted one cannot be had.

A policy is any callable that takes the :class:`Diagnosis` of the refused request and answers with a device (an
ordinal, text, or a ``torch.device``), or with None, which declines. It is asked once. What it answers is judged by the
same reading as the request; an answer that is not valid counts as declining.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeAlias

    from safedev._diagnosis import Diagnosis, Finding
    from safedev._terms import Preferred, Target

    FallbackPolicy: TypeAlias = Callable[[Diagnosis], Target | None]
    Fallback: TypeAlias = Literal["cuda:0", "cpu", "raise"] | FallbackPolicy
else:

    def __getattr__(name: str) -> object:
        """Import on demand what only annotations need."""
        from collections.abc import Callable
        from typing import Literal

        from safedev._diagnosis import Diagnosis, Finding
        from safedev._terms import Preferred, Target

        policy = Callable[[Diagnosis], Target | None]
        known = {
            "Diagnosis": Diagnosis,
            "Fallback": Literal["cuda:0", "cpu", "raise"] | policy,
            "FallbackPolicy": policy,
            "Finding": Finding,
            "Preferred": Preferred,
            "Target": Target,
        }
        if name in known:
            return known[name]
        raise AttributeError(f"module 'safedev.policies' has no attribute {name!r}")


__all__ = [
    "Diagnosis",
    "Fallback",
    "FallbackPolicy",
    "Finding",
    "Preferred",
    "Target",
    "cpu",
    "first_device",
    "first_of",
    "refuse",
    "share",
]


def first_device(diagnosis: Diagnosis, /) -> Target | None:
    """The first visible CUDA device; the CPU if none is visible, or the driver cannot start (``"cuda:0"``).

    Returns:
        That device; None where other processes of the same launch would end up on it too, where it is the one that
        refused, and where the workers are more than the devices.
    """
    snapshot = diagnosis.snapshot
    if diagnosis.remark == "oversubscribed":
        return None  # all workers fail alike, on whatever kind of device
    if not snapshot.device_count or any(finding.code == "driver-unusable" for finding in diagnosis.findings):
        return "cpu"
    return None if "cuda:0" in snapshot.refused or _siblings_would_follow(diagnosis) else "cuda:0"


def cpu(_: Diagnosis, /) -> Target | None:
    """The CPU (``"cpu"``).

    Returns:
        ``"cpu"``, whatever the diagnosis.
    """
    return "cpu"


def refuse(_: Diagnosis, /) -> Target | None:
    """No other device: the error is raised (``"raise"``).

    Returns:
        None, whatever the diagnosis.
    """
    return None


def share(diagnosis: Diagnosis, /) -> Target | None:
    """Ordinal *local rank modulo count*: several workers share each device, on purpose.

    Returns:
        That device; None without a launcher, and where no device is visible.
    """
    snapshot = diagnosis.snapshot
    kind, count = (
        ("cuda", snapshot.device_count) if snapshot.device_count else (snapshot.accelerator, snapshot.accelerator_count)
    )
    return None if snapshot.launch is None or not count else f"{kind}:{snapshot.launch.local_rank % count}"


def first_of(*policies: FallbackPolicy | str) -> FallbackPolicy:
    """A policy that asks *policies* in order, and answers with the first answer that does not decline.

    Args:
        policies: Names (``"cuda:0"``, ``"cpu"``, ``"raise"``) or callables; at least one.

    Returns:
        The policy; it declines where all of them do.

    Raises:
        ValueError: A policy is text that names none, or none is given.
        TypeError: A policy is neither text nor callable.
    """
    if not policies:
        raise ValueError("first_of() has no policy to ask: give at least one, or 'raise' in its place")
    asked = tuple(map(named, policies))

    def first(diagnosis: Diagnosis, /) -> Target | None:
        answers = (policy(diagnosis) for policy in asked)
        return next((answer for answer in answers if answer is not None), None)

    first.__name__ = f"first_of({', '.join(map(name_of, policies))})"
    return first


def named(fallback: FallbackPolicy | str) -> FallbackPolicy:
    """The policy of that name; a callable is a policy itself.

    Raises:
        ValueError: No policy has that name.
        TypeError: It is neither text nor callable.
    """
    if callable(fallback):
        return fallback
    if not isinstance(fallback, str):
        raise TypeError(f"fallback is {_NAMES}, or a callable; not a value of type {type(fallback).__name__}")
    policy = {"cuda:0": first_device, "cpu": cpu, "raise": refuse}.get(fallback)
    if policy is None:
        from safedev._text import quoted

        raise ValueError(f"no policy is named {quoted(fallback)}: give {_NAMES}, or a callable")
    return policy


def declined(diagnosis: Diagnosis, fallback: FallbackPolicy | str) -> str:
    """Say that a fallback declined, in a clause; nothing for one that always does."""
    policy = named(fallback)
    if policy is refuse:
        return ""
    followed = policy is first_device and _siblings_would_follow(diagnosis)
    why = ", since other workers of this launch would be on cuda:0 too" if followed else ""
    return f"{name_of(fallback)} declined{why}"


def name_of(fallback: FallbackPolicy | str) -> str:
    """What to call a fallback in a message."""
    return repr(fallback) if isinstance(fallback, str) else getattr(fallback, "__name__", type(fallback).__name__)


_NAMES = "'cuda:0', 'cpu' or 'raise'"


def _siblings_would_follow(diagnosis: Diagnosis) -> bool:
    """Whether other processes of this launch may choose the first device as well."""
    snapshot = diagnosis.snapshot
    if snapshot.sharing is not None and snapshot.sharing.kind == "own" and not snapshot.sharing.doubt:
        return False
    launch = snapshot.launch
    if launch is None:
        return snapshot.launch_error is not None
    neighbours = launch.local_world_size or launch.world_size or 1
    return neighbours > 1 or launch.local_rank > 0
