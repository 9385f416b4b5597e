"""Where torch's own count and ROCm's differ under one mask: torch's by torch itself, made a build for ROCm."""

from __future__ import annotations

import pytest
import torch

import safedev
from safedev import _driver, _nvml
from safedev._collect import collect
from safedev._rocm import hip_entries, rocr_entries
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
    monkeypatch.setattr(_driver, "in_bad_fork", lambda: False)  # another test of this process may have armed torch
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
            "shows 1 at most",
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


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        pytest.param({"HIP_VISIBLE_DEVICES": "0,0"}, 1, id="a-fault-of-the-mask"),
        pytest.param({"ROCR_VISIBLE_DEVICES": "0,0"}, 0, id="a-mask-that-torch-does-not-parse"),
        pytest.param({"HIP_VISIBLE_DEVICES": ""}, 0, id="an-empty-mask"),
    ],
)
def test_a_mask_that_torch_cannot_read_is_a_fault_in_the_audit(variables: dict[str, str], status: int) -> None:
    """
    As any defect of a mask is; that the counts differ is by itself a warning.
    """
    with in_environment(variables):
        report = collect(allocate=False)
    levels = [finding["level"] for finding in report["findings"] if finding["code"] == "count-disagrees"]

    assert ["fault" if status else "warning"] == levels
    assert status == report["status"]


# By hand: what each mask was meant to name, and what ROCm makes of what is to be written; four devices.
@pytest.mark.parametrize(
    ("variables", "written", "meant"),
    [
        pytest.param({"HIP_VISIBLE_DEVICES": "0,0"}, {"HIP_VISIBLE_DEVICES": "0"}, [0], id="hip-repeated"),
        pytest.param({"HIP_VISIBLE_DEVICES": "1;2"}, {"HIP_VISIBLE_DEVICES": "1,2"}, [1, 2], id="hip-semicolon"),
        pytest.param({"HIP_VISIBLE_DEVICES": "0-2"}, {"HIP_VISIBLE_DEVICES": "0,1,2"}, [0, 1, 2], id="hip-range"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "+1,2"}, {"CUDA_VISIBLE_DEVICES": "1,2"}, [1, 2], id="cuda-sign"),
        pytest.param({"ROCR_VISIBLE_DEVICES": "0,x,1"}, {"ROCR_VISIBLE_DEVICES": "0,1"}, [0, 1], id="rocr-junk"),
    ],
)
def test_what_is_to_be_written_is_read_alike(
    variables: dict[str, str], written: dict[str, str], meant: list[int]
) -> None:
    """
    Under it torch counts what ROCm shows, and nothing is left to say.
    """
    with in_environment(variables):
        remedies = [one.remedy for one in safedev.diagnose(3).findings if one.code == "count-disagrees"]
    ((name, text),) = written.items()

    assert [f"write {name}={text}"] == remedies
    assert (len(meant), "") == disagreement(written)
    assert meant == (rocr_entries if name.startswith("ROCR") else hip_entries)(text)
