"""Names of variables that are nearly that of a mask."""

from __future__ import annotations

from safedev._mask import CUDA_VISIBLE_DEVICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Variables that exist, and are near enough, or contain the name.
_KNOWN = frozenset({
    CUDA_VISIBLE_DEVICES,
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_DEVICES",
    "MUSA_VISIBLE_DEVICES",
    "SUPA_VISIBLE_DEVICES",
    "MTHREADS_VISIBLE_DEVICES",
    "MLU_VISIBLE_DEVICES",
})  # fmt: skip
_KNOWN_PREFIXES = ("RAY_", "JAX_", "DASK_", "TF_", "SLURM_", "SINGULARITYENV_", "APPTAINERENV_")
_MOST_LETTERS = 2
_PIECES = (CUDA_VISIBLE_DEVICES[:7], CUDA_VISIBLE_DEVICES[7:14], CUDA_VISIBLE_DEVICES[14:])


def misspelled(names: Iterable[object]) -> tuple[str, ...]:
    """Pick the names that were probably meant to be ``CUDA_VISIBLE_DEVICES``.

    A name counts if it differs by at most two letters, in case alone, or has the right name inside it
    (``SET CUDA_VISIBLE_DEVICES``). Names of variables that exist do not count, nor do names that are no text, which
    ``os.environ`` may hold where it was replaced.
    """
    size = len(CUDA_VISIBLE_DEVICES)
    return tuple(
        name
        for name in names
        if isinstance(name, str)
        and (abs(len(name) - size) <= _MOST_LETTERS or CUDA_VISIBLE_DEVICES in name)
        and name not in _KNOWN
        and not name.startswith(_KNOWN_PREFIXES)
        and (CUDA_VISIBLE_DEVICES in name or _is_near(name.upper()))
    )


def _is_near(name: str) -> bool:
    # Two letters can spoil two of the three pieces. Looking for them spares nearly every name the counting of letters.
    if not any(piece in name for piece in _PIECES):
        return False
    return _distance(name, CUDA_VISIBLE_DEVICES) <= _MOST_LETTERS


def _distance(one: str, other: str) -> int:
    """Letters to insert, delete or change to make *other* of *one*."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]
