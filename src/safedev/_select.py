"""The shell: reads the world once, has it judged, and acts."""

from __future__ import annotations

import os
import warnings

from safedev import launchers, policies
from safedev._quick import changed
from safedev._request import request_for
from safedev._resolve import resolve
from safedev._snapshot import Variables
from safedev._text import quoted
from safedev.errors import DeviceSpecError, FallbackWarning, InvalidDeviceError, LocalRankWarning, MaskWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import overload

    import torch

    from safedev._diagnosis import Diagnosis
    from safedev._request import Request
    from safedev._snapshot import Snapshot
    from safedev._terms import Preferred
    from safedev.policies import Fallback


def select_device(preferred: Preferred = None, *, fallback: Fallback = "cuda:0") -> torch.device:
    """Return a device that this process can use; it is not made current.

    No CUDA driver is started where torch can count devices without it, no context is made, and no memory of a device
    is taken. It is safe before ``fork``, and in several threads.

    Args:
        preferred: The device wanted. None and ``"auto"``: the device of this process, by its local rank under a
            launcher, else the first CUDA device, else another accelerator, else the CPU. ``"cuda"``: the same, and
            anything but CUDA is a fallback. An ordinal from 0 (``3``, ``"3"``, ``"cuda:3"``, a ``torch.device``).
            ``"cpu"``, ``"mps"``, ``"xpu:1"`` ... A UUID (``"GPU-..."``, ``"MIG-..."``), or a unique prefix of one.
        fallback: The policy that is asked, once, if that device cannot be had. ``"cuda:0"``: the first visible CUDA
            device, else the CPU; it declines where other processes of the same launch would end up there too.
            ``"cpu"``: the CPU. ``"raise"``: none. Or a callable; see ``safedev.policies``.

    Returns:
        The device, always with an explicit ordinal for CUDA.

    Raises:
        InvalidDeviceError: The device cannot be had, and the policy declined or chose one that cannot be had.
        DeviceSpecError: *preferred* is text that names no device, or a ``torch.device`` that is neither the CPU nor an
            accelerator (``meta``).
        LocalRankError: The device depends on the local rank, which cannot be told.
        TypeError: *preferred* is no device at all (``True`` and floats are none), or *fallback* is no policy.
        ValueError: *fallback* names no policy.

    Warns:
        FallbackWarning: The policy chose another device; the text is the whole diagnosis.
        LocalRankWarning: The device was chosen by a local rank that is in doubt, or is the only one that is visible
            and other workers may use it, too.
        MaskWarning: The mask was changed after the driver had started, so that ordinals mean other devices than it
            says; not where it was unset, or names as many devices as before: of those ``diagnose`` tells.

    Example:
        >>> select_device("cpu", fallback="raise")
        device(type='cpu')

    Source:
        ``torch/cuda/__init__.py``: ``device_count()`` starts no driver where NVML answers.
        https://docs.pytorch.org/docs/stable/notes/multiprocessing.html
    """
    return _choose(preferred, fallback)[0]


