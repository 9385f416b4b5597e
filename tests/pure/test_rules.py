"""Each code: where it is found, what it names and suggests, and where it is not found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedev._diagnosis import Diagnosis, Finding
from safedev._isolation import Isolation
from safedev._mask import parse_mask
from safedev._quick import changed
from safedev._request import Request, request_for
from safedev._resolve import resolve
from safedev._rules import judge
from safedev._sharing import Sharing
from safedev._snapshot import PhysicalDevice, Snapshot
from safedev.errors import LocalRankError
from safedev.launchers import Launch

CODES = {
    "out-of-range",
    "negative-ordinal",
    "physical-index",
    "global-rank",
    "oversubscribed",
    "one-device-per-rank",
    "stale-local-rank",
    "not-visible",
    "no-such-accelerator",
    "no-cuda-device",
    "torch-without-cuda",
    "driver-unusable",
    "device-unusable",
    "mask-hides-all",
    "mask-unreadable",
    "mask-repeated",
    "mask-unknown-device",
    "mask-mixed",
    "mask-mig",
    "mask-misspelled",
    "mask-too-late",
    "mask-not-in-force",
    "masks-stacked",
    "count-disagrees",
    "order-ambiguous",
    "no-local-rank",
    "launcher-doubt",
}

SHARED = Sharing(kind="shared", reason="torchrun's workers share")
OWN = Sharing(kind="own", reason="a Ray task")
LOST = "CUDA error: GPU is lost"
NO_RANK = LocalRankError(
    "mpi", "OMPI_COMM_WORLD_LOCAL_RANK", None, "WORLD_SIZE='4' counts several: set LOCAL_RANK\n  looked for: LOCAL_RANK"
)
CAUTION = "LOCAL_RANK='1' looks left over\n  fix: unset LOCAL_RANK"


def seen(count: int, mask: str | None = None, **more: Any) -> Snapshot:
    """A process that sees *count* devices by a torch with CUDA."""
    more.setdefault("cuda_build", "12.8")
    return Snapshot(mask=parse_mask(mask), device_count=count, **more)


def rocm(count: int, cuda: str | None = None, **variables: str) -> Snapshot:
    """What torch counts on ROCm under these masks; it reads HIP's where that is set, be it empty."""
    hip = variables.get("HIP_VISIBLE_DEVICES")
    mask = parse_mask(cuda) if hip is None else parse_mask(hip, variable="HIP_VISIBLE_DEVICES")
    if cuda is not None:
        variables["CUDA_VISIBLE_DEVICES"] = cuda
    return Snapshot(mask=mask, device_count=count, hip_build="6.4", variables=variables)


def launched(local_rank: int, local_world_size: int | None = None, **more: Any) -> Launch:
    more.setdefault("sources", (("local_rank", "LOCAL_RANK"),))
    return Launch(launcher="torchrun", local_rank=local_rank, local_world_size=local_world_size, **more)


def machine(*models: str, mig: bool = False) -> tuple[PhysicalDevice, ...]:
    """The inventory of a machine with devices of these models; their UUIDs begin with GPU-0, GPU-1 ..."""
    return tuple(PhysicalDevice(index=n, uuid=f"GPU-{n}abc", name=model, mig=mig) for n, model in enumerate(models))


ONE, TWO, THREE = "MIG-11111111-5b7e", "MIG-22222222-5b7e", "MIG-33333333-5b7e"


def divided(
    count: int, *parts: tuple[int, tuple[str, ...] | None] | None, mask: str | None = None, **more: Any
) -> Snapshot:
    """A process that torch tells of *count* devices; of each of the machine, in how many GPU instances its MIG
    instances lie, and their UUIDs. None: a whole device.
    """
    devices = tuple(
        PhysicalDevice(
            index=n,
            uuid=f"GPU-{n}abc",
            name="A100",
            mig=part is not None,
            instances=part[1] if part else None,
            gpu_instances=part[0] if part else 0,
        )
        for n, part in enumerate(parts)
    )
    return seen(count, mask, physical=devices, physical_count=len(devices), **more)


def with_machine(snapshot: Snapshot, *models: str, mig: bool = False) -> Snapshot:
    return replace(snapshot, physical=machine(*models, mig=mig), physical_count=len(models))


def found(code: str, preferred: object, snapshot: Snapshot) -> list[Finding]:
    return [finding for finding in judge(request_for(preferred), snapshot).findings if finding.code == code]


