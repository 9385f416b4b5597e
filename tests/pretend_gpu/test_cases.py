"""safedev on pretend machines: what each call answers, and where a tensor then lies.

The table holds the situations that people meet: each row is one machine, one environment, one call. Expected values
follow from CUDA's rules (the mask renumbers devices from 0; the driver reads it once) and from what safedev promises;
the physical GPU that a tensor lands on is told by the pretend driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call on one machine, and all that is expected of it; what is None is not looked at."""

    call: str
    gpus: int
    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    before: str = ""
    fresh: bool = False
    device: str | None = None
    raises: str | None = None
    warns: str | None = None
    codes: tuple[str, ...] = ()
    suggests: str | None = None
    says: tuple[str, ...] = ()
    lands: int | None = None
    current: int | None = None
    asleep: bool = False
    valid: bool | None = None
    environ: dict[str, str | None] = field(default_factory=dict)
    attrs: dict[str, str] = field(default_factory=dict)
    value: object = "any"


def torchrun(
    local_rank: int, *, of: int, rank: int | None = None, world: int | None = None, mask: str | None = None
) -> dict[str, str]:
    """The environment that torchrun gives a worker (recorded with torch 2.13)."""
    rank = local_rank if rank is None else rank
    environ = {
        "LOCAL_RANK": str(local_rank),
        "RANK": str(rank),
        "GROUP_RANK": str(rank // of),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "LOCAL_WORLD_SIZE": str(of),
        "WORLD_SIZE": str(world or of),
        "GROUP_WORLD_SIZE": str((world or of) // of),
        "ROLE_WORLD_SIZE": str(world or of),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    return environ if mask is None else {**environ, "CUDA_VISIBLE_DEVICES": mask}


def observe(call: str, wants: list[str]) -> dict[str, Any]:
    """Make the call, and tell all that can be seen of it afterwards. It runs on the pretend machine."""
    import os
    import re
    import warnings

    import safedev
    import safedev.policies

    names: dict[str, Any] = {"safedev": safedev}
    if "torch." in call:
        import torch

        names["torch"] = torch
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = eval(compile(call, "<the caller>", "eval"), names)
        except Exception as problem:
            error = problem
    told = getattr(error if error is not None else result, "diagnosis", result)
    findings = getattr(told, "findings", ())
    text = "\n".join(map(str, [error] * (error is not None) + [warning.message for warning in caught]))
    seen: dict[str, Any] = {
        "result": str(result),
        "value": result if isinstance(result, int) else None,
        "raised": [kind.__name__ for kind in type(error).__mro__] if error is not None else [],
        "warned": [kind.__name__ for warning in caught for kind in type(warning.message).__mro__],
        "places": sorted({warning.filename for warning in caught}),
        "codes": sorted({finding.code for finding in findings} | set(re.findall(r"\[([a-z]+(?:-[a-z]+)+)\]", text))),
        "suggested": [finding.suggestion for finding in findings],
        "text": text,
        "valid": getattr(result, "is_valid", None),
        "attrs": {name: getattr(error, name, None) for name in ("variable", "value")},
        "environ": dict(os.environ),
    }
    if "lands" in wants or "current" in wants:
        import ctypes

        import torch

        seen["current"] = torch.cuda.current_device()
        where = torch.zeros(1, device=result).device.index if "lands" in wants else seen["current"]
        address = ctypes.create_string_buffer(20)  # older torch does not tell it
        assert 0 == ctypes.CDLL(None).cudaDeviceGetPCIBusId(address, 20, where)
        seen["lands"] = int(address.value.split(b":")[-2], 16) - 1  # GPU 0 is on bus 1
    return seen


CASES = [
    # Two devices, no mask: cuda:1 is fine.
    pytest.param(
        Case(call="safedev.select_device('cuda:1')", gpus=2, device="cuda:1", lands=1, warns="", asleep=True),
        id="default-shell",
    ),
    # Two devices, no mask: cuda:2 falls back to cuda:0.
    pytest.param(
        Case(
            call="safedev.select_device(2)", gpus=2, device="cuda:0", warns="FallbackWarning", codes=("out-of-range",)
        ),
        id="default-shell-past",
    ),
    # Mask 2: the one device is cuda:0.
    pytest.param(
        Case(
            call="safedev.select_device(0)",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "2"},
            device="cuda:0",
            lands=2,
            warns="",
        ),
        id="secondary",
    ),
    # Mask 2, asked for cuda:2: the host's number.
    pytest.param(
        Case(
            call="safedev.select_device('cuda:2', fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "2"},
            raises="InvalidDeviceError",
            codes=("physical-index",),
            suggests="cuda:0",
            says=("CUDA_VISIBLE_DEVICES",),
        ),
        id="secondary-host-number",
    ),
    # Mask 4,5,6: cuda:2 is physical 6.
    pytest.param(
        Case(
            call="safedev.select_device('cuda:2')",
            gpus=8,
            env={"CUDA_VISIBLE_DEVICES": "4,5,6"},
            device="cuda:2",
            lands=6,
            warns="",
        ),
        id="sub-cluster",
    ),
    # Mask 4,5,6, asked for 4.
    pytest.param(
        Case(
            call="safedev.select_device(4, fallback='raise')",
            gpus=8,
            env={"CUDA_VISIBLE_DEVICES": "4,5,6"},
            raises="InvalidDeviceError",
            codes=("physical-index",),
            suggests="cuda:0",
        ),
        id="sub-cluster-host-number",
    ),
    # A container with one card: cuda:1 does not exist.
    pytest.param(
        Case(
            call="safedev.select_device('cuda:1', fallback='raise')",
            gpus=1,
            env={"NVIDIA_VISIBLE_DEVICES": "1"},
            raises="InvalidDeviceError",
            codes=("out-of-range",),
        ),
        id="docker",
    ),
    # Node 1 of 2, rank 7: the local rank is what counts.
    pytest.param(
        Case(
            call="safedev.select_device()",
            gpus=4,
            env=torchrun(3, of=4, rank=7, world=8),
            device="cuda:3",
            lands=3,
            warns="",
        ),
        id="multi-node",
    ),
    # Node 1 of 2, asked for the global rank.
    pytest.param(
        Case(
            call="safedev.select_device(7, fallback='raise')",
            gpus=4,
            env=torchrun(3, of=4, rank=7, world=8),
            raises="InvalidDeviceError",
            codes=("global-rank",),
            suggests="cuda:3",
        ),
        id="multi-node-rank",
    ),
    # '1' is an ordinal.
    pytest.param(Case(call="safedev.select_device('1')", gpus=4, device="cuda:1", warns=""), id="form-text-digit"),
    # Torch.device is taken.
    pytest.param(
        Case(call="safedev.select_device(torch.device('cuda', 1))", gpus=4, device="cuda:1", warns=""),
        id="form-torch-device",
    ),
    # The CPU needs no question to CUDA.
    pytest.param(Case(call="safedev.select_device('cpu')", gpus=4, device="cpu", warns="", asleep=True), id="form-cpu"),
    # True is no ordinal.
    pytest.param(Case(call="safedev.select_device(True)", gpus=4, raises="TypeError"), id="form-bool"),
    # 1.0 is no ordinal.
    pytest.param(Case(call="safedev.select_device(1.0)", gpus=4, raises="TypeError"), id="form-float"),
    # 'cuda:x' is no device.
    pytest.param(Case(call="safedev.select_device('cuda:x')", gpus=4, raises="DeviceSpecError"), id="form-bad-0"),
    # 'gpu0' is no device.
    pytest.param(Case(call="safedev.select_device('gpu0')", gpus=4, raises="DeviceSpecError"), id="form-bad-1"),
    # '' is no device.
    pytest.param(Case(call="safedev.select_device('')", gpus=4, raises="DeviceSpecError"), id="form-bad-2"),
    # 'cuda:-1' is no device.
    pytest.param(Case(call="safedev.select_device('cuda:-1')", gpus=4, raises="DeviceSpecError"), id="form-bad-3"),
    # 'cuda:' is no device.
    pytest.param(Case(call="safedev.select_device('cuda:')", gpus=4, raises="DeviceSpecError"), id="form-bad-4"),
    # 'cuda:0,1' is no device.
    pytest.param(Case(call="safedev.select_device('cuda:0,1')", gpus=4, raises="DeviceSpecError"), id="form-bad-5"),
    # 'cuda :0' is no device.
    pytest.param(Case(call="safedev.select_device('cuda :0')", gpus=4, raises="DeviceSpecError"), id="form-bad-6"),
    # Cuda:256 is not cuda:0.
    pytest.param(
        Case(
            call="safedev.select_device('cuda:256', fallback='raise')",
            gpus=4,
            raises="InvalidDeviceError",
            codes=("out-of-range",),
        ),
        id="form-256",
    ),
    # 300 is not cuda:44.
    pytest.param(
        Case(
            call="safedev.select_device(300, fallback='raise')",
            gpus=64,
            raises="InvalidDeviceError",
            codes=("out-of-range",),
        ),
        id="form-300",
    ),
    # -1 is not 'the last'.
    pytest.param(
        Case(
            call="safedev.select_device(-1, fallback='raise')",
            gpus=4,
            raises="InvalidDeviceError",
            codes=("negative-ordinal",),
        ),
        id="form-negative",
    ),
    # A UUID finds its card behind any mask.
    pytest.param(
        Case(
            call="safedev.select_device('GPU-03030303')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "3,2"},
            device="cuda:1",
            lands=2,
            warns="",
        ),
        id="form-uuid",
    ),
    # A UUID that the mask hides.
    pytest.param(
        Case(
            call="safedev.select_device('GPU-04040404', fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "0,1"},
            raises="InvalidDeviceError",
            codes=("not-visible",),
        ),
        id="form-uuid-hidden",
    ),
    # The default policy, for a negative ordinal.
    pytest.param(
        Case(call="safedev.select_device(-1)", gpus=2, device="cuda:0", warns="FallbackWarning"), id="fallback-negative"
    ),
    # Fallback='cpu'.
    pytest.param(
        Case(
            call="safedev.select_device(9, fallback='cpu')",
            gpus=4,
            device="cpu",
            warns="FallbackWarning",
            codes=("out-of-range",),
        ),
        id="fallback-cpu",
    ),
    # An unknown policy is named.
    pytest.param(
        Case(
            call="safedev.select_device(0, fallback='cup')",
            gpus=4,
            raises="ValueError",
            says=("cuda:0", "cpu", "raise"),
        ),
        id="fallback-unknown",
    ),
    # 'cuda' without a GPU: the CPU, with a warning.
    pytest.param(
        Case(
            call="safedev.select_device('cuda')",
            gpus=0,
            settings={"PRETEND_NVML": "absent"},
            device="cpu",
            warns="FallbackWarning",
            codes=("no-cuda-device",),
        ),
        id="fallback-no-gpu",
    ),
    # Nothing asked, no GPU: the CPU, no warning.
    pytest.param(
        Case(call="safedev.select_device()", gpus=0, settings={"PRETEND_NVML": "absent"}, device="cpu", warns=""),
        id="auto-no-gpu",
    ),
    # 0 without a GPU, 'raise'.
    pytest.param(
        Case(
            call="safedev.select_device(0, fallback='raise')",
            gpus=0,
            settings={"PRETEND_NVML": "absent"},
            raises="InvalidDeviceError",
            codes=("no-cuda-device",),
        ),
        id="raise-no-gpu",
    ),
    # Two workers, one bad ordinal: nobody is stacked on cuda:0.
    pytest.param(
        Case(
            call="safedev.select_device(5)",
            gpus=2,
            env=torchrun(1, of=2),
            raises="InvalidDeviceError",
            codes=("out-of-range",),
        ),
        id="fallback-declines",
    ),
    # 0,0 hides everything.
    pytest.param(
        Case(
            call="safedev.select_device(1, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "0,0"},
            raises="InvalidDeviceError",
            codes=("mask-repeated",),
        ),
        id="mask-repeated",
    ),
    # 9 ends the list.
    pytest.param(
        Case(
            call="safedev.select_device(1, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "0,9,1"},
            raises="InvalidDeviceError",
            codes=("mask-unknown-device",),
        ),
        id="mask-unknown",
    ),
    # Quotes that reached the value.
    pytest.param(
        Case(
            call="safedev.select_device(0, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": '"0,1"'},
            raises="InvalidDeviceError",
            codes=("mask-unreadable",),
            says=("quote",),
        ),
        id="mask-quoted",
    ),
    # 'all' is the container toolkit's word.
    pytest.param(
        Case(
            call="safedev.select_device(0, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "all"},
            raises="InvalidDeviceError",
            codes=("mask-unreadable",),
        ),
        id="mask-all",
    ),
    # 0-3 is 0 alone.
    pytest.param(
        Case(
            call="safedev.select_device(2, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "0-3"},
            raises="InvalidDeviceError",
            codes=("mask-unreadable",),
            says=("0,1,2,3",),
        ),
        id="mask-range",
    ),
    # Empty hides everything.
    pytest.param(
        Case(
            call="safedev.select_device(0, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": ""},
            raises="InvalidDeviceError",
            codes=("mask-hides-all",),
        ),
        id="mask-empty",
    ),
    # -1 hides everything.
    pytest.param(
        Case(
            call="safedev.select_device(0, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "-1"},
            raises="InvalidDeviceError",
            codes=("mask-hides-all",),
        ),
        id="mask-minus-one",
    ),
    # Blanks for commas.
    pytest.param(
        Case(
            call="safedev.select_device(1, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "0 1"},
            raises="InvalidDeviceError",
            codes=("mask-unreadable",),
        ),
        id="mask-blanks",
    ),
    # A mask on which torch's own parser fails.
    pytest.param(
        Case(
            call="safedev.select_device(0, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "--1"},
            raises="InvalidDeviceError",
            codes=("mask-unreadable",),
        ),
        id="mask-signs",
    ),
    # 1gpu2,2ampere is 1,2.
    pytest.param(
        Case(
            call="safedev.select_device(1)",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "1gpu2,2ampere"},
            device="cuda:1",
            lands=2,
        ),
        id="mask-suffix",
    ),
    # CUDA_VISIBLE_DEVICE is not the variable.
    pytest.param(
        Case(
            call="safedev.diagnose(1)", gpus=4, env={"CUDA_VISIBLE_DEVICE": "1"}, codes=("mask-misspelled",), valid=True
        ),
        id="mask-misspelled",
    ),
    # Two models, numbers, no order.
    pytest.param(
        Case(
            call="safedev.diagnose(1)",
            gpus=2,
            settings={"PRETEND_GPU_MODELS": "Small,Big", "PRETEND_GPU_FASTEST": "1,0"},
            codes=("order-ambiguous",),
        ),
        id="mask-ambiguous",
    ),
    # Devices are there and the driver cannot start.
    pytest.param(
        Case(
            call="safedev.set_device(0, fallback='raise')",
            gpus=2,
            settings={"PRETEND_DRIVER_ERROR": "35"},
            raises="InvalidDeviceError",
            codes=("driver-unusable",),
        ),
        id="mask-driver-old",
    ),
    # Four torchrun workers inherit the mask 0.
    pytest.param(
        Case(
            call="safedev.select_device()",
            gpus=4,
            env=torchrun(2, of=4, mask="0"),
            raises="InvalidDeviceError",
            codes=("oversubscribed",),
        ),
        id="rank-workers-share-one",
    ),
    # Four workers, two devices: rank 1 fails as rank 3 does.
    pytest.param(
        Case(
            call="safedev.select_device()",
            gpus=2,
            env=torchrun(1, of=4),
            raises="InvalidDeviceError",
            codes=("oversubscribed",),
        ),
        id="rank-workers-share-two",
    ),
    # A wrapper exports the local rank as the mask, or all share it: said so.
    pytest.param(
        Case(
            call="safedev.select_device()",
            gpus=4,
            env=torchrun(3, of=4, mask="3"),
            device="cuda:0",
            lands=3,
            warns="LocalRankWarning",
        ),
        id="rank-own-mask",
    ),
    # Local rank 1, one device, no evidence either way.
    pytest.param(
        Case(
            call="safedev.select_device()",
            gpus=4,
            env={"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": "0"},
            device="cuda:0",
            warns="LocalRankWarning",
        ),
        id="rank-unknown-mask",
    ),
    # The opt-in: rank 3 of 4 on two devices.
    pytest.param(
        Case(
            call="safedev.select_device(fallback=safedev.policies.share)",
            gpus=2,
            env=torchrun(3, of=4),
            device="cuda:1",
            warns="FallbackWarning",
        ),
        id="rank-share",
    ),
    # RANK without a local rank, several devices.
    pytest.param(
        Case(
            call="safedev.select_device()",
            gpus=4,
            env={"RANK": "3", "WORLD_SIZE": "4"},
            raises="LocalRankError",
            says=("LOCAL_RANK",),
        ),
        id="rank-only",
    ),
    # Empty variables are unset.
    pytest.param(
        Case(
            call="safedev.select_device()",
            gpus=4,
            env={"RANK": "", "LOCAL_RANK": "", "WORLD_SIZE": ""},
            device="cuda:0",
            warns="",
        ),
        id="rank-empty",
    ),
    # -1 means no launcher.
    pytest.param(
        Case(call="safedev.resolve_local_rank()", gpus=4, env={"LOCAL_RANK": "-1"}, value=0), id="rank-minus-one"
    ),
    # LOCAL_RANK=abc.
    pytest.param(
        Case(
            call="safedev.resolve_local_rank()",
            gpus=4,
            env={"LOCAL_RANK": "abc"},
            raises="LocalRankError",
            attrs={"variable": "LOCAL_RANK", "value": "abc"},
        ),
        id="rank-word",
    ),
    # Nothing launched it.
    pytest.param(Case(call="safedev.resolve_local_rank()", gpus=4, value=0), id="rank-none"),
    # Nothing launched it, default=None.
    pytest.param(Case(call="safedev.resolve_local_rank(default=None)", gpus=4, value=None), id="rank-default"),
    # Two Slurm tasks on a node.
    pytest.param(
        Case(
            call="safedev.resolve_local_rank()",
            gpus=4,
            env={
                "SLURM_JOB_ID": "7",
                "SLURM_STEP_ID": "0",
                "SLURM_LOCALID": "1",
                "SLURM_PROCID": "1",
                "SLURM_NTASKS": "2",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_TASKS_PER_NODE": "2",
                "SLURM_NODEID": "0",
            },
            value=1,
        ),
        id="rank-slurm-variable",
    ),
    # Mpirun in a one-task Slurm step: SLURM_LOCALID is the shell's.
    pytest.param(
        Case(
            call="safedev.resolve_local_rank()",
            gpus=4,
            env={
                "SLURM_JOB_ID": "7",
                "SLURM_LOCALID": "0",
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "2",
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            value=2,
        ),
        id="rank-mpirun-in-slurm",
    ),
    # An own device is an observation, not a fault.
    pytest.param(
        Case(
            call="safedev.diagnose()",
            gpus=4,
            env={
                "SLURM_JOB_ID": "7",
                "SLURM_STEP_ID": "0",
                "SLURM_LOCALID": "1",
                "SLURM_PROCID": "1",
                "SLURM_NTASKS": "2",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_TASKS_PER_NODE": "2",
                "SLURM_NODEID": "0",
                "SLURM_GTIDS": "0,1",
                "SLURMD_TRES_BIND": "gpu:per_task:1",
                "SLURM_GPUS_ON_NODE": "2",
                "SLURM_STEP_GPUS": "1",
                "CUDA_VISIBLE_DEVICES": "1",
            },
            valid=True,
            codes=("one-device-per-rank",),
        ),
        id="rank-own-said",
    ),
    # The mask is written.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices([2, 3])",
            gpus=4,
            fresh=True,
            environ={"CUDA_VISIBLE_DEVICES": "2,3"},
            asleep=True,
        ),
        id="guard-sets",
    ),
    # The mask is written, from text.
    pytest.param(
        Case(call="safedev.guard_visible_devices('1')", gpus=4, fresh=True, environ={"CUDA_VISIBLE_DEVICES": "1"}),
        id="guard-text",
    ),
    # Under 4,5 the first device is 4.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices(0)",
            gpus=8,
            env={"CUDA_VISIBLE_DEVICES": "4,5"},
            fresh=True,
            environ={"CUDA_VISIBLE_DEVICES": "4"},
        ),
        id="guard-narrows",
    ),
    # Under 4,5 there is no device 4.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices(4)",
            gpus=8,
            env={"CUDA_VISIBLE_DEVICES": "4,5"},
            fresh=True,
            raises="MaskError",
            says=("4,5",),
            environ={"CUDA_VISIBLE_DEVICES": "4,5"},
        ),
        id="guard-cage",
    ),
    # Import torch alone is not too late.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices(1)",
            gpus=4,
            before="import torch",
            environ={"CUDA_VISIBLE_DEVICES": "1"},
        ),
        id="guard-torch-imported",
    ),
    # Is_available() has started the driver.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices(1)",
            gpus=4,
            before="import torch; torch.cuda.is_available()",
            raises="MaskTooLateError",
            environ={"CUDA_VISIBLE_DEVICES": None},
        ),
        id="guard-too-late",
    ),
    # PCI order.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices(1, order='PCI_BUS_ID')",
            gpus=4,
            fresh=True,
            environ={"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        ),
        id="guard-order",
    ),
    # Numbers inherited under another order.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices(0, order='PCI_BUS_ID')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "2,3"},
            fresh=True,
            raises="MaskError",
            environ={"CUDA_DEVICE_ORDER": None, "CUDA_VISIBLE_DEVICES": "2,3"},
        ),
        id="guard-order-refused",
    ),
    # A defect in the mask in force.
    pytest.param(
        Case(
            call="safedev.guard_visible_devices()",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "1,1"},
            fresh=True,
            warns="MaskWarning",
            codes=("mask-repeated",),
        ),
        id="guard-reads",
    ),
    # Frozen at 2,3, then edited to 0: two devices are real.
    pytest.param(
        Case(
            call="safedev.select_device(1)",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "2,3"},
            before="import torch; torch.cuda.is_available(); import os; os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
            device="cuda:1",
            lands=3,
        ),
        id="frozen-mask-shrunk",
    ),
    # Frozen at 2, then edited to 0,1: one device is real.
    pytest.param(
        Case(
            call="safedev.select_device(1, fallback='raise')",
            gpus=4,
            env={"CUDA_VISIBLE_DEVICES": "2"},
            before="import torch; torch.cuda.is_available(); import os; os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'",
            raises="InvalidDeviceError",
            codes=("mask-too-late",),
        ),
        id="frozen-mask-grown",
    ),
    # Set_device makes it current.
    pytest.param(Case(call="safedev.set_device(2)", gpus=4, device="cuda:2", current=2), id="set-current"),
    # Set_device() under torchrun.
    pytest.param(
        Case(call="safedev.set_device()", gpus=4, env=torchrun(1, of=4), device="cuda:1", current=1),
        id="set-local-rank",
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_a_call_on_a_machine(case: Case, rig: Any) -> None:
    """
    The call gives what is expected of it, and points its warnings at the caller.
    """
    wants = [name for name in ("lands", "current") if getattr(case, name) is not None]

    result = rig.call(
        observe,
        case.call,
        wants,
        gpus=case.gpus,
        env=case.env,
        settings=case.settings,
        before=[case.before] if case.before else [],
        fresh=case.fresh,
    )

    seen = result.value
    assert (case.raises or "nothing") in (seen["raised"] or ["nothing"]), seen["text"]
    assert case.device in {None, seen["result"]}
    assert case.value in ("any", seen["value"])
    if case.warns is not None:
        assert (case.warns or "nothing") in (seen["warned"] or ["nothing"]), seen["text"]
    assert set(seen["places"]) <= {"<the caller>"}
    assert set(case.codes) <= set(seen["codes"])
    assert case.suggests is None or case.suggests in seen["suggested"]
    assert [] == [words for words in case.says if words.lower() not in seen["text"].lower()]
    assert case.valid in {None, seen["valid"]}
    assert case.environ == {name: seen["environ"].get(name) for name in case.environ}
    assert case.attrs == {name: seen["attrs"][name] for name in case.attrs}
    assert case.lands in {None, seen.get("lands")}
    assert case.current in {None, seen.get("current")}
    assert not (case.asleep and case.lands is None and result.awake)
