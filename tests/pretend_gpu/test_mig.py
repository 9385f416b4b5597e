"""GPUs in MIG mode: what is said before the driver starts is what it then shows."""

from __future__ import annotations

from typing import Any

import pytest

from mask_facts import MIG_GPUS, MIG_SETTING, A, mig_uuid

# GPU 0 holds instances 1, 2 and (twice) 5, GPU 1 holds 1, GPU 2 is whole.
OLDER = f"MIG-{A}/2/0"
RELEASES = [pytest.param("535.261.03", id="before-r570"), pytest.param("580.65.06", id="since-r570")]


def divided(release: str) -> dict[str, str]:
    return {"PRETEND_GPU_MIG": MIG_SETTING, "PRETEND_DRIVER_RELEASE": release}


def before_and_after() -> list[object]:
    import torch

    import safedev

    case = safedev.diagnose(0)
    told = [finding.reason for finding in case.findings if finding.code == "count-disagrees"]
    return [case.snapshot.device_count, told, torch._C._cuda_getDeviceCount()]


def test_the_instances_are_listed(rig: Any) -> None:
    """
    In NVML's order, without the empty places; of a whole device none.
    """
    code = "import safedev; [[d.mig, d.instances, d.gpu_instances] for d in safedev.diagnose(0).snapshot.physical]"
    found = rig.call(code, gpus=MIG_GPUS, settings=divided("580.65.06"))
    first = [mig_uuid(0, 1, 0), mig_uuid(0, 2, 0), mig_uuid(0, 5, 0), mig_uuid(0, 5, 1)]

    assert [[True, first, 3], [True, [mig_uuid(1, 1, 0)], 1], [False, None, 0]] == found.value
    assert not found.awake


# Source of the driver's numbers: NVIDIA's MIG guide, as tests/pretend_gpu/mask_facts.py has it.
@pytest.mark.parametrize("release", RELEASES)
def test_both_counts_are_told(rig: Any, release: str) -> None:
    """
    Torch's, and the one that the driver shows once it has started.
    """
    counted, (told,), shown = rig.call(before_and_after, gpus=MIG_GPUS, settings=divided(release)).value

    assert {"535.261.03": 1, "580.65.06": 5}[release] == shown
    assert MIG_GPUS == counted
    assert "torch counts 3 whole devices" in told
    assert f"shows {shown} (" in told


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "mask", [pytest.param("1", id="one-of-one"), pytest.param("2", id="whole"), pytest.param("0", id="one-of-many")]
)
def test_counts_that_agree_are_no_finding(rig: Any, release: str, mask: str) -> None:
    """
    And those that do not are one, under a mask of whole devices too.
    """
    env = {"CUDA_VISIBLE_DEVICES": mask}
    counted, told, shown = rig.call(before_and_after, gpus=MIG_GPUS, env=env, settings=divided(release)).value

    assert (counted != shown) == bool(told)


def test_the_mask_to_write_shows_an_instance(rig: Any) -> None:
    """
    What the remedy says to write, word for word, makes the instance the one
    device of a process.
    """
    code = "import safedev; [f.remedy for f in safedev.diagnose(1).findings if f.code == 'mask-mig'][0]"
    remedy = rig.call(code, gpus=1, settings={"PRETEND_GPU_MIG": "0:1/0,0:2/0"}).value
    name, _, value = remedy.partition("UUID: ")[2].partition(",")[0].partition("=")
    code = "import safedev; str(safedev.set_device()), safedev._driver.uuids()"
    result = rig.call(code, gpus=1, env={name: value}, settings={"PRETEND_GPU_MIG": "0:1/0,0:2/0"})

    assert ("CUDA_VISIBLE_DEVICES", mig_uuid(0, 1, 0)) == (name, value)
    # What the driver tells is the UUID without its kind.
    assert ["cuda:0", ["GPU-" + mig_uuid(0, 1, 0)[4:]]] == result.value


def test_an_instance_that_is_not_here_is_named(rig: Any) -> None:
    """
    With those that are.
    """
    env = {"CUDA_VISIBLE_DEVICES": "MIG-ffffffff"}
    text = rig.call(
        "import safedev; safedev.diagnose('cuda').render()", gpus=1, env=env, settings={"PRETEND_GPU_MIG": "0:1/0"}
    ).value

    assert f"names 'MIG-ffffffff', and this machine (or container) has 1 MIG instance: {mig_uuid(0, 1, 0)}" in text
    assert "[mask-unknown-device]" in text