# Of each code at least one situation: the request, the reading, what the reason names, what is suggested.
SITUATIONS = [
    pytest.param("out-of-range", 3, seen(2), ["the last one here is 1"], "cuda:0", id="out-of-range"),
    pytest.param(
        "out-of-range",
        7,
        seen(4, launch=launched(2, 4), sharing=SHARED),
        ["is 3"],
        "cuda:2",
        id="out-of-range-of-a-worker",
    ),
    pytest.param(
        "out-of-range", 7, seen(2, launch=launched(2, 4), sharing=SHARED), ["is 1"], None, id="out-of-range-and-crowded"
    ),
    pytest.param("out-of-range", 7, seen(2, launch_error=NO_RANK), ["is 1"], None, id="out-of-range-and-no-local-rank"),
    pytest.param(
        "negative-ordinal",
        -1,
        seen(4, launch=launched(2, 4), sharing=SHARED),
        ["-1"],
        "cuda:2",
        id="negative-ordinal-of-a-worker",
    ),
    pytest.param(
        "no-local-rank",
        "cuda",
        seen(1, launch_error=NO_RANK),
        ["WORLD_SIZE='4' counts several"],
        None,
        id="no-local-rank",
    ),
    pytest.param(
        "no-local-rank",
        "xpu",
        seen(0, accelerator="xpu", accelerator_count=2, launch_error=NO_RANK),
        ["WORLD_SIZE='4'"],
        None,
        id="no-local-rank-of-another-kind",
    ),
    pytest.param(
        "launcher-doubt",
        "cuda",
        seen(2, launch=launched(1, 2, caution=CAUTION)),
        ["LOCAL_RANK='1' looks left over"],
        None,
        id="launcher-doubt",
    ),
    pytest.param(
        "launcher-doubt",
        "xpu",
        seen(0, accelerator="xpu", accelerator_count=2, launch=launched(1, 2, caution="a word")),
        ["a word"],
        None,
        id="launcher-doubt-without-a-remedy",
    ),
    pytest.param(
        "no-cuda-device",
        "cuda",
        seen(0, cuda_build=None),
        ["this build of torch has no CUDA"],
        "cpu",
        id="no-cuda-device-nor-build",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        with_machine(seen(0, "GPU-,GPU-1"), "A", "A"),
        ["'GPU-'", "2 devices, and 2 of them fit it"],
        None,
        id="mask-unknown-device-ambiguous",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        seen(0, "7", physical_count=1),
        ["has 1 device:"],
        None,
        id="mask-unknown-device-of-one",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        seen(0, "7", physical_count=3),
        ["3 devices, 0 to 2:"],
        None,
        id="mask-unknown-device-of-three",
    ),
    pytest.param(
        "not-visible",
        "GPU-1",
        with_machine(seen(1, found=()), "A", "A"),
        ["no visible device"],
        "cuda:0",
        id="not-visible-and-no-mask",
    ),
    pytest.param("negative-ordinal", -1, seen(2), ["-1"], "cuda:0", id="negative-ordinal"),
    pytest.param("negative-ordinal", -1, seen(0), ["-1"], None, id="negative-ordinal-and-no-device"),
    pytest.param("physical-index", 5, seen(2, "4,5"), ["5", "ordinal 1"], "cuda:1", id="physical-index"),
    pytest.param(
        "global-rank", 7, seen(4, launch=launched(3, 4, rank=7)), ["7", "3", "local rank"], "cuda:3", id="global-rank"
    ),
    pytest.param(
        "global-rank",
        7,
        seen(1, launch=launched(3, 4, rank=7), sharing=OWN),
        ["7"],
        "cuda:0",
        id="global-rank-own-device",
    ),
    pytest.param(
        "oversubscribed",
        None,
        seen(2, launch=launched(0, 4), sharing=SHARED),
        ["4 workers", "2 devices", SHARED.reason],
        None,
        id="oversubscribed",
    ),
    pytest.param(
        "oversubscribed",
        None,
        seen(2, launch=launched(2)),
        ["local rank 2", "2 devices"],
        None,
        id="oversubscribed-uncounted",
    ),
    pytest.param(
        "oversubscribed",
        "xpu",
        seen(0, accelerator="xpu", accelerator_count=2, launch=launched(3, 4), sharing=SHARED),
        ["4 workers", "2 devices"],
        None,
        id="oversubscribed-other-accelerator",
    ),
    pytest.param(
        "one-device-per-rank",
        None,
        seen(1, "1", launch=launched(1, 2), sharing=OWN),
        [OWN.reason],
        "cuda:0",
        id="one-device-per-rank",
    ),
    pytest.param(
        "one-device-per-rank",
        1,
        seen(1, "1", launch=launched(1, 2), sharing=OWN),
        [OWN.reason],
        "cuda:0",
        id="one-device-per-rank-asked-by-local-rank",
    ),
    pytest.param(
        "one-device-per-rank",
        None,
        seen(1, "1", launch=launched(1, 2), sharing=replace(OWN, doubt=True)),
        ["local rank 1", OWN.reason],
        "cuda:0",
        id="one-device-per-rank-in-doubt",
    ),
    pytest.param(
        "stale-local-rank",
        None,
        seen(2, launch=launched(1, confirmed=False)),
        ["LOCAL_RANK"],
        None,
        id="stale-local-rank",
    ),
    pytest.param(
        "no-local-rank",
        None,
        seen(2, launch_error=NO_RANK),
        ["WORLD_SIZE='4'"],
        None,
        id="no-local-rank-without-a-wish",
    ),
    pytest.param(
        "launcher-doubt",
        None,
        seen(2, launch=launched(1, caution=CAUTION)),
        ["LOCAL_RANK='1' looks left over"],
        None,
        id="launcher-doubt-without-a-wish",
    ),
    pytest.param("mask-hides-all", "GPU-0", seen(0, "-1"), ["'-1' hides every device"], None, id="hidden-uuid"),
    pytest.param(
        "stale-local-rank",
        "cuda",
        seen(2, launch=launched(1, confirmed=False)),
        ["LOCAL_RANK"],
        None,
        id="stale-local-rank-where-cuda-is-wanted",
    ),
    pytest.param(
        "not-visible",
        "GPU-1",
        with_machine(seen(1, "0", found=()), "A", "A"),
        ["mask hides"],
        "cuda:0",
        id="not-visible",
    ),
    pytest.param(
        "not-visible",
        "GPU-1A",
        with_machine(seen(1, "0", found=()), "A", "A"),
        ["mask hides"],
        "cuda:0",
        id="not-visible-in-capitals",
    ),
    pytest.param(
        "not-visible", "GPU-f", seen(2, found=()), ["no visible device"], "cuda:0", id="not-visible-unknown-uuid"
    ),
    pytest.param(
        "not-visible",
        "GPU-0",
        seen(2, found=(0, 1)),
        ["2 devices", "cuda:0, cuda:1"],
        "cuda:0",
        id="not-visible-ambiguous",
    ),
    pytest.param("not-visible", "GPU-0", seen(2, found=None), ["nobody"], "cuda:0", id="not-visible-nobody-can-tell"),
    pytest.param("no-such-accelerator", "xpu", seen(2), ["no xpu device"], "cpu", id="no-such-accelerator"),
    pytest.param(
        "no-such-accelerator",
        "npu:4",
        seen(0, accelerator="npu", accelerator_count=2),
        ["2 devices", "4"],
        "npu:0",
        id="no-such-accelerator-past-the-last",
    ),
    pytest.param(
        "no-such-accelerator",
        "xpu:0",
        seen(0, accelerator="npu", accelerator_count=2),
        ["xpu"],
        "cpu",
        id="no-such-accelerator-another-is-there",
    ),
    pytest.param("no-cuda-device", 0, seen(0), ["no CUDA device"], "cpu", id="no-cuda-device"),
    pytest.param("no-cuda-device", "cuda", seen(0), ["no CUDA device"], "cpu", id="no-cuda-device-by-type"),
    pytest.param(
        "no-cuda-device",
        "cuda",
        seen(0, "-1", cuda_build=None),
        ["this build of torch has no CUDA"],
        "cpu",
        id="no-cuda-device-nor-build-under-a-mask-that-hides",
    ),
    pytest.param(
        "no-cuda-device",
        "cuda",
        seen(0, "0-3", physical_count=0),
        ["no CUDA device in this machine or container, and no mask hides one"],
        "cpu",
        id="no-cuda-device-whatever-the-mask",
    ),
    pytest.param(
        "no-cuda-device",
        "cuda",
        seen(0, isolation=Isolation(on_bus=4, loaded=True, nodes=())),
        ["4 NVIDIA devices on its bus", "given none"],
        "cpu",
        id="no-cuda-device-in-a-container",
    ),
    pytest.param(
        "driver-unusable",
        0,
        seen(
            0,
            count_evidence="CUDA initialization: unknown error",
            isolation=Isolation(on_bus=2, loaded=True, nodes=(0, 1), closed=(0, 1)),
        ),
        ["'CUDA initialization: unknown error'; the host has 2", "may not open /dev/nvidia0"],
        "cpu",
        id="driver-unusable-closed-nodes",
    ),
    pytest.param(
        "torch-without-cuda",
        "cuda",
        seen(0, cuda_build=None, physical_count=4),
        ["4 NVIDIA devices"],
        "cpu",
        id="torch-without-cuda",
    ),
    pytest.param(
        "driver-unusable",
        0,
        seen(0, driver_cuda=11040, physical_count=1),
        ["11.4", "12.8"],
        "cpu",
        id="driver-unusable",
    ),
    pytest.param(
        "driver-unusable",
        0,
        seen(0, cuda_build="13.0", driver_cuda=12000),
        ["CUDA 12.0 ", "13.0"],
        "cpu",
        id="driver-unusable-one-major-version",
    ),
    pytest.param(
        "driver-unusable",
        0,
        seen(0, physical_count=1, count_evidence="CUDA initialization: unknown error"),
        ["'CUDA initialization: unknown error'"],
        "cpu",
        id="driver-unusable-cannot-count",
    ),
    pytest.param("driver-unusable", None, seen(0, forked=True), ["forked"], "cpu", id="driver-unusable-forked"),
    pytest.param(
        "driver-unusable",
        0,
        seen(1, refusal="driver too old", refused=("cuda:0",)),
        ["'driver too old'"],
        "cpu",
        id="driver-unusable-refused",
    ),
    pytest.param(
        "device-unusable",
        0,
        seen(2, driver_count=2, refusal=LOST, refused=("cuda:0",)),
        [repr(LOST)],
        "cuda:1",
        id="device-unusable",
    ),
    pytest.param(
        "device-unusable",
        1,
        seen(2, driver_count=2, refusal=LOST, refused=("cuda:1",)),
        [repr(LOST)],
        "cuda:0",
        id="device-unusable-the-second",
    ),
    pytest.param(
        "device-unusable",
        0,
        seen(1, driver_count=1, refusal=LOST, refused=("cuda:0",)),
        [repr(LOST)],
        "cpu",
        id="device-unusable-the-only-one",
    ),
    pytest.param(
        "device-unusable",
        0,
        replace(rocm(1), refusal="HIP error: out of memory", refused=("cuda:0",)),
        ["the device is there", "out of memory"],
        "cpu",
        id="device-unusable-of-rocm-without-memory",
    ),
    pytest.param(
        "device-unusable",
        2,
        seen(2, driver_count=2, refusal="invalid device ordinal", refused=("cuda:2",)),
        ["the driver shows 2 devices"],
        "cuda:0",
        id="device-unusable-the-driver-has-fewer",
    ),
    pytest.param(
        "device-unusable",
        "xpu:1",
        seen(0, accelerator="xpu", accelerator_count=2, refusal="out of resources", refused=("xpu:1",)),
        ["'out of resources'"],
        "cpu",
        id="device-unusable-other-accelerator-of-several",
    ),
    pytest.param(
        "device-unusable",
        "xpu",
        seen(0, accelerator="xpu", accelerator_count=1, refusal="out of resources", refused=("xpu:0",)),
        ["'out of resources'"],
        "cpu",
        id="device-unusable-other-accelerator",
    ),
    pytest.param("mask-hides-all", 0, seen(0, ""), ["''"], None, id="mask-hides-all"),
    pytest.param("mask-hides-all", "cuda", seen(0, "-1"), ["'-1'"], None, id="mask-hides-all-by-minus-one"),
    pytest.param("mask-unreadable", 0, seen(0, "all"), ["'all'"], None, id="mask-unreadable"),
    pytest.param("mask-repeated", 0, seen(0, "0,1,0"), ["'0'"], None, id="mask-repeated"),
    pytest.param(
        "mask-unreadable", 0, rocm(0, HIP_VISIBLE_DEVICES="all"), ["'all'"], None, id="mask-unreadable-by-hip"
    ),
    pytest.param(
        "mask-unknown-device",
        1,
        seen(1, "0,2", physical_count=2),
        ["'2'", "2 devices, 0 and 1: "],
        "cuda:0",
        id="mask-unknown-device",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        seen(0, "7", physical_count=2),
        ["'7'", "2 devices"],
        None,
        id="mask-unknown-device-first",
    ),
    pytest.param(
        "mask-unknown-device",
        1,
        with_machine(seen(1, "GPU-0,GPU-9"), "A", "A"),
        ["'GPU-9'", "2 devices, none by that UUID"],
        "cuda:0",
        id="mask-unknown-device-by-uuid",
    ),
    pytest.param("mask-unknown-device", 1, seen(1, "0,-1,1"), ["'-1'"], None, id="mask-unknown-device-negative"),
    pytest.param("mask-mixed", 1, seen(1, "GPU-0,1"), ["'1'"], None, id="mask-mixed"),
    pytest.param("mask-mig", 1, seen(1, "MIG-a,MIG-b"), ["2 MIG", "1"], "cuda:0", id="mask-mig"),
    pytest.param(
        "mask-mig", 1, with_machine(seen(1, "0"), "A", mig=True), ["device 0"], None, id="mask-mig-whole-device"
    ),
    pytest.param(
        "mask-mig",
        1,
        divided(1, (2, (ONE, TWO))),
        ["physical device 0 is in MIG mode", "it has 2 instances"],
        None,
        id="mask-mig-instances-are-listed",
    ),
    pytest.param(
        "mask-mig", 1, divided(1, (0, ())), ["has no instance, so nothing"], None, id="mask-mig-without-an-instance"
    ),
    pytest.param(
        "mask-mig",
        1,
        divided(1, (1, (ONE, TWO)), mask="MIG-1,MIG-2", driver_count=1, driver_release="580.65"),
        ["lists 2", "shows 1", "from driver R570 on: one of each GPU instance"],
        "cuda:0",
        id="mask-mig-of-one-gpu-instance",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        divided(0, (2, (ONE, TWO)), mask="MIG-9", driver_count=0),
        ["'MIG-9'", f"2 MIG instances: {ONE}, ..."],
        None,
        id="mask-unknown-device-instance",
    ),
    pytest.param(
        "mask-unknown-device",
        1,
        divided(1, (1, (ONE,)), mask=f"{ONE},MIG-9", driver_count=1),
        ["'MIG-9'", f"1 MIG instance: {ONE}:"],
        "cuda:0",
        id="mask-unknown-device-second-instance",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        divided(0, (0, ()), mask="MIG-9", driver_count=0),
        ["0 MIG instances:"],
        None,
        id="mask-unknown-device-no-instance-was-made",
    ),
    # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html
    pytest.param(
        "count-disagrees",
        0,
        divided(2, (2, (ONE, TWO, THREE)), None, driver_release="580.65.06"),
        ["counts 2 whole devices", "physical device 0 is in MIG mode", "shows 3 (from driver R570 on"],
        None,
        id="count-disagrees-from-r570-on",
    ),
    pytest.param(
        "count-disagrees",
        0,
        divided(2, (2, (ONE, TWO, THREE)), None, driver_release="535.261.03"),
        ["counts 2 whole devices", "shows 1 (before driver R570"],
        None,
        id="count-disagrees-before-r570",
    ),
    pytest.param(
        "count-disagrees",
        0,
        divided(2, (2, (ONE, TWO, THREE)), None),
        ["shows 1 (before driver R570: one at most), or 3 (from driver R570 on"],
        None,
        id="count-disagrees-release-unknown",
    ),
    pytest.param(
        "count-disagrees",
        0,
        divided(2, (0, ()), None, driver_release="580.65.06"),
        ["shows 1, since no instance was made"],
        None,
        id="count-disagrees-no-instance",
    ),
    pytest.param(
        "count-disagrees",
        0,
        divided(1, (60, tuple(f"MIG-{n}" for n in range(100, 200))), mask="0", driver_release="570.1"),
        ["counts 1 whole device,", "shows 60 "],
        None,
        id="count-disagrees-under-a-mask",
    ),
    pytest.param(
        "count-disagrees",
        0,
        divided(10, *[(7, (ONE,))] * 10, driver_release="570.1"),
        ["shows 64 "],
        None,
        id="count-disagrees-at-most-64",
    ),
    # https://github.com/ROCm/ROCR-Runtime, amd_filter_device.cpp; https://github.com/ROCm/clr, rocdevice.cpp
    pytest.param(
        "count-disagrees",
        0,
        rocm(0, HIP_VISIBLE_DEVICES=""),
        ["0 devices under HIP_VISIBLE_DEVICES=''", "as unset"],
        None,
        id="count-disagrees-hip-empty",
    ),
    pytest.param(
        "count-disagrees", 0, rocm(0, ""), ["0 devices under CUDA_VISIBLE_DEVICES=''"], None, id="count-disagrees-empty"
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(0, ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES=""),
        ["0 devices under HIP_VISIBLE_DEVICES=''"],
        None,
        id="count-disagrees-hip-empty-inside-rocr",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(1, ROCR_VISIBLE_DEVICES=""),
        ["1 device under ROCR_VISIBLE_DEVICES=''", "shows none"],
        None,
        id="count-disagrees-rocr-empty",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(2, ROCR_VISIBLE_DEVICES="0,0"),
        ["2 devices under ROCR_VISIBLE_DEVICES='0,0'", "shows 1 at most"],
        None,
        id="count-disagrees-rocr-repeated",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(4, ROCR_VISIBLE_DEVICES="1"),
        ["4 devices under ROCR_VISIBLE_DEVICES='1'", "shows 1 at most: this torch does not read that mask"],
        None,
        id="count-disagrees-rocr-is-not-read",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(4, "1"),
        ["4 devices under CUDA_VISIBLE_DEVICES='1'", "this torch does not read that mask"],
        None,
        id="count-disagrees-cuda-is-not-read",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(2, HIP_VISIBLE_DEVICES="0, 1"),
        ["2 devices under HIP_VISIBLE_DEVICES='0, 1'", "shows 1 at most", "without blanks"],
        None,
        id="count-disagrees-hip-blank",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(1, HIP_VISIBLE_DEVICES="01"),
        ["1 device under HIP_VISIBLE_DEVICES='01'", "shows none"],
        None,
        id="count-disagrees-hip-leading-zero",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(0, HIP_VISIBLE_DEVICES="0,0,1"),
        ["0 devices under HIP_VISIBLE_DEVICES='0,0,1'", "shows 2 at most"],
        None,
        id="count-disagrees-hip-repeated",
    ),
    pytest.param(
        "count-disagrees",
        0,
        rocm(1, "0,GPU-ab"),
        ["1 device under CUDA_VISIBLE_DEVICES='0,GPU-ab'", "shows 2 at most"],
        None,
        id="count-disagrees-mixed",
    ),
    pytest.param(
        "mask-hides-all",
        0,
        rocm(0, ""),
        ["CUDA_VISIBLE_DEVICES=''", "ROCm takes an empty one as unset"],
        None,
        id="mask-hides-all-says-torch-of-cuda",
    ),
    pytest.param(
        "mask-misspelled",
        2,
        seen(2, misspelled=("CUDA_VISIBLE_DEVICE", "CUDA_VISBLE_DEVICES")),
        ["'CUDA_VISIBLE_DEVICE'"],
        None,
        id="mask-misspelled",
    ),
    pytest.param(
        "mask-too-late",
        0,
        seen(2, "0", driver_count=2, physical_count=2),
        ["'0'", "2 devices"],
        "cuda:0",
        id="mask-too-late",
    ),
    pytest.param(
        "mask-too-late",
        0,
        with_machine(seen(1, driver_count=1, uuids=("GPU-0abc",)), "A", "A"),
        ["unset", "1 device"],
        "cuda:0",
        id="mask-too-late-unset",
    ),
    pytest.param(
        "mask-too-late",
        0,
        seen(0, "1", driver_count=0, physical_count=2),
        ["'1'", "0 devices"],
        None,
        id="mask-too-late-nothing-left",
    ),
    pytest.param(
        "mask-too-late",
        0,
        with_machine(seen(1, "1", driver_count=1, uuids=("GPU-0abc",)), "A", "A"),
        ["'1'"],
        "cuda:0",
        id="mask-too-late-by-uuid",
    ),
    pytest.param(
        "masks-stacked",
        1,
        seen(1, cuda_build=None, hip_build="6.4", variables={"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "2"}),
        ["ROCR_VISIBLE_DEVICES='2'", "HIP_VISIBLE_DEVICES='2'"],
        None,
        id="masks-stacked",
    ),
    pytest.param(
        "masks-stacked",
        1,
        seen(1, "3", cuda_build=None, hip_build="6.4", variables={"ROCR_VISIBLE_DEVICES": "2"}),
        ["ROCR_VISIBLE_DEVICES='2'", "CUDA_VISIBLE_DEVICES='3'"],
        None,
        id="masks-stacked-on-cuda",
    ),
    pytest.param(
        "order-ambiguous", 2, with_machine(seen(2), "H100", "T4"), ["differ ('H100', 'T4')"], None, id="order-ambiguous"
    ),
    pytest.param(
        "order-ambiguous",
        2,
        with_machine(seen(2, "1,0"), "H100", "T4"),
        ["'H100'", "'T4'"],
        None,
        id="order-ambiguous-under-numbers",
    ),
    pytest.param(
        "mask-not-in-force",
        0,
        seen(2, "0", exported=parse_mask(None)),
        ["is '0' in os.environ", "unset in the environment"],
        None,
        id="mask-not-in-force",
    ),
    pytest.param(
        "mask-not-in-force",
        0,
        seen(2, exported=parse_mask("1")),
        ["is unset in os.environ", "'1' in the environment"],
        None,
        id="mask-not-in-force-put-past-it",
    ),
    pytest.param(
        "out-of-range",
        5,
        seen(2, physical_count=2, isolation=Isolation(on_bus=8)),
        ["the host has 8", "given 2"],
        "cuda:0",
        id="out-of-range-in-a-container",
    ),
    pytest.param(
        "out-of-range",
        5,
        seen(2, variables={"NVIDIA_VISIBLE_DEVICES": "4,5"}),
        ["NVIDIA_VISIBLE_DEVICES='4,5'"],
        "cuda:0",
        id="out-of-range-by-the-hosts-number",
    ),
    # https://github.com/ROCm/clr, rocdevice.cpp: HIP's numbers count inside what ROCr left; an empty one is as unset.
    pytest.param(
        "masks-stacked",
        0,
        rocm(1, ROCR_VISIBLE_DEVICES="2", HIP_VISIBLE_DEVICES="0,1"),
        ["shows 1 device"],
        None,
        id="masks-stacked-a-number-is-lost",
    ),
    pytest.param(
        "masks-stacked",
        0,
        rocm(2, ROCR_VISIBLE_DEVICES="2,3", HIP_VISIBLE_DEVICES="0"),
        ["shows 1 device at most", "counts 2"],
        None,
        id="masks-stacked-torch-counts-otherwise",
    ),
    pytest.param(
        "masks-stacked",
        0,
        rocm(0, "1", ROCR_VISIBLE_DEVICES="2,3", HIP_VISIBLE_DEVICES=""),
        ["CUDA_VISIBLE_DEVICES='1'"],
        None,
        id="masks-stacked-hip-is-empty",
    ),
    pytest.param(
        "mask-hides-all",
        0,
        rocm(0, HIP_VISIBLE_DEVICES=""),
        ["HIP_VISIBLE_DEVICES=''", "ROCm takes an empty one as unset"],
        None,
        id="mask-hides-all-says-torch",
    ),
    pytest.param(
        "mask-too-late",
        0,
        with_machine(seen(1, "GPU-0,GPU-1", driver_count=1), "A", "A"),
        ["'GPU-0,GPU-1'", "1 device"],
        "cuda:0",
        id="mask-too-late-uuids",
    ),
    pytest.param(
        "driver-unusable",
        0,
        seen(0, forked=True, driver_cuda=11040),
        ["forked"],
        "cpu",
        id="driver-unusable-forked-and-old",
    ),
    pytest.param(
        "driver-unusable",
        0,
        seen(0, driver_cuda=11040, refusal="too old", refused=("cuda:0",)),
        ["'too old'"],
        "cpu",
        id="driver-unusable-refused-and-old",
    ),
    pytest.param(
        "global-rank",
        7,
        seen(4, launch=launched(3, 4, rank=7), sharing=SHARED),
        ["7", "3"],
        "cuda:3",
        id="global-rank-shared-view",
    ),
    pytest.param(
        "not-visible", "GPU-0", seen(2, found=(2,)), ["no visible device"], "cuda:0", id="not-visible-past-the-last"
    ),
    pytest.param(
        "torch-without-cuda",
        "cuda",
        seen(0, cuda_build=None, count_evidence="CUDA error"),
        ["1 NVIDIA device"],
        "cpu",
        id="torch-without-cuda-nobody-counted",
    ),
]


@pytest.mark.parametrize(("code", "preferred", "snapshot", "facts", "suggestion"), SITUATIONS)
def test_a_situation_is_recognised(
    code: str, preferred: object, snapshot: Snapshot, facts: list[str], suggestion: str | None
) -> None:
    """
    The code is found once; its reason names the values that show it, and a device that can be used is suggested.
    """
    findings = found(code, preferred, snapshot)

    assert [code] == [finding.code for finding in findings]
    assert [] == [fact for fact in facts if fact not in findings[0].reason]
    assert suggestion == findings[0].suggestion


@pytest.mark.parametrize(("code", "preferred", "snapshot", "facts", "suggestion"), SITUATIONS)
def test_a_situation_has_a_remedy(
    code: str, preferred: object, snapshot: Snapshot, facts: list[str], suggestion: str | None
) -> None:
    """
    What keeps somebody from a device comes with something to do, in words. An observation comes with nothing, and so
    does the doubt of a launcher of one's own, where that names nothing.
    """
    diagnosis = judge(request_for(preferred), snapshot)
    nothing = diagnosis.remark == "own" or (snapshot.launch is not None and snapshot.launch.caution == "a word")
    remedies = [finding.remedy for finding in diagnosis.findings if finding.code == code]

    assert [] == [remedy for remedy in remedies if remedy != "" and " " not in remedy]
    assert nothing == ("" in remedies)


def test_every_code_has_a_situation() -> None:
    """
    The table above leaves out none of the stable codes, and knows no other.
    """
    assert CODES == {row.values[0] for row in SITUATIONS}


# The twin of each situation: nearly the same, and the code would be wrong.
TWINS = [
    pytest.param(
        "mask-unknown-device", 0, seen(0, "7", physical_count=2, forked=True), id="mask-unknown-device:no-driver"
    ),
    pytest.param("no-local-rank", 0, seen(2, launch_error=NO_RANK), id="no-local-rank:by-ordinal"),
    pytest.param("no-local-rank", "GPU-0", seen(2, launch_error=NO_RANK, found=()), id="no-local-rank:by-uuid"),
    pytest.param("no-local-rank", "cuda", seen(2, launch=launched(1)), id="no-local-rank:it-is-told"),
    pytest.param("launcher-doubt", 0, seen(2, launch=launched(1, caution=CAUTION)), id="launcher-doubt:by-ordinal"),
    pytest.param("launcher-doubt", "cuda", seen(2, launch=launched(1)), id="launcher-doubt:none"),
    pytest.param(
        "not-visible",
        "GPU-1",
        with_machine(seen(1, "1", found=(0,), driver_count=1, refusal=LOST, refused=("cuda:0",)), "A", "A"),
        id="not-visible:it-refused",
    ),
    pytest.param(
        "physical-index",
        0,
        seen(1, "0", driver_count=1, refusal=LOST, refused=("cuda:0",)),
        id="physical-index:refused",
    ),
    pytest.param(
        "one-device-per-rank",
        0,
        seen(1, driver_count=1, launch=launched(0), sharing=OWN, refusal=LOST, refused=("cuda:0",)),
        id="one-device-per-rank:refused",
    ),
    pytest.param(
        "global-rank",
        0,
        seen(1, driver_count=1, launch=launched(2, rank=0), sharing=OWN, refusal=LOST, refused=("cuda:0",)),
        id="global-rank:refused",
    ),
    pytest.param(
        "one-device-per-rank", 1, seen(2, launch=launched(1), sharing=OWN), id="one-device-per-rank:it-is-there"
    ),
    pytest.param("out-of-range", "cuda", seen(4, launch_error=NO_RANK), id="out-of-range:no-local-rank"),
    pytest.param("no-cuda-device", "cuda", seen(4, launch_error=NO_RANK), id="no-cuda-device:no-local-rank"),
    pytest.param("driver-unusable", None, seen(0, "", driver_cuda=11040), id="driver-unusable:hidden-on-purpose"),
    pytest.param(
        "one-device-per-rank",
        1,
        seen(0, launch=launched(1), sharing=OWN),
        id="one-device-per-rank:no-device-by-ordinal",
    ),
    pytest.param(
        "one-device-per-rank",
        3,
        seen(2, launch=launched(3, 4), sharing=SHARED),
        id="one-device-per-rank:shared-by-ordinal",
    ),
    pytest.param("out-of-range", 1, seen(2), id="out-of-range:the-last-ordinal"),
    pytest.param("out-of-range", 5, seen(2, "4,5"), id="out-of-range:more-specific-is-known"),
    pytest.param("out-of-range", -1, seen(2), id="out-of-range:negative"),
    pytest.param("out-of-range", 0, seen(0), id="out-of-range:no-device-at-all"),
    pytest.param("negative-ordinal", 0, seen(2), id="negative-ordinal:zero"),
    pytest.param("physical-index", 6, seen(2, "4,5"), id="physical-index:not-in-the-mask"),
    pytest.param("physical-index", 1, seen(2, "4,1"), id="physical-index:an-ordinal-as-well"),
    pytest.param("physical-index", 5, seen(1, "4,5"), id="physical-index:that-device-is-not-visible"),
    pytest.param(
        "physical-index", 5, seen(2, "4,5", driver_count=2, physical_count=4), id="physical-index:changed-since"
    ),
    pytest.param("physical-index", "xpu:5", seen(2, "4,5"), id="physical-index:of-another-kind"),
    pytest.param("physical-index", "GPU-5", seen(2, "4,5", found=()), id="physical-index:a-uuid"),
    pytest.param("global-rank", 6, seen(4, launch=launched(3, 4, rank=7)), id="global-rank:another-number"),
    pytest.param("global-rank", 7, seen(4, launch=launched(7, 8, rank=7)), id="global-rank:it-is-the-local-rank"),
    pytest.param("global-rank", 7, seen(8, launch=launched(3, 4, rank=7)), id="global-rank:it-can-be-had"),
    pytest.param("global-rank", 7, seen(4, launch=launched(3, 4)), id="global-rank:rank-unknown"),
    pytest.param("global-rank", 7, seen(4), id="global-rank:no-launcher"),
    pytest.param("global-rank", 7, seen(3, launch=launched(3, 4, rank=7)), id="global-rank:local-rank-past-the-last"),
    pytest.param("global-rank", "xpu:7", seen(4, launch=launched(3, 4, rank=7)), id="global-rank:of-another-kind"),
    pytest.param("oversubscribed", None, seen(4, launch=launched(0, 4), sharing=SHARED), id="oversubscribed:as-many"),
    pytest.param("oversubscribed", None, seen(2, launch=launched(0, 4)), id="oversubscribed:may-have-its-own"),
    pytest.param("oversubscribed", 5, seen(2, launch=launched(0, 4), sharing=SHARED), id="oversubscribed:by-ordinal"),
    pytest.param("one-device-per-rank", 1, seen(1, "1", sharing=OWN), id="one-device-per-rank:no-launcher"),
    pytest.param(
        "one-device-per-rank", 2, seen(1, launch=launched(1), sharing=OWN), id="one-device-per-rank:other-number"
    ),
    pytest.param("one-device-per-rank", 0, seen(1, launch=launched(0), sharing=OWN), id="one-device-per-rank:as-asked"),
    pytest.param(
        "one-device-per-rank", None, seen(2, launch=launched(1, 2), sharing=SHARED), id="one-device-per-rank:shared"
    ),
    pytest.param(
        "one-device-per-rank", None, seen(0, launch=launched(1), sharing=OWN), id="one-device-per-rank:no-device"
    ),
    pytest.param(
        "one-device-per-rank",
        "xpu",
        seen(1, accelerator="xpu", accelerator_count=1, launch=launched(1), sharing=OWN),
        id="one-device-per-rank:another-kind",
    ),
    pytest.param("stale-local-rank", None, seen(2, launch=launched(1)), id="stale-local-rank:confirmed"),
    pytest.param("stale-local-rank", 0, seen(2, launch=launched(1, confirmed=False)), id="stale-local-rank:by-ordinal"),
    pytest.param("not-visible", "GPU-0", seen(2, found=(1,)), id="not-visible:found-once"),
    pytest.param(
        "no-such-accelerator", "xpu", seen(0, accelerator="xpu", accelerator_count=1), id="no-such-accelerator:there"
    ),
    pytest.param(
        "no-such-accelerator",
        "xpu:1",
        seen(0, accelerator="xpu", accelerator_count=2, refusal="out of resources", refused=("xpu:1",)),
        id="no-such-accelerator:it-refused",
    ),
    pytest.param(
        "driver-unusable",
        "xpu",
        seen(0, accelerator="xpu", accelerator_count=1, refusal="out of resources", refused=("xpu:0",)),
        id="driver-unusable:another-kind-refused",
    ),
    pytest.param(
        "no-such-accelerator",
        "xpu",
        seen(0, accelerator="xpu", accelerator_count=2, launch=launched(3, 4), sharing=SHARED),
        id="no-such-accelerator:oversubscribed",
    ),
    pytest.param("no-cuda-device", None, seen(0), id="no-cuda-device:the-cpu-is-welcome"),
    pytest.param("no-cuda-device", 3, seen(1), id="no-cuda-device:there-is-one"),
    pytest.param("no-cuda-device", 0, seen(0, ""), id="no-cuda-device:hidden"),
    pytest.param("no-cuda-device", 0, seen(0, "0,0", physical_count=2), id="no-cuda-device:hidden-by-mistake"),
    pytest.param("no-cuda-device", 0, rocm(0, "0,0"), id="no-cuda-device:rocm-shows-one"),
    pytest.param("no-cuda-device", "xpu", seen(0), id="no-cuda-device:another-kind"),
    pytest.param("torch-without-cuda", "cuda", seen(0, physical_count=4), id="torch-without-cuda:it-has"),
    pytest.param(
        "torch-without-cuda",
        "cuda",
        seen(0, cuda_build=None, hip_build="6.4", physical_count=4),
        id="torch-without-cuda:hip",
    ),
    pytest.param("torch-without-cuda", "cuda", seen(0, cuda_build=None), id="torch-without-cuda:no-device"),
    pytest.param(
        "torch-without-cuda", "xpu", seen(0, cuda_build=None, physical_count=4), id="torch-without-cuda:other-kind"
    ),
    pytest.param(
        "driver-unusable", 0, seen(0, driver_cuda=12010, physical_count=1), id="driver-unusable:same-major-version"
    ),
    pytest.param("driver-unusable", 5, seen(1, driver_cuda=13000), id="driver-unusable:newer"),
    pytest.param("driver-unusable", 5, seen(1, driver_cuda=11000), id="driver-unusable:it-serves"),
    pytest.param("driver-unusable", "cpu", seen(0, forked=True), id="driver-unusable:cpu-in-a-fork"),
    pytest.param("driver-unusable", "xpu", seen(0, driver_cuda=11000), id="driver-unusable:another-kind"),
    pytest.param(
        "driver-unusable", 0, seen(0, cuda_build=None, driver_cuda=11000), id="driver-unusable:no-cuda-in-torch"
    ),
    pytest.param("driver-unusable", 0, seen(0, count_evidence="a note"), id="driver-unusable:no-device"),
    pytest.param(
        "driver-unusable",
        0,
        seen(0, "--1", count_evidence="ValueError: invalid literal", physical_count=1),
        id="driver-unusable:the-mask-is-at-fault",
    ),
    pytest.param(
        "driver-unusable",
        0,
        seen(2, driver_count=2, refusal=LOST, refused=("cuda:0",)),
        id="driver-unusable:it-has-started",
    ),
    pytest.param(
        "device-unusable", 0, seen(1, refusal="no", refused=("cuda:0",)), id="device-unusable:driver-did-not-start"
    ),
    pytest.param("device-unusable", 0, seen(2, driver_count=2), id="device-unusable:nobody-refused"),
    pytest.param("mask-hides-all", 0, seen(0), id="mask-hides-all:unset"),
    pytest.param("mask-hides-all", 0, seen(0, "0,0"), id="mask-hides-all:by-mistake"),
    pytest.param("mask-hides-all", None, seen(0, ""), id="mask-hides-all:on-purpose"),
    pytest.param("mask-hides-all", "xpu", seen(0, ""), id="mask-hides-all:another-kind"),
    pytest.param("mask-hides-all", 0, seen(0, "-1", cuda_build=None), id="mask-hides-all:no-cuda-in-torch"),
    pytest.param("mask-hides-all", 0, seen(0, "-1", physical_count=0), id="mask-hides-all:nothing-to-hide"),
    # torch 2.6 and later counts by ROCr's mask alone, where HIP's is unset.
    pytest.param("mask-hides-all", 5, rocm(2, "", ROCR_VISIBLE_DEVICES="0,1"), id="mask-hides-all:it-is-not-read"),
    pytest.param("mask-hides-all", 1, seen(1, "", driver_count=1, physical_count=1), id="mask-hides-all:set-too-late"),
    pytest.param("mask-unreadable", 0, seen(1, "1gpu"), id="mask-unreadable:suffix"),
    pytest.param("mask-unreadable", "xpu", seen(0, "all"), id="mask-unreadable:another-kind"),
    pytest.param("mask-repeated", 2, seen(2, "0,10"), id="mask-repeated:not-by-text"),
    # https://github.com/ROCm/clr, rocdevice.cpp: HIP skips a repeated entry, and numbers and UUIDs may mix.
    pytest.param("mask-repeated", 0, rocm(0, HIP_VISIBLE_DEVICES="0,0"), id="mask-repeated:hip-skips-it"),
    pytest.param("mask-repeated", 1, rocm(1, HIP_VISIBLE_DEVICES="0,0"), id="mask-repeated:counted-by-rocm"),
    pytest.param(
        "mask-repeated", 2, rocm(2, "0,0", ROCR_VISIBLE_DEVICES="0,1"), id="mask-repeated:another-mask-is-read"
    ),
    pytest.param("mask-mixed", 1, rocm(1, HIP_VISIBLE_DEVICES="0,GPU-abc"), id="mask-mixed:hip-takes-both"),
    pytest.param("mask-mixed", 2, rocm(2, HIP_VISIBLE_DEVICES="0,GPU-abc"), id="mask-mixed:counted-by-rocm"),
    pytest.param("mask-unreadable", 1, rocm(1, HIP_VISIBLE_DEVICES="1;2"), id="mask-unreadable:told-by-hips-grammar"),
    pytest.param(
        "physical-index", 2, rocm(2, "2", ROCR_VISIBLE_DEVICES="0,1"), id="physical-index:masks-cut-each-other-short"
    ),
    pytest.param("mask-unknown-device", 1, seen(1, "1", physical_count=2), id="mask-unknown-device:the-last"),
    pytest.param("mask-unknown-device", 1, seen(1, "7"), id="mask-unknown-device:machine-unknown"),
    pytest.param("mask-unknown-device", "xpu", seen(1, "7", physical_count=1), id="mask-unknown-device:another-kind"),
    pytest.param("mask-unknown-device", 1, seen(1, "GPU-9", physical_count=2), id="mask-unknown-device:uuids-unknown"),
    pytest.param("mask-unknown-device", 1, with_machine(seen(1, "MIG-9"), "A"), id="mask-unknown-device:instance"),
    pytest.param(
        "mask-unknown-device", 1, seen(1, "7", driver_count=1, physical_count=2), id="mask-unknown-device:too-late"
    ),
    pytest.param("mask-mixed", 1, seen(1, "GPU-0"), id="mask-mixed:one-kind"),
    pytest.param("mask-not-in-force", 1, seen(1, "0"), id="mask-not-in-force:it-is"),
    pytest.param("mask-not-in-force", "xpu", seen(1, exported=parse_mask("0")), id="mask-not-in-force:another-kind"),
    pytest.param("mask-mig", 2, seen(2, "MIG-a,MIG-b"), id="mask-mig:both-are-visible"),
    pytest.param("mask-mig", 1, seen(1, "MIG-a"), id="mask-mig:one-instance"),
    pytest.param("mask-mig", 0, seen(0, "MIG-a"), id="mask-mig:one-instance-that-is-not-here"),
    pytest.param("mask-mig", 1, seen(1, "GPU-a,GPU-b"), id="mask-mig:whole-devices"),
    pytest.param("mask-mig", 0, with_machine(seen(1, "0"), "A", mig=True), id="mask-mig:whole-device-can-be-had"),
    pytest.param("mask-mig", 1, with_machine(seen(1, "0"), "A"), id="mask-mig:mode-is-off"),
    pytest.param("mask-mig", "xpu", seen(1, "MIG-a,MIG-b"), id="mask-mig:another-kind"),
    pytest.param("mask-mig", "xpu", with_machine(seen(1, "0"), "A", mig=True), id="mask-mig:another-kind-whole-device"),
    pytest.param(
        "mask-mig",
        0,
        divided(0, (1, (ONE,)), mask="MIG-8,MIG-9", driver_count=0),
        id="mask-mig:none-of-them-is-here",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        divided(1, (1, (ONE,)), mask=ONE[:6], driver_count=1),
        id="mask-unknown-device:beginning-of-an-instance",
    ),
    pytest.param(
        "mask-unknown-device",
        1,
        divided(1, (1, (ONE,)), mask="MIG-9", driver_count=1),
        id="mask-unknown-device:the-driver-shows-it",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        divided(0, (1, (ONE,)), mask="MIG-GPU-0abc/1/0", driver_count=0),
        id="mask-unknown-device:older-spelling",
    ),
    pytest.param(
        "mask-unknown-device",
        0,
        divided(0, (1, (ONE,)), (0, None), mask="MIG-9", driver_count=0),
        id="mask-unknown-device:not-all-instances-are-known",
    ),
    pytest.param("count-disagrees", 0, seen(2), id="count-disagrees:machine-unknown"),
    pytest.param("count-disagrees", 0, divided(2, None, None), id="count-disagrees:whole-devices"),
    pytest.param("count-disagrees", 0, divided(1, (1, (ONE,))), id="count-disagrees:one-instance-of-one-device"),
    pytest.param(
        "count-disagrees", 0, divided(1, (2, (ONE, TWO)), driver_release="535.1"), id="count-disagrees:one-before-r570"
    ),
    pytest.param(
        "count-disagrees",
        0,
        divided(2, (1, (ONE,)), None, driver_release="570.1"),
        id="count-disagrees:as-many-from-r570-on",
    ),
    pytest.param("count-disagrees", 0, divided(1, (0, None), driver_release="570.1"), id="count-disagrees:not-listed"),
    pytest.param(
        "count-disagrees",
        0,
        divided(1, (2, (ONE, TWO)), None, mask="1"),
        id="count-disagrees:the-divided-one-is-hidden",
    ),
    pytest.param(
        "count-disagrees", 0, divided(3, (3, (ONE, TWO, THREE)), driver_count=3), id="count-disagrees:it-has-started"
    ),
    pytest.param("count-disagrees", "xpu", divided(2, (2, (ONE, TWO)), None), id="count-disagrees:another-kind"),
    pytest.param("count-disagrees", 0, seen(0, ""), id="count-disagrees:cuda-has-one-answer"),
    pytest.param("count-disagrees", 0, rocm(4), id="count-disagrees:rocm-without-a-mask"),
    pytest.param(
        "count-disagrees", 0, rocm(0, HIP_VISIBLE_DEVICES="-1"), id="count-disagrees:minus-one-hides-for-both"
    ),
    pytest.param("count-disagrees", 0, rocm(2, HIP_VISIBLE_DEVICES="0,1"), id="count-disagrees:read-alike"),
    pytest.param("count-disagrees", 0, rocm(1, HIP_VISIBLE_DEVICES="0,1"), id="count-disagrees:the-machine-has-one"),
    pytest.param("count-disagrees", 0, rocm(1, HIP_VISIBLE_DEVICES="0, 1"), id="count-disagrees:both-see-one"),
    pytest.param("count-disagrees", 0, rocm(2, ROCR_VISIBLE_DEVICES="2,3"), id="count-disagrees:rocr-read-alike"),
    pytest.param("count-disagrees", 0, rocm(0, "", ROCR_VISIBLE_DEVICES="-1"), id="count-disagrees:rocr-hides-all"),
    pytest.param(
        "count-disagrees",
        0,
        rocm(1, ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="01"),
        id="count-disagrees:stacked-masks-have-a-code",
    ),
    pytest.param("count-disagrees", "xpu", rocm(0, HIP_VISIBLE_DEVICES=""), id="count-disagrees:another-kind-on-rocm"),
    pytest.param(
        "count-disagrees", 0, rocm(0, "-1", HIP_VISIBLE_DEVICES=""), id="count-disagrees:the-mask-inside-hides-all"
    ),
    # torch trims to what the machine has, and ROCm does too.
    pytest.param(
        "masks-stacked",
        0,
        rocm(1, ROCR_VISIBLE_DEVICES="0,1", HIP_VISIBLE_DEVICES="0,1"),
        id="masks-stacked:the-machine-has-one",
    ),
    pytest.param("mask-misspelled", 2, seen(2), id="mask-misspelled:none"),
    pytest.param(
        "mask-misspelled", "xpu", seen(0, misspelled=("CUDA_VISIBLE_DEVICE",)), id="mask-misspelled:another-kind"
    ),
    pytest.param("mask-too-late", 2, seen(2, "0,1", driver_count=2, physical_count=4), id="mask-too-late:as-expected"),
    pytest.param("mask-too-late", 1, seen(1, "3,4,1", driver_count=1, physical_count=4), id="mask-too-late:cut-short"),
    pytest.param("mask-too-late", 2, seen(2, "0", physical_count=2), id="mask-too-late:the-driver-sleeps"),
    pytest.param("mask-too-late", 2, seen(2, "0", driver_count=2), id="mask-too-late:machine-unknown"),
    pytest.param("mask-too-late", 1, seen(1, driver_count=1, physical_count=2), id="mask-too-late:one-may-be-lost"),
    pytest.param("mask-too-late", 2, with_machine(seen(2, driver_count=2), "A", mig=True), id="mask-too-late:divided"),
    pytest.param("mask-too-late", 2, seen(2, driver_count=2, physical_count=2), id="mask-too-late:unset-as-before"),
    pytest.param(
        "mask-too-late", 1, with_machine(seen(1, "MIG-a", driver_count=1), "A"), id="mask-too-late:an-instance"
    ),
    pytest.param(
        "mask-too-late",
        2,
        with_machine(seen(2, driver_count=2, uuids=("GPU-0abc",)), "A", "A"),
        id="mask-too-late:not-all-uuids-are-known",
    ),
    pytest.param(
        "mask-too-late",
        0,
        seen(2, "0", driver_count=2, physical_count=2, refusal=LOST, refused=("cuda:0",)),
        id="mask-too-late:it-has-only-just-started",
    ),
    pytest.param(
        "mask-too-late", 1, seen(1, "MIG-a,MIG-b", driver_count=1, physical_count=1), id="mask-too-late:instances"
    ),
    pytest.param(
        "mask-too-late", 2, seen(2, "GPU-a", driver_count=2, physical_count=2), id="mask-too-late:uuids-unknown"
    ),
    pytest.param(
        "mask-too-late", "xpu", seen(2, "0", driver_count=2, physical_count=2), id="mask-too-late:another-kind"
    ),
    pytest.param(
        "mask-too-late",
        1,
        with_machine(seen(1, "1", driver_count=1, uuids=("GPU-1abc",)), "A", "A"),
        id="mask-too-late:the-same-uuid",
    ),
    pytest.param(
        "mask-too-late",
        1,
        with_machine(seen(1, "1", driver_count=1, uuids=("GPU-0abc",)), "A", "B"),
        id="mask-too-late:numbers-of-an-unknown-order",
    ),
    pytest.param(
        "masks-stacked",
        0,
        seen(
            1, cuda_build=None, hip_build="6.4", variables={"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}
        ),
        id="masks-stacked:both-agree",
    ),
    pytest.param(
        "masks-stacked",
        1,
        seen(1, variables={"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "2"}),
        id="masks-stacked:cuda",
    ),
    pytest.param(
        "masks-stacked",
        1,
        seen(1, hip_build="6.4", variables={"HIP_VISIBLE_DEVICES": "2"}),
        id="masks-stacked:one-alone",
    ),
    pytest.param(
        "masks-stacked",
        1,
        seen(1, hip_build="6.4", variables={"ROCR_VISIBLE_DEVICES": "2"}),
        id="masks-stacked:rocr-alone",
    ),
    pytest.param(
        "masks-stacked",
        "xpu",
        seen(2, "0", hip_build="6.4", variables={"ROCR_VISIBLE_DEVICES": "2"}),
        id="masks-stacked:another-kind",
    ),
    pytest.param("order-ambiguous", 2, with_machine(seen(2), "H100", "H100"), id="order-ambiguous:one-model"),
    pytest.param(
        "order-ambiguous",
        2,
        with_machine(seen(2, variables={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}), "H100", "T4"),
        id="order-ambiguous:order-is-set",
    ),
    pytest.param("order-ambiguous", 2, with_machine(seen(2, "GPU-1,GPU-0"), "H100", "T4"), id="order-ambiguous:uuids"),
    pytest.param("order-ambiguous", 2, seen(2), id="order-ambiguous:machine-unknown"),
    pytest.param("order-ambiguous", "xpu", with_machine(seen(2), "H100", "T4"), id="order-ambiguous:another-kind"),
]


@pytest.mark.parametrize(("code", "preferred", "snapshot"), TWINS)
def test_a_situation_that_only_looks_alike_is_not_mistaken(code: str, preferred: object, snapshot: Snapshot) -> None:
    """
    No code is reported where what it says is not so.
    """
    assert [] == found(code, preferred, snapshot)


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(seen(2, physical_count=2, isolation=Isolation(on_bus=2)), id="all-of-the-bus-is-here"),
        pytest.param(seen(2, isolation=Isolation(on_bus=8)), id="nobody-counted-what-is-here"),
        pytest.param(seen(2, physical_count=2), id="the-bus-is-unknown"),
        pytest.param(seen(2, variables={"NVIDIA_VISIBLE_DEVICES": "all"}), id="no-number-of-the-host"),
    ],
)
def test_the_host_is_not_named_without_a_reason(snapshot: Snapshot) -> None:
    """
    That the host has more devices is said only where something shows it.
    """
    (finding,) = found("out-of-range", 5, snapshot)

    assert "ordinals count from 0, so the last one here is 1" == finding.reason


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(seen(0, isolation=Isolation(on_bus=0)), id="no-device-on-the-bus"),
        pytest.param(seen(0, isolation=Isolation(on_bus=4, loaded=True)), id="nodes-unknown"),
        pytest.param(
            seen(0, cuda_build=None, hip_build="6.4", isolation=Isolation(on_bus=4, nodes=())), id="a-build-for-hip"
        ),
        pytest.param(seen(0, cuda_build=None, isolation=Isolation(on_bus=4, nodes=())), id="a-build-without-cuda"),
    ],
)
def test_a_host_that_shows_no_reason_is_not_blamed(snapshot: Snapshot) -> None:
    """
    Where the bus has no NVIDIA device, or this build of torch would not use one.
    """
    (finding,) = found("no-cuda-device", "cuda", snapshot)

    assert "bus" not in finding.reason


def test_every_code_has_a_twin() -> None:
    """
    Each code is also shown not to be found where it is wrong.
    """
    assert CODES == {row.values[0] for row in TWINS}


@pytest.mark.parametrize(
    ("preferred", "snapshot", "remedy"),
    [
        pytest.param(0, seen(0, "'0,1'"), "CUDA_VISIBLE_DEVICES=0,1", id="quotes-are-taken-off"),
        pytest.param(0, seen(0, "all"), "unset CUDA_VISIBLE_DEVICES", id="all-is-what-unset-means"),
        pytest.param(0, seen(0, "none"), "CUDA_VISIBLE_DEVICES=-1 to hide every device", id="none-is-minus-one"),
        pytest.param(1, seen(1, "0,7", physical_count=2), "CUDA_VISIBLE_DEVICES=0", id="the-part-that-is-here"),
        pytest.param(2, seen(2, "0,1,7", physical_count=2), "write CUDA_VISIBLE_DEVICES=0,1", id="all-that-is-here"),
        pytest.param("cuda", seen(2, launch_error=NO_RANK), "set LOCAL_RANK", id="what-the-launcher-lacks"),
        pytest.param("cuda", seen(2, launch=launched(1, caution=CAUTION)), "unset LOCAL_RANK", id="what-is-left-over"),
        pytest.param("cuda", seen(0), "run nvidia-smi: if it lists devices", id="who-lists-the-devices"),
        pytest.param("cuda", seen(0, cuda_build=None), "install a build with CUDA", id="a-build-with-cuda"),
        pytest.param(0, seen(0, "7", physical_count=2), "unset CUDA_VISIBLE_DEVICES", id="nothing-of-it-is-here"),
        pytest.param(
            0,
            seen(2, driver_count=2, refusal=LOST, refused=("cuda:0",)),
            "or use another device",
            id="another-than-the-one-that-refused",
        ),
        pytest.param(
            0,
            seen(1, driver_count=1, refusal=LOST, refused=("cuda:0",)),
            "or use the CPU",
            id="the-only-one-refused",
        ),
        pytest.param(5, seen(2, "4,5"), "use cuda:1", id="the-ordinal-of-a-physical-index"),
        pytest.param(1, divided(1, (1, (ONE,))), f"UUID: CUDA_VISIBLE_DEVICES={ONE}", id="the-only-instance"),
        pytest.param(
            1,
            divided(1, (2, (ONE, TWO))),
            f"CUDA_VISIBLE_DEVICES={ONE}, or another of its 2",
            id="one-of-the-instances",
        ),
        pytest.param(1, divided(1, (0, ())), "nvidia-smi mig -cgi", id="no-instance-was-made"),
        pytest.param(
            0, divided(2, (0, ()), (1, (TWO,))), f"CUDA_VISIBLE_DEVICES={TWO}", id="the-first-that-has-an-instance"
        ),
        pytest.param(
            1,
            divided(1, (1, (ONE, TWO)), mask="MIG-2,MIG-1", driver_count=1),
            f"give each process one instance: CUDA_VISIBLE_DEVICES={TWO}",
            id="one-of-those-in-the-mask",
        ),
        pytest.param(
            1,
            changed(divided(1, (1, (ONE, TWO)), mask="MIG-2,MIG-1", driver_count=1), driver_release="535.104.05"),
            f"update the driver, or give each process one instance: CUDA_VISIBLE_DEVICES={TWO}",
            id="one-of-those-in-the-mask-of-an-old-driver",
        ),
        pytest.param(
            1,
            divided(1, (1, (ONE, TWO)), mask="MIG-2,MIG-1", driver_count=1, driver_release="570.1"),
            "give each process one instance: CUDA",
            id="a-driver-that-is-new-enough",
        ),
        pytest.param(0, rocm(2, HIP_VISIBLE_DEVICES="0, 1"), "write HIP_VISIBLE_DEVICES=0,1", id="numbers-for-hip"),
        pytest.param(0, rocm(0, HIP_VISIBLE_DEVICES="0,0,1"), "write HIP_VISIBLE_DEVICES=0,1", id="each-once"),
        pytest.param(0, rocm(2, ROCR_VISIBLE_DEVICES="0x2,2"), "write ROCR_VISIBLE_DEVICES=2", id="numbers-for-rocr"),
        pytest.param(0, rocm(1, ROCR_VISIBLE_DEVICES=""), "HIP_VISIBLE_DEVICES=-1 hides", id="hidden-from-both"),
        pytest.param(
            0, rocm(4, ROCR_VISIBLE_DEVICES="1"), "use HIP_VISIBLE_DEVICES in its place", id="one-that-is-read"
        ),
        pytest.param(0, seen(0, driver_cuda=11040), "torch for CUDA 11", id="the-build-for-an-old-driver"),
        pytest.param("xpu", seen(1), "install the build that drives it", id="another-build"),
        pytest.param(
            "xpu:9",
            seen(0, accelerator="xpu", accelerator_count=1),
            "use a device that is there",
            id="another-of-its-kind",
        ),
        pytest.param(
            1,
            seen(1, "0", launch=launched(1), sharing=OWN),
            "let every worker see all devices",
            id="the-only-one-of-its-own",
        ),
        pytest.param(
            None, seen(1, launch=launched(0, 3), sharing=SHARED), "start 1 worker on this node", id="as-many-workers"
        ),
        pytest.param(
            "GPU-1",
            with_machine(seen(1, "0", found=()), "A", "A"),
            "write CUDA_VISIBLE_DEVICES=GPU-1abc, where the mask is set",
            id="a-hidden-uuid",
        ),
        pytest.param(
            "GPU-1",
            with_machine(seen(1, "GPU-0", found=()), "A", "A"),
            "write CUDA_VISIBLE_DEVICES=GPU-0,GPU-1abc, where the mask is set",
            id="a-hidden-uuid-beside-another",
        ),
        pytest.param(
            1, seen(1, "0x1"), "write CUDA_VISIBLE_DEVICES=1, and use cuda:0", id="what-is-written-shows-one-device"
        ),
        pytest.param(
            5,
            with_machine(seen(2, "0,1,9"), "A", "A"),
            "write CUDA_VISIBLE_DEVICES=0,1, and use one of cuda:0 to cuda:1",
            id="what-is-written-shows-two-devices",
        ),
        pytest.param(
            1,
            with_machine(seen(1, "0-9"), "A", "A"),
            "write CUDA_VISIBLE_DEVICES=0,1",
            id="a-range-beyond-what-is-here",
        ),
        pytest.param(
            0,
            with_machine(seen(0, "GPU-0,GPU-1,GPU-0a"), "A", "A"),
            "name each device once: CUDA_VISIBLE_DEVICES=GPU-0abc,GPU-1abc",
            id="one-device-by-two-beginnings-of-its-uuid",
        ),
    ],
)
def test_a_remedy_says_what_to_do(preferred: object, snapshot: Snapshot, remedy: str) -> None:
    """
    The remedy is a thing to do: a device to use, or a value to write.
    """
    remedies = [finding.remedy for finding in judge(request_for(preferred), snapshot).findings]

    assert any(remedy in one for one in remedies), remedies


@pytest.mark.parametrize(
    ("snapshot", "remedy"),
    [
        pytest.param(seen(0), "use the CPU, or make a device visible", id="none"),
        pytest.param(seen(0, launch=launched(1, 2)), "use the CPU, or make a device visible", id="none-for-a-worker"),
        pytest.param(seen(1), "use cuda:0", id="one"),
        pytest.param(seen(2), "use cuda:0 or cuda:1", id="two"),
        pytest.param(seen(3), "use one of cuda:0 to cuda:2", id="three"),
        pytest.param(seen(3, refused=("cuda:0",)), "use one of cuda:1 to cuda:2", id="the-first-refused"),
        pytest.param(seen(3, refused=("cuda:0", "cuda:1")), "use cuda:2", id="the-first-two-refused"),
        pytest.param(seen(4, refused=("cuda:3", "cuda:2")), "use cuda:0 or cuda:1", id="the-last-two-refused"),
        pytest.param(
            seen(4, launch=launched(2, 4), sharing=SHARED),
            "use cuda:2, the device of local rank 2",
            id="that-of-a-worker",
        ),
        pytest.param(
            seen(2, launch=launched(2, 4), sharing=SHARED),
            "start at most 2 workers on this node",
            id="too-few-for-the-workers",
        ),
        pytest.param(
            seen(2, launch=launched(2), sharing=SHARED),
            "start at most 2 workers on this node",
            id="too-few-by-the-rank",
        ),
        pytest.param(
            seen(4, launch=launched(2, 4), sharing=SHARED, refused=("cuda:2",)),
            "give each worker a device of its own",
            id="that-of-a-worker-refused",
        ),
        pytest.param(
            seen(2, launch=launched(1), sharing=SHARED, refused=("cuda:1",)),
            "give each worker a device of its own",
            id="that-of-the-last-worker-refused",
        ),
        pytest.param(seen(3, refused=("cuda:2",)), "use cuda:0 or cuda:1", id="the-last-refused"),
        pytest.param(seen(2, refused=("cuda:1",)), "use cuda:0", id="the-other-one-refused"),
        pytest.param(seen(1, refused=("cuda:0",)), "use the CPU, or make a device visible", id="the-only-one-refused"),
    ],
)
def test_the_devices_to_use_are_named(snapshot: Snapshot, remedy: str) -> None:
    """
    Those that are visible, without the one that refused; and the CPU, which -1 means to others.
    """
    remedies = [finding.remedy for finding in found("negative-ordinal", -1, snapshot)]

    assert [f"{remedy}; give 'cpu' if no GPU was meant"] == remedies


@pytest.mark.parametrize(
    ("preferred", "snapshot", "remedy"),
    [
        pytest.param(1, with_machine(seen(1, "0-9"), "A", "A"), "write CUDA_VISIBLE_DEVICES=0,1", id="what-is-here"),
        pytest.param(
            1,
            with_machine(seen(1, "5-7"), "A", "A"),
            "unset CUDA_VISIBLE_DEVICES, or list physical indices: CUDA_VISIBLE_DEVICES=0,1",
            id="none-of-it-is-here",
        ),
        pytest.param(
            1,
            seen(1, "a,0"),
            "write CUDA_VISIBLE_DEVICES=0, and use cuda:0",
            id="fewer-than-the-request-needs",
        ),
        pytest.param(0, seen(1, "0x1"), "write CUDA_VISIBLE_DEVICES=1", id="as-many-as-the-request-needs"),
        pytest.param(
            1,
            seen(1, "0x1", driver_count=1, refusal=LOST, refused=("cuda:0",)),
            "write CUDA_VISIBLE_DEVICES=1",
            id="a-device-has-refused",
        ),
        pytest.param(None, seen(1, "0x1"), "write CUDA_VISIBLE_DEVICES=1", id="no-ordinal-is-asked-for"),
        pytest.param(
            1,
            seen(0, "all"),
            "unset CUDA_VISIBLE_DEVICES, or list physical indices: CUDA_VISIBLE_DEVICES=0,1",
            id="all",
        ),
        pytest.param(
            1, seen(0, "none"), "write CUDA_VISIBLE_DEVICES=-1 to hide every device, or unset it to show all", id="none"
        ),
    ],
)
def test_a_mask_with_a_defect_is_written_anew(preferred: object, snapshot: Snapshot, remedy: str) -> None:
    """
    As it was meant, as far as this machine has the devices, and with what is to be asked for then.
    """
    assert [remedy] == [finding.remedy for finding in found("mask-unreadable", preferred, snapshot)]


def test_a_repeated_uuid_is_to_be_written_once() -> None:
    """
    What this machine has is no matter there.
    """
    (finding,) = found("mask-repeated", 0, with_machine(seen(0, "GPU-0,GPU-0"), "A", "A"))

    assert "write CUDA_VISIBLE_DEVICES=GPU-0" == finding.remedy


@pytest.mark.parametrize(
    ("asked", "mask", "remedy"),
    [
        pytest.param("GPU-1", "MIG-1", "write CUDA_VISIBLE_DEVICES=GPU-1abc, where the mask is set", id="instances"),
        pytest.param(
            "GPU-1",
            "GPU-0,GPU-9",
            "write CUDA_VISIBLE_DEVICES=GPU-0,GPU-1abc, where the mask is set",
            id="an-unknown-one",
        ),
        pytest.param(
            "GPU-1",
            "MIG-GPU-1abc/1/0",
            "write CUDA_VISIBLE_DEVICES=GPU-1abc, where the mask is set",
            id="an-instance-by-its-older-name",
        ),
        pytest.param("GPU-1", None, "nvidia-smi -L lists the UUIDs of the machine", id="no-mask"),
    ],
)
def test_a_mask_is_written_with_a_hidden_device(asked: str, mask: str | None, remedy: str) -> None:
    """
    Beside those that it shows and that can stand beside it: a mask holds one kind, and ends at what is not here.
    """
    (finding,) = found("not-visible", asked, with_machine(seen(1, mask, found=()), "A", "A"))

    assert remedy == finding.remedy


def test_a_number_that_the_machine_lacks_is_looked_for_in_a_mask_that_may_be_late() -> None:
    """
    A divided device keeps it from being known whether the mask is the driver's.
    """
    physical = (PhysicalDevice(index=0, uuid="GPU-0abc", mig=True), *machine("A", "A", "A")[1:])
    awake = seen(2, "7,1", driver_count=2, uuids=("GPU-1abc", "GPU-2abc"), physical=physical, physical_count=3)
    (finding,) = found("physical-index", 7, awake)

    assert "unless the mask was changed after CUDA had started" in finding.reason
    assert finding.suggestion is None


@pytest.mark.parametrize(
    ("code", "preferred", "snapshot"),
    [
        pytest.param("no-cuda-device", "cuda", rocm(0), id="no-device"),
        pytest.param("not-visible", "GPU-1", replace(rocm(1), found=()), id="a-uuid"),
        pytest.param(
            "device-unusable",
            0,
            replace(rocm(1), driver_count=1, refusal="hipErrorNoBinaryForGpu", refused=("cuda:0",)),
            id="a-device-that-refuses",
        ),
    ],
)
def test_on_rocm_amds_tool_is_named(code: str, preferred: object, snapshot: Snapshot) -> None:
    """
    NVIDIA's shows nothing there.
    """
    (finding,) = found(code, preferred, snapshot)

    assert "rocm-smi" in finding.remedy
    assert "nvidia-smi" not in finding.remedy


def test_on_rocm_the_uuids_are_listed_by_amds_tool() -> None:
    """
    With the option that shows them.
    """
    (finding,) = found("not-visible", "GPU-1", replace(rocm(1), found=()))

    assert "rocm-smi --showuniqueid lists the UUIDs of the machine" == finding.remedy


def test_a_uuid_is_not_sought_in_a_mask_that_is_not_in_force() -> None:
    """
    What is to be done about it is told already.
    """
    snapshot = with_machine(seen(1, "GPU-0", exported=parse_mask(None), found=()), "A", "A")
    (finding,) = found("not-visible", "GPU-1", snapshot)

    assert ("no device that the driver shows has it", "") == (finding.reason, finding.remedy)


TWICE = with_machine(seen(0, "GPU-0,GPU-1,GPU-0a"), "A", "A")


def test_a_device_by_two_beginnings_of_its_uuid_is_a_repetition() -> None:
    """
    The entry at fault is marked, and it is no unknown one. Source: ``_transform_uuid_to_ordinals`` in torch's
    ``cuda/__init__.py`` makes an empty list of it.
    """
    case = judge(request_for(0), TWICE)

    assert ["mask-repeated"] == [finding.code for finding in case.findings]
    assert "'GPU-0a' is a device that the list holds already" in case.findings[0].reason
    assert (12, 18) == case.findings[0].span


def test_a_repetition_before_the_end_of_the_list_is_told() -> None:
    """
    And once, however often the device is named.
    """
    (finding,) = found("mask-repeated", 0, with_machine(seen(0, "GPU-1,GPU-0,GPU-0a,GPU-0ab,GPU-9"), "A", "A"))

    assert "name each device once: CUDA_VISIBLE_DEVICES=GPU-1abc,GPU-0abc" == finding.remedy


@pytest.mark.parametrize(
    ("preferred", "snapshot"),
    [
        pytest.param("xpu", TWICE, id="no-cuda-device-is-wanted"),
        pytest.param(
            0,
            with_machine(seen(2, "GPU-0,GPU-0a", driver_count=2, uuids=("GPU-0abc", "GPU-1abc")), "A", "A"),
            id="late",
        ),
        pytest.param(0, with_machine(seen(0, "GPU-,GPU-0,GPU-0a"), "A", "A"), id="behind-the-end-of-the-list"),
        pytest.param(0, with_machine(seen(2, "GPU-0,GPU-1"), "A", "A"), id="two-devices"),
    ],
)
def test_what_is_no_repetition_of_a_device_is_not_told_as_one(preferred: object, snapshot: Snapshot) -> None:
    """
    Nor what does not matter.
    """
    assert [] == found("mask-repeated", preferred, snapshot)


AWAKE = seen(1, "2", driver_count=1, uuids=("GPU-2abc",))


@pytest.mark.parametrize(
    ("snapshot", "unless", "remedy", "suggestion"),
    [
        pytest.param(seen(1, "2"), "", "use cuda:0", "cuda:0", id="before-the-start"),
        pytest.param(
            seen(1, "2", driver_count=1, inherited=True),
            "",
            "use cuda:0",
            "cuda:0",
            id="the-process-was-started-with-it",
        ),
        pytest.param(with_machine(AWAKE, "A", "A", "A"), "", "use cuda:0", "cuda:0", id="the-devices-tell"),
        pytest.param(
            with_machine(AWAKE, "A", "B", "A"),
            ", unless the mask was changed after CUDA had started",
            "ask for the device by UUID, which means the same under any mask",
            None,
            id="the-order-is-unknown",
        ),
        pytest.param(
            seen(1, "2", driver_count=1),
            ", unless the mask was changed after CUDA had started",
            "ask for the device by UUID, which means the same under any mask",
            None,
            id="nobody-tells",
        ),
    ],
)
def test_a_physical_index_is_translated_where_the_mask_is_known_to_hold(
    snapshot: Snapshot, unless: str, remedy: str, suggestion: str | None
) -> None:
    """
    Once CUDA has started, only the devices can tell that the mask is the one that the driver has read.
    """
    (finding,) = found("physical-index", 2, snapshot)

    assert f"2 is what the mask calls the device; in this process that device is ordinal 0{unless}" == finding.reason
    assert (remedy, suggestion) == (finding.remedy, finding.suggestion)


def test_a_physical_index_is_not_translated_by_a_mask_that_is_not_in_force() -> None:
    """
    What the driver reads is another one.
    """
    assert [] == found("physical-index", 2, seen(1, "2", exported=parse_mask("0")))


# https://github.com/ROCm/clr, rocdevice.cpp; https://github.com/ROCm/ROCR-Runtime, amd_filter_device.cpp
@pytest.mark.parametrize(
    ("snapshot", "codes", "difference", "remedy"),
    [
        pytest.param(
            rocm(0, HIP_VISIBLE_DEVICES="0,0"),
            ["count-disagrees"],
            "shows 1 at most: torch takes an entry that comes again to hide every device, and ROCm skips it",
            "write HIP_VISIBLE_DEVICES=0",
            id="repeated",
        ),
        pytest.param(
            rocm(1, HIP_VISIBLE_DEVICES="1;2"),
            ["count-disagrees", "physical-index"],
            "shows none: ROCm ends the list at '1;2'",
            "write HIP_VISIBLE_DEVICES=1,2",
            id="semicolon",
        ),
        pytest.param(
            rocm(1, HIP_VISIBLE_DEVICES="0,GPU-abc"),
            ["count-disagrees", "out-of-range"],
            "torch ends the list where numbers and UUIDs meet, and ROCm takes both",
            "name all devices in HIP_VISIBLE_DEVICES in one way: numbers, or UUIDs",
            id="mixed",
        ),
        pytest.param(
            rocm(0, HIP_VISIBLE_DEVICES=" GPU-abc"),
            ["count-disagrees"],
            "ROCm takes whatever has GPU- in it for a UUID",
            "write HIP_VISIBLE_DEVICES=GPU-abc",
            id="blank-before-a-uuid",
        ),
        pytest.param(
            rocm(0, HIP_VISIBLE_DEVICES="-1GPU-abc"),
            ["count-disagrees", "mask-hides-all"],
            "ROCm takes whatever has GPU- in it for a UUID",
            "unset it; HIP_VISIBLE_DEVICES=-1 hides every device",
            id="a-uuid-behind-a-negative-number",
        ),
        pytest.param(
            rocm(0, "1", HIP_VISIBLE_DEVICES=""),
            ["count-disagrees"],
            "reads CUDA_VISIBLE_DEVICES='1' in its place and shows 1 at most",
            "write HIP_VISIBLE_DEVICES=-1 to hide every device, or HIP_VISIBLE_DEVICES=1 to use them",
            id="empty-and-one-inside",
        ),
        pytest.param(
            rocm(0, "0,GPU-abc", HIP_VISIBLE_DEVICES=""),
            ["count-disagrees"],
            "shows 2 at most",
            "write HIP_VISIBLE_DEVICES=-1 to hide every device, or list numbers in it, each once",
            id="empty-and-a-mixed-one-inside",
        ),
        pytest.param(
            rocm(0, "-1", HIP_VISIBLE_DEVICES=""),
            ["mask-hides-all"],
            "reads CUDA_VISIBLE_DEVICES='-1' in its place",
            "list the devices to use: HIP_VISIBLE_DEVICES=0",
            id="empty-and-one-inside-that-hides-all",
        ),
        pytest.param(
            rocm(1, ROCR_VISIBLE_DEVICES="0-3"),
            ["count-disagrees", "out-of-range"],
            "torch counts the commas",
            "write ROCR_VISIBLE_DEVICES=0,1,2,3",
            id="rocr-range",
        ),
        pytest.param(
            rocm(1, ROCR_VISIBLE_DEVICES="none"),
            ["count-disagrees", "out-of-range"],
            "shows none",
            "unset it; HIP_VISIBLE_DEVICES=-1 hides every device",
            id="rocr-none",
        ),
        pytest.param(
            rocm(1, ROCR_VISIBLE_DEVICES="all"),
            ["count-disagrees", "out-of-range"],
            "shows none",
            "unset ROCR_VISIBLE_DEVICES, or list numbers in it, each once",
            id="rocr-all",
        ),
        pytest.param(
            rocm(3, ROCR_VISIBLE_DEVICES="gpu-ab,1,1"),
            ["count-disagrees", "out-of-range"],
            "shows 2 at most",
            "name all devices in ROCR_VISIBLE_DEVICES in one way: numbers, or UUIDs",
            id="rocr-mixed",
        ),
        pytest.param(
            rocm(4, ROCR_VISIBLE_DEVICES="0,0"),
            ["count-disagrees", "out-of-range"],
            "this torch does not read that mask",
            "use HIP_VISIBLE_DEVICES in its place, which it reads (0)",
            id="rocr-is-not-read",
        ),
        pytest.param(
            rocm(4, ROCR_VISIBLE_DEVICES="all"),
            ["count-disagrees", "out-of-range"],
            "this torch does not read that mask",
            "use HIP_VISIBLE_DEVICES in its place, which it reads",
            id="rocr-is-not-read-and-names-nothing",
        ),
        pytest.param(
            rocm(2, "0,0", ROCR_VISIBLE_DEVICES="0,1"),
            ["masks-stacked"],
            "ROCm shows 1 device at most, and torch counts 2",
            "set one of them alone (ROCR_VISIBLE_DEVICES=0,1 or CUDA_VISIBLE_DEVICES=0), or count in "
            "HIP_VISIBLE_DEVICES from 0 inside what ROCR_VISIBLE_DEVICES leaves",
            id="stacked-and-repeated",
        ),
        pytest.param(
            rocm(2, "2", ROCR_VISIBLE_DEVICES="0,1"),
            ["masks-stacked"],
            "ROCm shows 0 devices, and torch counts 2",
            "set one of them alone, or count in HIP_VISIBLE_DEVICES from 0 inside what ROCR_VISIBLE_DEVICES leaves",
            id="stacked-and-lost",
        ),
        pytest.param(
            rocm(1, HIP_VISIBLE_DEVICES="0", ROCR_VISIBLE_DEVICES="-1"),
            ["masks-stacked"],
            "ROCm shows 0 devices, and torch counts 1",
            "set one of them alone (HIP_VISIBLE_DEVICES=-1 or HIP_VISIBLE_DEVICES=0)",
            id="stacked-and-nothing-left",
        ),
        pytest.param(
            rocm(1, HIP_VISIBLE_DEVICES="0", ROCR_VISIBLE_DEVICES=""),
            ["masks-stacked"],
            "ROCm shows 0 devices",
            "set one of them alone (HIP_VISIBLE_DEVICES=-1 or HIP_VISIBLE_DEVICES=0)",
            id="stacked-and-empty",
        ),
        pytest.param(
            rocm(1, "all", ROCR_VISIBLE_DEVICES="all"),
            ["masks-stacked"],
            "ROCm shows 0 devices",
            "unset both, or list numbers in one of them, each once",
            id="stacked-and-unreadable",
        ),
        pytest.param(
            rocm(0, "1", ROCR_VISIBLE_DEVICES="2,3", HIP_VISIBLE_DEVICES=""),
            ["masks-stacked"],
            "ROCm shows 1 device at most, and torch counts 0",
            "unset HIP_VISIBLE_DEVICES, and set one of the others alone, or count in HIP_VISIBLE_DEVICES from 0 "
            "inside what ROCR_VISIBLE_DEVICES leaves",
            id="stacked-and-hip-is-empty",
        ),
        # torch/cuda/__init__.py, _parse_visible_devices: it raises where HIP's mask is the longer one.
        pytest.param(
            replace(
                rocm(0, ROCR_VISIBLE_DEVICES="0,1", HIP_VISIBLE_DEVICES="0,1,-1"),
                count_evidence="RuntimeError: HIP_VISIBLE_DEVICES contains more devices than ROCR_VISIBLE_DEVICES",
            ),
            ["masks-stacked"],
            "ROCm shows 2 devices at most, and torch counts 0",
            "set one of them alone (ROCR_VISIBLE_DEVICES=0,1 or HIP_VISIBLE_DEVICES=0,1), or count in "
            "HIP_VISIBLE_DEVICES from 0 inside what ROCR_VISIBLE_DEVICES leaves",
            id="stacked-and-longer",
        ),
    ],
)
def test_a_mask_of_rocm_has_one_truth(snapshot: Snapshot, codes: list[str], difference: str, remedy: str) -> None:
    """
    One finding tells where torch and ROCm part, and writes what was meant; no other one contradicts it.
    """
    findings = judge(request_for(snapshot.device_count), snapshot).findings

    assert codes == [finding.code for finding in findings]
    assert difference in findings[0].reason
    assert remedy == findings[0].remedy


def test_the_entry_that_ends_the_list_of_rocm_is_marked() -> None:
    """
    The caret stands under the first entry that HIP does not read, though torch reads it.
    """
    lines = judge(request_for(0), rocm(3, HIP_VISIBLE_DEVICES="0,01,2")).render().splitlines()

    assert "01" == "".join(a for a, b in zip(lines[1], lines[2], strict=False) if b == "^")


def test_a_mask_of_rocm_that_torch_does_not_show_is_not_marked() -> None:
    """
    What is wrong with ROCr's mask has no place in that which is shown.
    """
    (finding,) = found("count-disagrees", 0, rocm(2, "", ROCR_VISIBLE_DEVICES="0,0"))

    assert finding.span is None


def test_devices_of_amd_are_not_looked_for_with_nvidias_tool() -> None:
    """
    Where a mask of HIP's may hide them, ROCm's own tool lists them.
    """
    (finding,) = found("no-cuda-device", "cuda", rocm(0, HIP_VISIBLE_DEVICES="7"))

    expected = "see which devices there are (rocm-smi), and name them in HIP_VISIBLE_DEVICES, or unset it"

    assert expected == finding.remedy


def test_a_mask_that_may_hide_devices_is_compared_with_what_is_there() -> None:
    """
    NVIDIA's tool lists them.
    """
    (finding,) = found("no-cuda-device", "cuda", seen(0, "7"))

    expected = "see which devices there are (nvidia-smi -L), and name them in CUDA_VISIBLE_DEVICES, or unset it"

    assert expected == finding.remedy


def test_an_empty_mask_of_hip_is_told_with_the_one_that_is_read_in_its_place() -> None:
    """
    Both hide every device: torch by the one, ROCm by the other.
    """
    (finding,) = found("mask-hides-all", "cuda", rocm(0, "-1", HIP_VISIBLE_DEVICES=""))

    expected = (
        "HIP_VISIBLE_DEVICES='' hides every device (torch says so; ROCm takes an empty one as unset, and reads "
        "CUDA_VISIBLE_DEVICES='-1' in its place)"
    )

    assert expected == finding.reason


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(rocm(2, HIP_VISIBLE_DEVICES="0,1", ROCR_VISIBLE_DEVICES="0,1,2"), id="stacked"),
        pytest.param(rocm(2, HIP_VISIBLE_DEVICES="0,GPU-abc"), id="as-hip-reads-it"),
    ],
)
def test_masks_of_rocm_that_show_what_torch_counts_are_no_finding(snapshot: Snapshot) -> None:
    """
    However each of them is read.
    """
    assert not {"masks-stacked", "count-disagrees"} & {
        finding.code for finding in judge(request_for("cuda"), snapshot).findings
    }


