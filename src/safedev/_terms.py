"""The words of the library as types: see *Words* in the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, SupportsIndex, Union

TYPE_CHECKING = False
if TYPE_CHECKING:
    import torch

# Mixing these two up is the very fault that this library is about.
Ordinal = NewType("Ordinal", int)
"""Position among the devices this process sees, from 0; the N of ``cuda:N``."""

PhysicalIndex = NewType("PhysicalIndex", int)
"""Position among the devices of the machine, as NVML lists them, from 0."""

Target = Union[int, str, "torch.device"]
"""What a policy answers with: anything that names one device, as ``select_device`` takes it."""

Preferred = Union[SupportsIndex, str, "torch.device", None]
"""What ``select_device`` is asked for; ``bool``, which has an ``__index__``, is refused when it runs."""

Devices = Union[SupportsIndex, str, Sequence[Union[SupportsIndex, str]], None]
"""What ``guard_visible_devices`` is asked for."""
