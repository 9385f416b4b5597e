"""The environment of the pretended process: what chooses a device is cleared, then what the test gives is set."""

from __future__ import annotations

import os
from contextlib import contextmanager

from safedev import launchers
from safedev._launch import FIELDS, EnvLauncher
from safedev._mask import CUDA_VISIBLE_DEVICES
from safedev._misspelled import misspelled
from safedev._sharing import PODS
from safedev._snapshot import OTHER_MASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

# Beside the launchers of the table: masks and order, what shows a pod, and what torch reads to count or sets itself.
_NAMES = frozenset({CUDA_VISIBLE_DEVICES, *OTHER_MASKS, *PODS, "CUDA_MODULE_LOADING", "PYTORCH_NVML_BASED_CUDA_CHECK"})
# What a launcher sets besides, and what others than safedev read of it.
_PREFIXES = ("FLUX_", "HOROVOD_", "OMPI_", "PMIX_", "PMI_", "RAY_", "SLURM", "TORCHELASTIC_")


@contextmanager
def in_environment(environ: Mapping[str, str]) -> Generator[None]:
    """Clear what chooses a device, add *environ*, and put everything back at the end."""
    taken = {*_NAMES, *_read_by_launchers(), *environ}

    def present() -> list[str]:
        return [name for name in os.environ if name in taken or name.startswith(_PREFIXES) or misspelled((name,))]

    before = {name: os.environ.pop(name) for name in present()}
    try:
        os.environ.update(environ)
        yield
    finally:
        for name in present():
            del os.environ[name]
        os.environ.update(before)


def _read_by_launchers() -> Iterator[str]:
    for row in launchers.LAUNCHERS:
        if isinstance(row, EnvLauncher):
            yield from row.requires
            for field in FIELDS:
                yield from row.variables(field)