@pytest.mark.parametrize(
    ("snapshot", "span"),
    [
        pytest.param(rocm(0, HIP_VISIBLE_DEVICES="0,0"), (2, 3), id="where-torch-ends"),
        pytest.param(rocm(2, HIP_VISIBLE_DEVICES="0, 1"), (2, 4), id="where-rocm-ends"),
        pytest.param(rocm(2, "0, 1", HIP_VISIBLE_DEVICES=""), None, id="in-a-mask-that-is-not-shown"),
        pytest.param(rocm(3, HIP_VISIBLE_DEVICES="0,0"), None, id="a-mask-that-is-not-read"),
    ],
)
def test_the_entry_that_torch_and_rocm_read_differently_is_marked(
    snapshot: Snapshot, span: tuple[int, int] | None
) -> None:
    """
    In the mask that the message shows.
    """
    (finding,) = found("count-disagrees", "cuda", snapshot)

    assert span == finding.span


def test_a_mask_of_rocr_with_fewer_commas_than_devices_is_not_read() -> None:
    """
    Torch before 2.6, which knows HIP's alone.
    """
    (finding,) = found("count-disagrees", "cuda", rocm(3, ROCR_VISIBLE_DEVICES="0,0"))

    assert "use HIP_VISIBLE_DEVICES in its place, which it reads (0)" == finding.remedy