def set_device(preferred: Preferred = None, *, fallback: Fallback = "cuda:0") -> torch.device:
    """Choose a device as :func:`select_device` does, make it current, and return it.

    The replacement for a hard-coded ``torch.cuda.set_device(n)``. It starts the CUDA driver if a CUDA device is chosen,
    and does nothing more for the CPU. If the driver or the device refuses, the policy is asked, and what it chooses is
    tried, once.

    Args:
        preferred: The device wanted, as for :func:`select_device`.
        fallback: The policy, as for :func:`select_device`.

    Returns:
        The device that is current now.

    Raises:
        InvalidDeviceError: As for :func:`select_device`; or the driver or the device refused, and so did the policy or
            what it chose.
        DeviceSpecError: As for :func:`select_device`.
        LocalRankError: As for :func:`select_device`.
        TypeError: As for :func:`select_device`.
        ValueError: As for :func:`select_device`.

    Warns:
        FallbackWarning: As for :func:`select_device`.
        LocalRankWarning: As for :func:`select_device`.
        MaskWarning: The mask was changed after the driver had started. Where NVML lists the devices they are compared
            with it, so that this is told where the mask names as many devices as before, too.

    Example:
        >>> set_device("cpu", fallback="raise")
        device(type='cpu')
    """
    from safedev import _torch

    device, request, environ, snapshot = _choose(preferred, fallback, deep=True)
    try:
        _torch.make_current(device)
    except _torch.REFUSALS as error:
        if snapshot is None:
            raise
        asked_already = str(device) != resolve(request, snapshot)[0]
        chosen = request_for(str(device)) if asked_already else request
        diagnosis = _judge(chosen, _torch.refused(snapshot, error, device), environ)
        target, declined = (None, "") if asked_already else _ask(diagnosis, fallback, environ)
        if target is None:
            raise InvalidDeviceError(diagnosis, declined) from error
        device = _torch.to_device(target)
        try:
            _torch.make_current(device)
        except _torch.REFUSALS as second:
            first, again = diagnosis.snapshot, _torch.refused(diagnosis.snapshot, second, device)
            declined = f"{policies.name_of(fallback)} chose {device}, which refused too: {quoted(again.refusal)}"
            # What was asked for stays the matter, and what refused in its place is not suggested either.
            again = changed(again, refusal=first.refusal, refused=(str(device), *first.refused))
            raise InvalidDeviceError(_judge(chosen, again, environ), declined) from second
        warnings.warn(_fallback_words(diagnosis, target), FallbackWarning, stacklevel=2)
    return device


def diagnose(preferred: Preferred = None) -> Diagnosis:
    """Judge a request as :func:`select_device` does, by the same reading, without choosing.

    Args:
        preferred: The device wanted, as for :func:`select_device`.

    Returns:
        A diagnosis with ``is_valid``, ``findings`` (each with ``code``, ``reason``, ``remedy`` and ``suggestion``),
        ``snapshot``, and ``render()`` for the whole as text.

    Raises:
        DeviceSpecError: *preferred* is text that names no device, or a ``torch.device`` that is neither the CPU nor an
            accelerator (``meta``).
        LocalRankError: The device depends on the local rank, which cannot be told.
        TypeError: *preferred* is no device at all.

    Example:
        >>> diagnose("cpu").is_valid
        True
    """
    from safedev import _torch

    request = request_for(preferred)
    environ = Variables(os.environ)
    diagnosis = _judge(request, _torch.take_snapshot(request, environ), environ, deep=True)
    if diagnosis.remark == "no-local-rank" and diagnosis.device is None and diagnosis.snapshot.launch_error:
        raise diagnosis.snapshot.launch_error
    return diagnosis


if TYPE_CHECKING:

    @overload
    def resolve_local_rank(*, default: int = 0, environ: Mapping[str, str] | None = None) -> int: ...

    @overload
    def resolve_local_rank(*, default: None, environ: Mapping[str, str] | None = None) -> int | None: ...


def resolve_local_rank(*, default: int | None = 0, environ: Mapping[str, str] | None = None) -> int | None:
    """Return the local rank of this process, from the launcher that started it.

    It is the position of this process among the job's processes on this node, from 0; never the rank in the whole job.
    ``safedev.launchers.detect_launch()`` gives the same answer with its evidence.

    Args:
        default: What to return when nothing launched this process: 0, or another number, or None.
        environ: The environment to read in place of ``os.environ``.

    Returns:
        The local rank, or *default*.

    Raises:
        LocalRankError: A launcher's variables cannot be read, two launchers disagree, or there are several processes
            and no local rank.

    Warns:
        LocalRankWarning: Another launcher's variables look left over or contradict the answer, or ``WORLD_SIZE`` counts
            more processes than the launcher that is believed.

    Example:
        >>> resolve_local_rank(environ={"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"})
        3

    Source:
        ``safedev.launchers.LAUNCHERS``: each row names the page that documents its variables.
    """
    launch = launchers.detect_launch(Variables(os.environ) if environ is None else environ)
    if launch is None:
        return default
    if launch.caution:
        warnings.warn(launch.caution, LocalRankWarning, stacklevel=2)
    return launch.local_rank