def test_the_audit_names_instances(rig: Any) -> None:
    """
    By their own UUID, with the physical index of the device that they are part
    of, and their own memory.
    """
    code = "from safedev._collect import collect; collect()['devices']"
    env = {"CUDA_VISIBLE_DEVICES": f"{mig_uuid(1, 1, 0)},{mig_uuid(0, 2, 0)}"}
    devices = rig.call(code, gpus=MIG_GPUS, env=env, settings=divided("580.65.06")).value
    whole = rig.call(code, gpus=MIG_GPUS, env={"CUDA_VISIBLE_DEVICES": "2"}).value

    assert [1, 0] == [device["physical_index"] for device in devices]
    assert [mig_uuid(1, 1, 0), mig_uuid(0, 2, 0)] == [device["uuid"] for device in devices]
    assert all(0 < device["memory_total"] < whole[0]["memory_total"] for device in devices)


def test_the_audit_takes_no_instance_for_the_whole_device(rig: Any) -> None:
    """
    Without a mask torch counts whole devices, and the driver shows instances
    in their place.
    """
    code = "from safedev._collect import collect; collect()['devices']"
    devices = rig.call(code, gpus=MIG_GPUS, settings=divided("580.65.06")).value

    assert [0, 0, 0] == [device["physical_index"] for device in devices]
    assert [mig_uuid(0, 1, 0), mig_uuid(0, 2, 0), mig_uuid(0, 5, 0)] == [device["uuid"] for device in devices]


def test_the_audit_tells_a_count_once(rig: Any) -> None:
    """
    What was expected, and was then seen, is one warning.
    """
    code = "from safedev._collect import collect; collect()"
    report = rig.call(code, gpus=MIG_GPUS, settings=divided("580.65.06")).value

    assert ["count-disagrees"] == [finding["code"] for finding in report["findings"]]
    assert ["warning"] == [finding["level"] for finding in report["findings"]]


@pytest.mark.parametrize(
    ("before", "settings"),
    [
        pytest.param(None, {}, id="no-device-is-divided"),
        pytest.param(None, {"PRETEND_GPU_MIG": MIG_SETTING}, id="fewer-than-are-visible"),
        pytest.param(mig_uuid(0, 2, 0), {"PRETEND_GPU_MIG": MIG_SETTING}, id="another-instance"),
    ],
)
def test_a_late_mask_of_an_instance_is_told(rig: Any, before: str | None, settings: dict[str, str]) -> None:
    """
    A mask of one instance shows one, and by its own UUID.
    """
    late = f"import os, torch; torch.cuda.is_available(); os.environ['CUDA_VISIBLE_DEVICES'] = {mig_uuid(0, 1, 0)!r}"
    result = rig.call(
        "import safedev; [finding.code for finding in safedev.diagnose(0).findings]",
        gpus=MIG_GPUS,
        env={} if before is None else {"CUDA_VISIBLE_DEVICES": before},
        settings=settings,
        before=late,
    )

    assert "mask-too-late" in result.value


@pytest.mark.parametrize("mask", [mig_uuid(0, 1, 0), f"{mig_uuid(0, 1, 0)},{mig_uuid(0, 2, 0)}", OLDER])
@pytest.mark.parametrize("release", ["535.1", "580.1"])
def test_a_mask_of_instances_that_the_driver_has_read_is_not_late(rig: Any, mask: str, release: str) -> None:
    """
    Whether the driver shows all of them, or one.
    """
    result = rig.call(
        "import safedev; [finding.code for finding in safedev.diagnose(0).findings]",
        gpus=MIG_GPUS,
        env={"CUDA_VISIBLE_DEVICES": mask},
        settings={"PRETEND_GPU_MIG": MIG_SETTING, "PRETEND_DRIVER_RELEASE": release},
        before="import torch; torch.cuda.is_available()",
    )

    assert "mask-too-late" not in result.value


def test_an_instance_is_had_by_its_older_name(rig: Any) -> None:
    """
    As it stands in the mask.
    """
    result = rig.call(
        f"import safedev; str(safedev.set_device({OLDER!r}, fallback='raise'))",
        gpus=MIG_GPUS,
        env={"CUDA_VISIBLE_DEVICES": OLDER},
        settings={"PRETEND_GPU_MIG": MIG_SETTING},
    )

    assert "cuda:0" == result.value