@pytest.mark.parametrize(
    ("code", "snapshot"),
    [
        pytest.param("mask-mig", divided(1, (2, (ONE, TWO)), mask="MIG-1,MIG-9", driver_count=1), id="one-is-not-here"),
        pytest.param("mask-mig", seen(0, "MIG-1,MIG-2"), id="none-is-visible"),
        pytest.param("count-disagrees", divided(1, (2, (ONE, TWO)), driver_count=1), id="the-driver-has-counted"),
        pytest.param(
            "count-disagrees",
            divided(1, (2, (ONE, TWO)), driver_count=1, uuids=("GPU-0abc",)),
            id="the-driver-tells-the-whole-device",
        ),
    ],
)
def test_of_instances_nothing_is_said_that_is_not_so(code: str, snapshot: Snapshot) -> None:
    """
    Where another reason is known, or the driver has told its own count.
    """
    assert [] == found(code, "cuda", snapshot)


def test_several_instances_of_an_unlisted_machine_are_one_for_each_process() -> None:
    """
    Nothing is named that is not known.
    """
    (finding,) = found("mask-mig", 1, seen(1, "MIG-a,MIG-b"))

    assert "give each process one instance" == finding.remedy


@pytest.mark.parametrize(
    ("preferred", "snapshot", "codes"),
    [
        pytest.param(
            "cuda", seen(0, "0-3", cuda_build=None), ["no-cuda-device", "mask-unreadable"], id="no-cuda-in-torch"
        ),
        pytest.param("cuda", seen(0, "0,0", physical_count=0), ["no-cuda-device", "mask-repeated"], id="no-device"),
        pytest.param("cuda", seen(0, "-1", physical_count=0), ["no-cuda-device"], id="no-device-to-hide"),
        pytest.param(
            "cuda",
            seen(0, "0-3", cuda_build=None, physical_count=2),
            ["torch-without-cuda", "mask-unreadable"],
            id="no-cuda-in-torch-and-devices",
        ),
        pytest.param(None, seen(0, "-1", cuda_build=None), [], id="the-cpu-is-welcome"),
        pytest.param(
            "cuda", seen(0, "-1", physical_count=0, forked=True), ["driver-unusable", "mask-hides-all"], id="forked"
        ),
    ],
)
def test_the_mask_is_not_blamed_where_it_hides_nothing(preferred: object, snapshot: Snapshot, codes: list[str]) -> None:
    """
    That torch has no CUDA, or the machine no device, comes before a fault of the mask, and that a mask hides them all
    is not said.
    """
    assert codes == codes_of(preferred, snapshot)


