"""The README's lines of Python do what they say."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from safedev.testing import InstallFakeCuda

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_runs(fake_cuda: InstallFakeCuda, capsys: Any) -> None:
    """
    On a machine with four GPUs, as local rank 2 of torchrun, the lines run as they stand and print one diagnosis; the
    guard and the devices, which are all there, draw no warning.
    """
    torchrun = {"LOCAL_RANK": "2", "RANK": "2", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "4", "GROUP_RANK": "0"}
    fake_cuda(4, environ={**torchrun, "TORCHELASTIC_RUN_ID": "1"})
    (block,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(block, names)

    assert 2 == names["rank"]
    assert torch.device("cuda:2") == names["device"]
    assert capsys.readouterr().out.startswith("cuda:3")
