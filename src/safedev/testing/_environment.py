"""The environment of the pretended process: what chooses a device is cleared, then what the test gives is set."""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What launchers set begins with these; what safedev reads of it is in `safedev.launchers` and `safedev._sharing`.
_PREFIXES = (
    "FLUX_", "HOROVOD_", "JSM_", "MPI_", "MV2_", "OMPI_", "PALS_", "PBS_", "PJRT_", "PMIX_", "PMI_", "RAY_", "SLURM",
    "TORCHELASTIC_",
)  # fmt: skip
# Masks and order; names without a launcher's prefix; what torch sets, and what it reads to count.
_NAMES = frozenset({
    "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "CROSS_RANK", "CROSS_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE",
    "NODE_RANK", "RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "WORLD_SIZE",
    "CUDA_MODULE_LOADING", "PYTORCH_NVML_BASED_CUDA_CHECK",
})  # fmt: skip


@contextmanager
def in_environment(environ: Mapping[str, str]) -> Iterator[None]:
    """Clear what chooses a device, add *environ*, and put everything back at the end."""
    before = {name: value for name, value in os.environ.items() if cleared(name) or name in environ}
    try:
        for name in before:
            del os.environ[name]
        os.environ.update(environ)
        yield
    finally:
        for name in [name for name in os.environ if cleared(name) or name in environ]:
            del os.environ[name]
        os.environ.update(before)


def cleared(name: str) -> bool:
    """Whether a variable is taken out of the environment of the pretended process."""
    return name in _NAMES or name.startswith(_PREFIXES)