@pytest.mark.parametrize(
    ("release", "words"),
    [
        pytest.param("580.65.06", "the driver shows 2 of them to one process (from driver R570 on", id="from-r570-on"),
        pytest.param("535.261.03", "the driver shows 1 of them to one process (before driver R570", id="before-r570"),
        pytest.param("", "depends on its release (before driver R570: one at most; from driver R570 on", id="unknown"),
    ],
)
def test_as_many_instances_are_told_as_the_driver_shows(release: str, words: str) -> None:
    """
    Three instances in two GPU instances: two of them from R570 on, and one before, by NVIDIA's guide to MIG.
    """
    (finding,) = found("mask-mig", 1, divided(1, (2, (ONE, TWO, THREE)), mask="0", driver_release=release))

    assert "it has 3 instances" in finding.reason
    assert words in finding.reason


def test_of_several_divided_devices_one_with_instances_is_named() -> None:
    """
    What is to be written is the same as where the counts are told.
    """
    snapshot = divided(2, (0, ()), (1, (TWO,)), driver_release="580.65.06")
    remedies = {finding.remedy for finding in judge(request_for(2), snapshot).findings}

    assert {f"name an instance by UUID: CUDA_VISIBLE_DEVICES={TWO}"} == remedies


def test_a_remedy_of_two_reasons_is_printed_once() -> None:
    """
    A device in MIG mode explains both an ordinal that is none and two counts.
    """
    diagnosis = judge(request_for(1), divided(1, (2, (ONE, TWO, THREE)), mask="0", driver_release="580.65.06"))
    text = diagnosis.render()

    assert ["mask-mig", "count-disagrees"] == [finding.code for finding in diagnosis.findings]
    assert 2 == text.count("\n  why: ")
    assert 1 == text.count("\n  fix: ")