def _choose(
    preferred: Preferred, fallback: Fallback, *, deep: bool = False
) -> tuple[torch.device, Request, Variables, Snapshot | None]:
    """The device for a request, and what was read for it; the warnings point two frames up.

    Where CUDA has started, *deep* compares the devices with the mask one by one, which takes milliseconds.
    """
    from safedev import _torch  # torch takes seconds to import: only once a device is asked for

    policies.named(fallback)  # a name that is none fails at once, and not on the day it is needed
    request = request_for(preferred)
    environ = Variables(os.environ)
    if request.kind == "cpu":
        return _torch.to_device("cpu"), request, environ, None
    snapshot = _torch.take_snapshot(request, environ)
    device, _, remark = resolve(request, snapshot)
    if device is not None and remark in {"", "own"}:
        if snapshot.launch is not None and snapshot.launch.caution:
            warnings.warn(snapshot.launch.caution, LocalRankWarning, stacklevel=3)
        if snapshot.driver_count is not None and (words := _of_late_mask(request, snapshot, environ, deep=deep)):
            warnings.warn(words, MaskWarning, stacklevel=3)
        elif remark == "own" and snapshot.sharing is not None:
            _log(
                f"{device}: the first device of this process's own, whatever its local rank: {snapshot.sharing.reason}"
            )
        return _torch.to_device(device), request, environ, snapshot
    if remark == "no-local-rank" and device is None and snapshot.launch_error is not None:
        raise snapshot.launch_error
    diagnosis = _judge(request, snapshot, environ, deep=_rests_on_mask(snapshot))
    if diagnosis.device is not None:  # in doubt
        warnings.warn(diagnosis.render(), LocalRankWarning, stacklevel=3)
        return _torch.to_device(diagnosis.device), request, environ, snapshot
    target, declined = _ask(diagnosis, fallback, environ)
    if target is None:
        raise InvalidDeviceError(diagnosis, declined)
    warnings.warn(_fallback_words(diagnosis, target), FallbackWarning, stacklevel=3)
    return _torch.to_device(target), request, environ, snapshot


def _rests_on_mask(snapshot: Snapshot) -> bool:
    """Whether the device was chosen by the text of a mask, while the driver that has started may hold to another."""
    return snapshot.driver_count is not None and snapshot.sharing is not None and snapshot.sharing.by_mask


def _of_late_mask(request: Request, snapshot: Snapshot, environ: Variables, *, deep: bool) -> str:
    """Say that the mask was changed after CUDA had started; nothing where that is not so, or cannot be told quickly."""
    deep = deep or _rests_on_mask(snapshot)
    if snapshot.mask.raw is None or (snapshot.driver_count == len(snapshot.mask.entries) and not deep):
        return ""
    from safedev import _closer

    if _closer.is_inherited(snapshot, environ):
        return ""
    diagnosis = _judge(request, snapshot, environ, deep=deep)
    if all(finding.code != "mask-too-late" for finding in diagnosis.findings):
        return ""
    words = f"{snapshot.mask.variable} was changed after CUDA had started: {diagnosis.device} may not be what it names"
    return f"{words}\n{diagnosis.render()}"


def _judge(request: Request, snapshot: Snapshot, environ: Variables, *, deep: bool = False) -> Diagnosis:
    from safedev import _closer, _rules

    return _rules.judge(request, _closer.look_closer(request, snapshot, environ, os.environ, deep=deep))


def _ask(diagnosis: Diagnosis, fallback: Fallback, environ: Variables) -> tuple[str | None, str]:
    """What the policy chooses, as text; or None, and why in a clause: it declined, or chose what cannot be had."""
    from safedev import _torch

    answer = policies.named(fallback)(diagnosis)
    if answer is None:
        return None, policies.declined(diagnosis, fallback)
    try:
        wanted = request_for(answer)
    except (TypeError, DeviceSpecError) as error:
        return None, f"{policies.name_of(fallback)} answered with no device: {str(error).partition(': give')[0]}"
    device = resolve(wanted, _torch.complete(wanted, diagnosis.snapshot, environ))[0]
    if device is None or device in diagnosis.snapshot.refused:
        return None, f"{policies.name_of(fallback)} chose {wanted.spec}, which cannot be had either"
    return device, ""


def _fallback_words(diagnosis: Diagnosis, target: str) -> str:
    return f"{diagnosis.render()}\n  using {target} instead"


def _log(words: str) -> None:
    import logging  # torch has imported it by now

    logging.getLogger("safedev").info(words)
