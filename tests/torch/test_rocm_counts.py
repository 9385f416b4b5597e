"""Where torch's own count and ROCm's differ under one mask: torch's by torch itself, made a build for ROCm."""

from __future__ import annotations

import pytest
import torch

import safedev
from safedev import _nvml
from safedev.testing._environment import in_environment

GPUS = 4

pytestmark = pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) < "2.6", reason="torch reads ROCR_VISIBLE_DEVICES from 2.6 on"
)


@pytest.fixture(autouse=True)
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of torch for ROCm, whose amdsmi lists four devices."""
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_raw_device_count_amdsmi", lambda: GPUS)
    for name in ("count", "inventory", "cuda_version"):
        monkeypatch.setattr(_nvml, name, lambda: None)


def disagreement(variables: dict[str, str]) -> tuple[int, str]:
    """Torch's own count, and what is said of a disagreement; empty: nothing."""
    with in_environment(variables):
        findings = safedev.diagnose(0).findings
        told = [finding.reason for finding in findings if finding.code == "count-disagrees"]
        return torch.cuda.device_count(), "".join(told)


# Numbers of ROCm: github.com/ROCm/ROCR-Runtime, amd_filter_device.cpp; github.com/ROCm/clr, rocdevice.cpp.
@pytest.mark.parametrize(
    ("variables", "counted", "shown"),
    [
        pytest.param({"HIP_VISIBLE_DEVICES": ""}, 0, "all that no other hides", id="hip-empty"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, 0, "all that no other hides", id="cuda-empty"),
        pytest.param({"ROCR_VISIBLE_DEVICES": ""}, 1, "shows none", id="rocr-empty"),
        pytest.param({"ROCR_VISIBLE_DEVICES": "-1"}, 1, "shows none", id="rocr-minus-one"),
        pytest.param({"ROCR_VISIBLE_DEVICES": "0,0"}, 2, "shows 1 at most", id="rocr-repeated"),
        pytest.param({"ROCR_VISIBLE_DEVICES": "0,x,1"}, 3, "shows 1 at most", id="rocr-junk"),
        pytest.param({"HIP_VISIBLE_DEVICES": "0, 1"}, 2, "shows 1 at most", id="hip-blank"),
        pytest.param({"HIP_VISIBLE_DEVICES": "01"}, 1, "shows none", id="hip-leading-zero"),
        pytest.param({"HIP_VISIBLE_DEVICES": "1gpu"}, 1, "shows none", id="hip-suffix"),
        pytest.param({"HIP_VISIBLE_DEVICES": "0,0,1"}, 0, "shows 2 at most", id="hip-repeated"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "+1,2"}, 2, "shows none", id="cuda-sign"),
        pytest.param(
            {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"},
            0,
            "all that no other hides",
            id="hip-falls-through",
        ),
    ],
)
def test_both_counts_are_told(variables: dict[str, str], counted: int, shown: str) -> None:
    """
    Torch's, and the one that the runtime makes of the same text.
    """
    count, told = disagreement(variables)

    assert counted == count
    assert f"torch counts {count} device" in told
    assert shown in told


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({}, id="no-mask"),
        pytest.param({"HIP_VISIBLE_DEVICES": "2,0"}, id="hip"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "3"}, id="cuda"),
        pytest.param({"ROCR_VISIBLE_DEVICES": "1,2"}, id="rocr"),
        pytest.param({"ROCR_VISIBLE_DEVICES": " 1 , 0x2"}, id="rocr-in-its-own-grammar"),
        pytest.param({"HIP_VISIBLE_DEVICES": "-1"}, id="minus-one"),
        pytest.param({"HIP_VISIBLE_DEVICES": "0,1,9"}, id="past-the-last"),
    ],
)
def test_where_both_read_alike_nothing_is_said(variables: dict[str, str]) -> None:
    """
    A sound mask is no finding.
    """
    assert "" == disagreement(variables)[1]