def test_a_remedy_that_another_one_offers_too_is_printed_once() -> None:
    """
    A task of Slurm that asks for its local rank, and has one device of its own.
    """
    text = judge(request_for(3), seen(1, "3", launch=launched(3, 4), sharing=OWN)).render()

    assert "[physical-index]" in text
    assert "[one-device-per-rank]" in text
    assert 1 == text.count("use cuda:0")


@pytest.mark.parametrize(
    ("count", "other"), [pytest.param(2, "another device", id="of-two"), pytest.param(1, "the CPU", id="the-only-one")]
)
def test_a_device_without_memory_is_about_its_memory(count: int, other: str) -> None:
    """
    nvidia-smi shows which processes hold it.
    """
    said = "CUDA error: out of memory"
    (finding,) = found("device-unusable", 0, seen(count, driver_count=count, refusal=said, refused=("cuda:0",)))

    assert f"run nvidia-smi to see which processes hold its memory, and end them; or use {other}" == finding.remedy


def test_the_memory_of_a_device_of_amd_is_shown_by_its_own_tool() -> None:
    """
    rocm-smi, and not nvidia-smi.
    """
    snapshot = replace(rocm(1), refusal="HIP error: out of memory", refused=("cuda:0",))

    assert found("device-unusable", 0, snapshot)[0].remedy.startswith("run rocm-smi ")


def test_of_several_defects_the_one_that_decides_is_named() -> None:
    """
    The last one, which ends the list; the text to write instead mends them all.
    """
    (finding,) = found("mask-unreadable", 2, seen(1, "0-1,x"))

    assert "'x'" in finding.reason


def test_an_empty_mask_of_cuda_is_no_matter_of_rocm() -> None:
    """
    What torch and ROCm make of HIP's is said of HIP's alone.
    """
    (finding,) = found("mask-hides-all", 0, seen(0, ""))

    assert "CUDA_VISIBLE_DEVICES='' hides every device" == finding.reason


def test_the_most_specific_reason_comes_first() -> None:
    """
    What stops the driver stands before what is wrong with the mask, and that before what is wrong with the number.
    """
    snapshot = seen(0, "0,0", forked=True, misspelled=("CUDA_VISIBLE_DEVICE",))
    codes = [finding.code for finding in judge(request_for(-1), snapshot).findings]

    assert ["driver-unusable", "mask-repeated", "negative-ordinal", "mask-misspelled"] == codes


@pytest.mark.parametrize(
    ("preferred", "snapshot", "first_line"),
    [
        pytest.param(3, seen(1, "3"), "cuda:3 is invalid: cuda:0 is the only visible device", id="one-visible"),
        pytest.param(3, seen(2), "cuda:3 is invalid: 2 devices are visible, cuda:0 to cuda:1", id="several-visible"),
        pytest.param("cuda", seen(0), "cuda is invalid: no CUDA device is visible", id="none-visible"),
        pytest.param("xpu", seen(2), "xpu is invalid: no xpu device is visible", id="another-kind"),
        pytest.param(0, seen(1), "cuda:0 is valid: cuda:0 is the only visible device", id="valid"),
        pytest.param(
            None, seen(1), "the device of this process is cuda:0: cuda:0 is the only visible device", id="chosen"
        ),
        pytest.param(
            "xpu:0",
            seen(2, accelerator="xpu", accelerator_count=1),
            "xpu:0 is valid: xpu:0 is the only visible device",
            id="another-kind-is-valid",
        ),
        pytest.param(
            "cuda",
            seen(1, refusal=LOST, refused=("cuda:0",)),
            "cuda:0 cannot be used: the driver refused it",
            id="refused",
        ),
        pytest.param(
            "cuda",
            seen(1, launch=launched(1), sharing=replace(OWN, doubt=True), refusal=LOST, refused=("cuda:0",)),
            "cuda:0 cannot be used: the driver refused it",
            id="refused-in-doubt",
        ),
        pytest.param(
            "cuda",
            seen(1, launch=launched(1), sharing=replace(OWN, doubt=True)),
            "cuda:0 was chosen as the only visible device, and others may use it too",
            id="in-doubt",
        ),
        pytest.param(1, seen(0, forked=True), "cuda:1 cannot be used: CUDA cannot start in this process", id="forked"),
        pytest.param(
            None,
            seen(0, driver_cuda=11040, physical_count=1),
            "no CUDA device can be used: CUDA cannot start in this process",
            id="unusable-without-a-wish",
        ),
        pytest.param(
            "cuda",
            seen(2, launch=launched(3, 4), sharing=SHARED),
            "no device for local rank 3: 4 workers on this node share 2 visible devices",
            id="oversubscribed",
        ),
        pytest.param(
            "cuda",
            seen(2, launch=launched(3)),
            "no device for local rank 3: the workers on this node share 2 visible devices",
            id="oversubscribed-by-nobody-knows-how-many",
        ),
        pytest.param(
            "cuda",
            seen(0, physical_count=2),
            "no CUDA device can be used: this process sees none, although the machine has 2 CUDA devices",
            id="unusable",
        ),
        pytest.param(
            "cuda",
            seen(1, launch_error=NO_RANK),
            "cuda:0 was chosen as the only visible device, and others may use it too",
            id="no-local-rank",
        ),
        pytest.param(
            None,
            seen(0, accelerator="xpu", accelerator_count=2, launch=launched(3, 4), sharing=SHARED),
            "no device for local rank 3: 4 workers on this node share 2 visible devices",
            id="oversubscribed-another-kind",
        ),
        pytest.param(
            None,
            seen(0, accelerator="xpu", accelerator_count=2, launch=launched(1, 2), refusal="no", refused=("xpu:1",)),
            "xpu:1 cannot be used: the driver refused it",
            id="refused-another-kind",
        ),
        pytest.param("GPU-1", seen(1, found=()), "GPU-1 is invalid: cuda:0 is the only visible device", id="uuid"),
        pytest.param(
            "npu",
            seen(0, accelerator="xpu", accelerator_count=1),
            "npu is invalid: no npu device is visible",
            id="a-third-kind",
        ),
        pytest.param(
            "cuda",
            seen(0, "x", count_evidence="CUDA unknown error"),
            "no CUDA device can be used: this process sees none, although the machine has CUDA devices",
            id="unusable-and-uncounted",
        ),
        pytest.param(
            None,
            seen(1, accelerator="xpu", accelerator_count=1, refusal=LOST, refused=("cuda:0",)),
            "cuda:0 cannot be used: the driver refused it",
            id="refused-beside-another-kind",
        ),
    ],
)
def test_the_first_line_stands_alone(preferred: object, snapshot: Snapshot, first_line: str) -> None:
    """
    It says what was asked for, and what is there.
    """
    assert first_line == judge(request_for(preferred), snapshot).render().splitlines()[0]


@pytest.mark.parametrize("preferred", [None, "cuda"])
def test_the_asker_is_named(preferred: str | None) -> None:
    """
    A device that was chosen by a local rank is shown with the variable that the rank came from.
    """
    snapshot = seen(1, launch=launched(3, 4), sharing=SHARED, variables={"LOCAL_RANK": "3"})

    assert "\n  asked for by: LOCAL_RANK='3' (torchrun)\n" in judge(request_for(preferred), snapshot).render()


def test_an_unknown_launcher_is_not_named() -> None:
    """
    The variable alone says where the local rank came from.
    """
    launch = Launch(launcher="unknown", local_rank=3, sources=(("local_rank", "LOCAL_RANK"),))
    snapshot = seen(2, launch=launch, variables={"LOCAL_RANK": "3"})

    assert "\n  asked for by: LOCAL_RANK='3'\n" in judge(request_for(None), snapshot).render()


def test_the_asker_of_another_kind_is_named() -> None:
    """
    A local rank chooses among other accelerators too.
    """
    snapshot = seen(0, accelerator="xpu", accelerator_count=2, launch=launched(3, 4), variables={"LOCAL_RANK": "3"})

    assert "\n  asked for by: LOCAL_RANK='3' (torchrun)\n" in judge(request_for("xpu"), snapshot).render()


def test_an_asker_without_a_variable_is_named_by_its_rank() -> None:
    """
    A launcher that does not say where its local rank came from is still named.
    """
    snapshot = seen(1, launch=launched(3, 4, sources=()), sharing=SHARED)

    assert "\n  asked for by: local rank 3 (torchrun)\n" in judge(request_for(None), snapshot).render()


def test_what_needs_no_remedy_has_none() -> None:
    """
    An observation is shown with its reason alone.
    """
    text = judge(request_for(None), seen(1, "1", launch=launched(1, 2), sharing=OWN)).render()

    assert "[one-device-per-rank]" in text
    assert "fix:" not in text


def test_a_local_rank_that_cannot_be_told_keeps_its_words() -> None:
    """
    Reason and remedy are those of the error; a value that is quoted in it may have a colon of its own.
    """
    error = LocalRankError("torchrun", "LOCAL_RANK", "a: b", "LOCAL_RANK='a: b' is not a local rank: unset LOCAL_RANK")
    (finding,) = found("no-local-rank", "cuda", seen(1, launch_error=error))

    assert ("LOCAL_RANK='a: b' is not a local rank", "unset LOCAL_RANK") == (finding.reason, finding.remedy)


def test_an_error_without_a_remedy_is_a_reason_alone() -> None:
    """
    Such as that of a launcher of one's own.
    """
    error = LocalRankError("mine", "MY_RANK", None, "MY_RANK is missing")
    (finding,) = found("no-local-rank", "cuda", seen(1, launch_error=error))

    assert ("MY_RANK is missing", "") == (finding.reason, finding.remedy)


@pytest.mark.parametrize("sharing", [None, SHARED], ids=["nothing-known", "shared"])
@pytest.mark.parametrize("preferred", [7, -1], ids=["past-the-last", "negative"])
def test_four_workers_are_advised_four_devices(preferred: int, sharing: Sharing | None) -> None:
    """
    Who asks for an ordinal that is none, the same in each worker, is told that worker's own device.
    """
    advice = [
        finding.suggestion
        for rank in range(4)
        for finding in judge(request_for(preferred), seen(4, launch=launched(rank, 4), sharing=sharing)).findings
    ]

    assert ["cuda:0", "cuda:1", "cuda:2", "cuda:3"] == advice


@given(
    count=st.integers(1, 9),
    workers=st.integers(1, 9),
    preferred=st.integers(-2, -1) | st.integers(9, 12),
    counted=st.booleans(),
)
def test_workers_that_share_a_view_are_never_advised_the_same_device(
    count: int, workers: int, preferred: int, counted: bool
) -> None:
    """
    However many there are: each is advised a device of its own, or none.
    """
    launches = [launched(rank, workers if counted else None) for rank in range(workers)]
    cases = [judge(request_for(preferred), seen(count, launch=one, sharing=SHARED)) for one in launches]
    advice = [case.findings[0].suggestion for case in cases if case.findings[0].suggestion is not None]

    assert len(set(advice)) == len(advice)
    assert workers > count or workers == len(advice)


def test_a_local_rank_that_is_left_over_comes_before_the_crowd() -> None:
    """
    It explains why there seem to be too many workers.
    """
    codes = [finding.code for finding in diagnosis_of(None, seen(2, launch=launched(5, confirmed=False))).findings]

    assert ["stale-local-rank", "oversubscribed"] == codes


def test_an_explicit_ordinal_is_nobody_elses() -> None:
    """
    The local rank did not ask for a device that the caller named.
    """
    snapshot = seen(1, launch=launched(3, 4), variables={"LOCAL_RANK": "3"})

    assert "asked for by" not in judge(request_for(7), snapshot).render()


@pytest.mark.parametrize(
    ("preferred", "snapshot", "fault"),
    [
        pytest.param(1, seen(1, "0,gpu1,2"), "gpu1", id="unreadable"),
        pytest.param(1, seen(1, "0,17,1", physical_count=4), "17", id="of-no-device"),
        pytest.param(15, seen(2, "4,15"), "15", id="a-physical-index"),
    ],
)
def test_the_entry_at_fault_is_marked(preferred: object, snapshot: Snapshot, fault: str) -> None:
    """
    The caret stands under the entry that the first reason about the mask names.
    """
    lines = judge(request_for(preferred), snapshot).render().splitlines()
    mask = next(number for number, line in enumerate(lines) if line.startswith("  mask: "))

    assert fault == "".join(a for a, b in zip(lines[mask], lines[mask + 1], strict=False) if b == "^")


def test_the_mask_is_shown_where_it_is_sound() -> None:
    """
    A sound mask is shown as it is; there is nothing to mark.
    """
    lines = judge(request_for(7), seen(2, "4,5")).render().splitlines()

    assert "  mask: CUDA_VISIBLE_DEVICES='4,5'" in lines
    assert [] == [line for line in lines if "^" in line]


def test_an_unset_mask_is_not_shown() -> None:
    """
    What is not there is not shown.
    """
    assert "mask:" not in judge(request_for(5), seen(2)).render()


def test_what_the_driver_said_is_quoted() -> None:
    """
    A refusal stands in the text, in quotes.
    """
    snapshot = seen(1, driver_count=1, refusal=LOST, refused=("cuda:0",))

    assert f"refuses: {LOST!r} [device-unusable]\n" in judge(request_for(0), snapshot).render()


def test_what_the_driver_said_may_be_long() -> None:
    """
    CUDA's errors come with advice of their own, which is shown.
    """
    said = (
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be asynchronously "
        "reported at some other API call, so the stacktrace below might be incorrect."
    )
    (finding,) = found("device-unusable", 0, seen(1, driver_count=1, refusal=said, refused=("cuda:0",)))

    assert repr(said) in finding.reason


def test_what_torch_said_may_be_long() -> None:
    """
    torch's reason why it could not count is shown as a whole: torch/cuda/__init__.py, 2.4 to 2.14.
    """
    said = (
        "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
        "CUDA_VISIBLE_DEVICES after program start."
    )
    (finding,) = found("driver-unusable", 0, seen(0, count_evidence=said))

    assert f"torch could not count the devices: {said!r}" == finding.reason


def test_a_build_is_named_by_the_major_version_that_the_driver_serves() -> None:
    """
    Within one, a driver serves every build: https://docs.nvidia.com/deploy/cuda-compatibility/
    """
    (finding,) = found("driver-unusable", 0, seen(0, driver_cuda=11040))

    assert finding.remedy.endswith("build of torch for CUDA 11")


@pytest.mark.parametrize(
    ("refused", "remedy"),
    [
        pytest.param((), "if each has its own, all is well: name cuda:0 to silence this; if they", id="chosen"),
        pytest.param(("cuda:0",), "if each has its own, all is well; if they", id="refused"),
    ],
)
def test_a_doubt_can_be_silenced_where_there_is_a_device(refused: tuple[str, ...], remedy: str) -> None:
    """
    By naming the device; one that refused is not named.
    """
    doubtful = seen(1, launch=launched(1), sharing=replace(OWN, doubt=True))
    snapshot = replace(doubtful, refused=refused, refusal=LOST if refused else "")

    assert found("one-device-per-rank", "cuda", snapshot)[0].remedy.startswith(remedy)


def test_the_devices_of_another_kind_are_told() -> None:
    """
    Past the last one, the reason tells which there are of that kind.
    """
    (finding,) = found("no-such-accelerator", "xpu:9", seen(0, accelerator="xpu", accelerator_count=1))

    assert "xpu:0 is the only visible device, and 9 is asked for" == finding.reason


def test_a_crowd_that_nobody_counted_is_told_by_the_local_rank() -> None:
    """
    Where nothing tells how many workers there are, nor whether they share, the reason is the local rank alone.
    """
    (finding,) = found("oversubscribed", "cuda", seen(2, launch=launched(3)))

    assert "local rank 3 and 2 devices on this node" == finding.reason


# ---- for any request and any reading


TOKENS = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "9",
        "-1",
        "+1",
        " 1",
        "01",
        "1gpu",
        "0-3",
        "",
        " ",
        "all",
        "none",
        "'0'",
        "GPU-0",
        "GPU-1abc",
        "GPU-",
        "MIG-a",
        "MIG-b",
        "cuda:0",
        "\n",
        "\x1b[31m",
        "²",
        "--1",
        "x" * 90,
        "9" * 5000,
    ]
)
MASKS = st.one_of(st.none(), st.text(max_size=20), st.lists(TOKENS, max_size=6).map(",".join))
OUTSIDE = st.one_of(st.text(max_size=30), st.sampled_from(["CUDA error", "a\nb", "\u202e", "\ud800", "x" * 3000]))
LAUNCHES = st.builds(
    Launch,
    launcher=st.sampled_from(["torchrun", "slurm"]),
    local_rank=st.integers(0, 9),
    local_world_size=st.none() | st.integers(1, 10),
    rank=st.none() | st.integers(0, 9),
    world_size=st.none() | st.integers(1, 10),
    confirmed=st.booleans(),
    caution=st.sampled_from([None, CAUTION]),
    sources=st.sampled_from([(), (("local_rank", "LOCAL_RANK"),)]),
)
ISOLATIONS = st.builds(
    Isolation,
    on_bus=st.none() | st.integers(0, 9),
    other_drivers=st.lists(OUTSIDE, max_size=2).map(tuple),
    loaded=st.none() | st.booleans(),
    nodes=st.none() | st.lists(st.integers(0, 20), max_size=12).map(tuple),
    closed=st.lists(st.integers(0, 2), max_size=2).map(tuple),
)
SHARINGS = st.builds(
    Sharing, kind=st.sampled_from(["own", "shared", "unknown"]), reason=st.just("its reason"), doubt=st.booleans()
)
REQUESTS = st.one_of(
    st.sampled_from(
        [None, "auto", "cuda", "cpu", "mps", "xpu", "xpu:1", "npu:0", "GPU-0", "GPU-1ABC", "MIG-a", 10**5000]
    ),
    st.integers(-3, 12),
).map(request_for)


@st.composite
def machines(draw: st.DrawFn) -> tuple[PhysicalDevice, ...] | None:
    models = draw(st.none() | st.lists(st.sampled_from(["A", "B", "\x1b[0m", ""]), max_size=4))
    if models is None:
        return None
    uuids = draw(st.lists(st.sampled_from(["", "GPU-0abc", "GPU-1abc", "GPU-1abd"]), min_size=4, max_size=4))
    return tuple(
        PhysicalDevice(
            index=n,
            uuid=uuids[n],
            name=model,
            mig=draw(st.booleans()),
            instances=draw(st.none() | st.lists(st.sampled_from([ONE, TWO, "MIG-a"]), unique=True).map(tuple)),
            gpu_instances=draw(st.integers(0, 3)),
        )
        for n, model in enumerate(models)
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any reading, as far as the reader keeps its promises: the driver's own count is the count, if it has started."""
    driver = draw(st.none() | st.integers(0, 4))
    count = driver if driver is not None else draw(st.integers(0, 4))
    physical = draw(machines())
    launch = draw(st.none() | LAUNCHES)
    return Snapshot(
        mask=parse_mask(draw(MASKS), variable=draw(st.sampled_from(["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]))),
        device_count=count,
        driver_count=driver,
        count_evidence=draw(st.just("") | OUTSIDE),
        forked=driver is None and count == 0 and draw(st.booleans()),
        cuda_build=draw(st.sampled_from([None, "11.8", "12.8", "13.0"])),
        hip_build=draw(st.sampled_from([None, "6.4"])),
        driver_cuda=draw(st.sampled_from([None, 11040, 12080, 13000])),
        accelerator=draw(st.sampled_from(["", "xpu", "npu"])),
        accelerator_count=draw(st.integers(0, 2)),
        launch=launch,
        launch_error=draw(st.sampled_from([None, NO_RANK])) if launch is None else None,
        sharing=draw(st.none() | SHARINGS),
        found=draw(st.none() | st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple)),
        physical=physical,
        physical_count=len(physical) if physical is not None else draw(st.none() | st.integers(0, 4)),
        uuids=draw(st.none() | st.just(("GPU-0abc", "GPU-1abc")[:count])) if driver is not None else None,
        exported=draw(st.none() | MASKS.map(parse_mask)),
        isolation=draw(st.none() | ISOLATIONS),
        driver_release=draw(st.sampled_from(["", "535.261.03", "580.65.06"]) | OUTSIDE),
        misspelled=tuple(draw(st.lists(OUTSIDE, max_size=2))),
        variables=draw(
            st.dictionaries(
                st.sampled_from(
                    [
                        "CUDA_DEVICE_ORDER",
                        "CUDA_VISIBLE_DEVICES",
                        "ROCR_VISIBLE_DEVICES",
                        "HIP_VISIBLE_DEVICES",
                        "NVIDIA_VISIBLE_DEVICES",
                        "LOCAL_RANK",
                    ]
                ),
                OUTSIDE | MASKS.filter(lambda mask: mask is not None),
            )
        ),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Request, Snapshot]:
    """A request and a reading; the device that it gets may have refused, another before it, and fewer be shown then."""
    request, snapshot = draw(REQUESTS), draw(snapshots())
    device = resolve(request, snapshot)[0]
    if device in {None, "cpu"} or draw(st.booleans()):
        return request, snapshot
    before = draw(
        st.lists(st.sampled_from(["cuda:0", "cuda:1", "xpu:0"]).filter(lambda one: one != device), max_size=1)
    )
    refused = replace(snapshot, refused=(*before, device), refusal=draw(OUTSIDE.filter(bool)))
    if device.startswith("cuda") and draw(st.booleans()):
        shown = draw(st.integers(0, snapshot.device_count))
        refused = replace(refused, driver_count=shown, device_count=shown)
    return request, refused


def is_usable(device: str, snapshot: Snapshot) -> bool:
    return device not in snapshot.refused and device == resolve(request_for(device), snapshot)[0]


@settings(deadline=None)
@given(case=cases())
def test_every_suggestion_can_be_used(case: tuple[Request, Snapshot]) -> None:
    """
    A device that is suggested, or named in what to do, is valid by the same reading, and is not the one that refused.
    """
    diagnosis = judge(*case)
    suggested = [finding.suggestion for finding in diagnosis.findings if finding.suggestion is not None]
    named = [device for finding in diagnosis.findings for device in re.findall(r"[a-z]+:[0-9]+", finding.remedy)]

    assert [] == [device for device in suggested + named if not is_usable(device, case[1])]


@settings(deadline=None)
@given(case=cases())
def test_a_refusal_is_explained(case: tuple[Request, Snapshot]) -> None:
    """
    Where the device cannot be had, something says why. A local rank that cannot be told is an error of its own.
    """
    diagnosis = judge(*case)

    assert diagnosis.is_valid or diagnosis.findings or diagnosis.remark == "no-local-rank"


@settings(deadline=None)
@given(case=cases())
def test_codes_are_the_documented_ones(case: tuple[Request, Snapshot]) -> None:
    """
    No code is found that is not among the stable ones, and none with an empty reason.
    """
    findings = judge(*case).findings

    assert {finding.code for finding in findings} <= CODES
    assert all(finding.reason for finding in findings)


LINES = re.compile(
    r"  (asked for by: [ -~]+ \([a-z]+\)|mask: (CUDA|HIP)_VISIBLE_DEVICES=[ -~]+| *\^+|the driver said: ['\"][ -~]+|"
    r"why: [ -~]+ \[[a-z-]+\]|fix: [ -~]+)"
)


@settings(deadline=None)
@given(case=cases())
def test_text_from_outside_stays_in_its_line(case: tuple[Request, Snapshot]) -> None:
    """
    Whatever stands in the environment, in the driver's words or in names: the text is ASCII without control
    characters, and each line is one that the diagnosis wrote.
    """
    first, *others = judge(*case).render().split("\n")

    assert re.fullmatch("[ -~]+", first)
    assert "None" not in first
    assert [] == [line for line in others if not LINES.fullmatch(line)]


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param("x" * 10**6, id="one-entry"),
        pytest.param("0" * 10**6, id="digits"),
        pytest.param("GPU-" + "a" * 10**6, id="one-uuid"),
        pytest.param("," * 10**6, id="commas"),
        pytest.param(" " * 10**6 + "x", id="blanks"),
        pytest.param("\ud800" * 10**6, id="surrogates"),
        pytest.param(",".join(map(str, range(200_000))) + ",x", id="many-entries"),
        pytest.param("'" + ",".join(map(str, range(3000))) + "'", id="many-entries-in-quotes"),
        pytest.param(",".join(["'GPU-" + "a" * 100 + str(n) for n in range(150)]), id="many-uuids-in-quotes"),
    ],
)
def test_a_huge_mask_is_cut(mask: str) -> None:
    """
    A message stays readable, whatever the mask: no line is longer than a screen holds.
    """
    lines = judge(request_for("cuda"), seen(0, mask, physical_count=2)).render().splitlines()

    assert max(map(len, lines)) < 4000


def diagnosis_of(preferred: object, snapshot: Snapshot) -> Diagnosis:
    return judge(request_for(preferred), snapshot)


def test_a_diagnosis_without_a_device_is_not_valid() -> None:
    """
    `is_valid` tells whether the request can be had as it is.
    """
    assert [True, False] == [diagnosis_of(1, seen(count)).is_valid for count in (2, 1)]


def codes_of(preferred: object, snapshot: Snapshot) -> list[str]:
    return [finding.code for finding in judge(request_for(preferred), snapshot).findings]


@pytest.mark.parametrize("mask", ["", "-1", "1,1", "all"])
def test_a_mask_that_leaves_nothing_is_too_late_where_the_driver_has_devices(mask: str) -> None:
    """
    That needs no NVML; and what is wrong with that mask hides no device here.
    """
    assert ["mask-too-late"] == codes_of(5, seen(2, mask, driver_count=2))


def test_a_device_that_a_late_mask_names_need_not_be_the_one() -> None:
    """
    Where the devices cannot be compared, that is said, and no device is suggested.
    """
    (finding,) = found("physical-index", 3, seen(2, "2,3", driver_count=2))

    assert "unless the mask was changed after CUDA had started" in finding.reason
    assert finding.suggestion is None


def test_a_device_that_a_late_mask_names_by_uuid_is_not_hidden_by_it() -> None:
    """
    It is in the mask, so that adding it would do nothing: it came too late.
    """
    twins = machine("A", "A")
    snapshot = seen(1, "GPU-1abc", driver_count=1, found=(), physical=twins, physical_count=2, uuids=(twins[0].uuid,))
    case = judge(request_for("GPU-1abc"), snapshot)

    assert ["mask-too-late", "not-visible"] == [finding.code for finding in case.findings]
    assert "add it to" not in case.render()


@pytest.mark.parametrize("mask", ["9", "MIG-dead", "GPU-dead"])
def test_a_mask_that_names_devices_may_be_what_hides_them(mask: str) -> None:
    """
    Where nobody knows the machine's devices, it is not said that no mask hides one.
    """
    (finding,) = found("no-cuda-device", "cuda", seen(0, mask))

    assert f"CUDA_VISIBLE_DEVICES='{mask}'" in finding.reason
    assert "no mask" not in finding.reason


def test_instances_of_a_machine_that_has_none_are_unknown() -> None:
    """
    No device of it is in MIG mode, so that the entries name nothing, whatever the driver's release.
    """
    whole = machine("A", "A")

    assert ["mask-unknown-device"] == codes_of("cuda", seen(0, "MIG-dead,MIG-beef", physical=whole, physical_count=2))


def test_the_rule_for_instances_is_told_of_both_drivers_where_the_release_is_unknown() -> None:
    """
    Nobody is told to update a driver that may be new.
    """
    (finding,) = found("mask-mig", "cuda", seen(1, "MIG-a,MIG-b", driver_count=1))

    assert "before driver R570" in finding.reason
    assert "from driver R570 on" in finding.reason
    assert "update" not in finding.remedy


def test_a_mask_explains_before_the_containers_variable_does() -> None:
    """
    NVIDIA_VISIBLE_DEVICES is no reason where CUDA_VISIBLE_DEVICES is set.
    """
    variables = {"NVIDIA_VISIBLE_DEVICES": "0,1,2,3"}

    assert "NVIDIA_VISIBLE_DEVICES" in found("out-of-range", 2, seen(1, variables=variables))[0].reason
    assert "NVIDIA_VISIBLE_DEVICES" not in found("out-of-range", 2, seen(1, "0", variables=variables))[0].reason


def test_without_a_local_rank_the_remedy_is_to_set_one() -> None:
    """
    Devices are visible, and which of them is this worker's cannot be told.
    """
    (finding,) = found("out-of-range", 5, seen(4, launch_error=NO_RANK))

    assert "set LOCAL_RANK, by which each worker is told its device" == finding.remedy


@pytest.mark.parametrize(
    ("said", "told"), [("No CUDA GPUs are available", True), ("CUDA driver initialization failed", False)]
)
def test_a_mask_that_hid_all_at_first_is_named_only_where_that_may_be(said: str, told: bool) -> None:
    """
    torch says so where the driver showed none; another failure of the driver is no matter of the mask.
    """
    (finding,) = found("driver-unusable", 0, seen(1, refusal=said, refused=("cuda:0",)))

    assert told is ("start the program anew" in finding.remedy)


def test_where_a_mask_came_too_late_its_own_finding_has_the_remedy() -> None:
    """
    That of the device that is not visible has none beside it.
    """
    twins = machine("A", "A")
    snapshot = seen(1, "GPU-1abc", driver_count=1, found=(), physical=twins, physical_count=2, uuids=(twins[0].uuid,))
    (finding,) = found("not-visible", "GPU-1abc", snapshot)

    assert "" == finding.remedy
