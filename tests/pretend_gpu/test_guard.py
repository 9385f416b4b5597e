"""The guard on pretend machines: what the driver then shows, and when it is too late."""

from __future__ import annotations

from typing import Any

import pytest

# What a process sees of the machine after the guard, by the driver's own word: bus numbers count from 1. torch tells a
# device's bus from 2.8 on, so the runtime is asked.
SHOWN = """
import ctypes, torch

def bus(ordinal):
    address = ctypes.create_string_buffer(20)
    assert 0 == ctypes.CDLL(None).cudaDeviceGetPCIBusId(address, 20, ordinal)
    return int(address.value.split(b":")[-2], 16)

[bus(n) - 1 for n in range(torch.cuda.device_count())]
"""


@pytest.mark.parametrize(
    ("devices", "env", "shown"),
    [
        pytest.param("[2, 0]", {}, [2, 0], id="order-is-kept"),
        pytest.param("'3'", {}, [3], id="text"),
        pytest.param("1", {"CUDA_VISIBLE_DEVICES": "3,2"}, [2], id="ordinals-of-the-inherited-mask"),
        pytest.param("[1, 0]", {"CUDA_VISIBLE_DEVICES": "3,2"}, [2, 3], id="reordered"),
        pytest.param("'GPU-02020202'", {}, [1], id="uuid-prefix"),
        pytest.param("'GPU-02020202'", {"CUDA_VISIBLE_DEVICES": "GPU-03030303,GPU-02020202"}, [1], id="uuid-in-a-mask"),
        pytest.param("0", {"CUDA_VISIBLE_DEVICES": "GPU-03030303,GPU-02020202"}, [2], id="ordinal-in-a-mask-of-uuids"),
        pytest.param("1", {"CUDA_VISIBLE_DEVICES": "1gpu,2gpu"}, [2], id="suffixes"),
    ],
)
def test_the_driver_shows_what_the_guard_left(rig: Any, devices: str, env: dict[str, str], shown: list[int]) -> None:
    """
    What was asked for is what a driver that starts afterwards shows, in order.
    """
    before = f"import safedev; safedev.guard_visible_devices({devices})"

    assert shown == rig.call(SHOWN, gpus=4, env=env, before=before).value


@pytest.mark.parametrize(
    ("devices", "env"),
    [
        pytest.param("4", {}, id="more-than-the-machine-has"),
        pytest.param("'GPU-09090909'", {}, id="uuid-of-another-machine"),
        pytest.param("2", {"CUDA_VISIBLE_DEVICES": "3,2"}, id="not-in-the-mask"),
        pytest.param("2", {"CUDA_VISIBLE_DEVICES": "0,9,1"}, id="hidden-behind-an-unknown-entry"),
        pytest.param("'GPU-01010101'", {"CUDA_VISIBLE_DEVICES": "GPU-03030303"}, id="uuid-not-in-the-mask"),
        pytest.param("0", {"CUDA_VISIBLE_DEVICES": "-1"}, id="nothing-is-held"),
        pytest.param("0", {"CUDA_VISIBLE_DEVICES": "0,0"}, id="a-void-mask-holds-nothing"),
    ],
)
def test_a_device_that_is_not_there_is_refused(rig: Any, devices: str, env: dict[str, str]) -> None:
    """
    The guard never widens a mask, and writes nothing that the machine is known
    not to have; the environment stays as it was.
    """
    code = f"""
    import os, safedev
    before = dict(os.environ)
    try:
        safedev.guard_visible_devices({devices})
        told = "nothing"
    except safedev.MaskError as error:
        told = type(error).__name__
    [told, before == dict(os.environ)]
    """

    assert ["MaskError", True] == rig.call(code, gpus=4, env=env).value


STARTERS = [
    pytest.param("torch.cuda.is_available()", id="is-available"),
    pytest.param("torch.cuda.init()", id="init"),
    pytest.param("torch.zeros(1, device='cuda')", id="tensor"),
    pytest.param("torch._C._cuda_getDeviceCount()", id="count-of-the-runtime"),
    pytest.param("getattr(torch, 'accelerator', torch.cuda).is_available()", id="accelerator"),  # none before 2.6
]


@pytest.mark.parametrize("start", STARTERS)
def test_after_the_start_it_is_too_late(rig: Any, start: str) -> None:
    """
    Whatever started the driver, in torch's eyes or behind its back, the guard
    knows, says how many devices are frozen, and changes nothing.
    """
    code = """
    import os, safedev
    try:
        safedev.guard_visible_devices(1)
        told = ""
    except safedev.MaskTooLateError as error:
        told = str(error)
    [told, os.environ.get("CUDA_VISIBLE_DEVICES")]
    """

    told, mask = rig.call(code, gpus=4, before=f"import torch; {start}").value

    assert "holds to 4 devices" in told
    assert mask is None


@pytest.mark.parametrize(
    "harmless",
    [
        pytest.param("torch.cuda.device_count()", id="device-count"),
        pytest.param("torch.device('cuda:3')", id="device"),
        pytest.param("torch.cuda.manual_seed_all(0)", id="seed"),
        pytest.param("torch.cuda.is_initialized()", id="is-initialized"),
        pytest.param("torch.cuda.set_device(-1)", id="set-device-minus-one"),
    ],
)
def test_before_the_start_it_is_not_too_late(rig: Any, harmless: str) -> None:
    """
    What starts no driver leaves the mask free.
    """
    before = f"import torch, safedev; {harmless}; safedev.guard_visible_devices(1)"

    assert [1] == rig.call(SHOWN, gpus=4, before=before).value


def test_a_change_that_changes_nothing_is_never_too_late(rig: Any) -> None:
    """
    Under the mask 2, asking for its one device is no change.
    """
    code = "import safedev; safedev.guard_visible_devices(0).raw"

    result = rig.call(code, gpus=4, env={"CUDA_VISIBLE_DEVICES": "2"}, before="import torch; torch.cuda.init()")

    assert "2" == result.value


def test_a_child_of_a_parent_that_started_cuda_is_told_that_no_mask_helps(rig: Any) -> None:
    """
    The driver answers there as if it had not started; torch knows better.
    """

    def child() -> str:
        import os

        import torch

        import safedev

        torch.cuda.init()
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                safedev.guard_visible_devices(1)
            except safedev.MaskTooLateError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            return pipe.read()

    assert "forked" in rig.call(child, gpus=4).value


def test_the_environment_of_a_child_process_can_be_guarded_at_any_time(rig: Any) -> None:
    """
    With another mapping the driver of this process is not asked, and
    ``os.environ`` is left alone.
    """
    code = """
    import os, safedev
    environ = {"CUDA_VISIBLE_DEVICES": "3,2"}
    safedev.guard_visible_devices(1, environ=environ)
    [environ, os.environ.get("CUDA_VISIBLE_DEVICES")]
    """

    result = rig.call(code, gpus=4, before="import torch; torch.cuda.init()")

    assert [{"CUDA_VISIBLE_DEVICES": "2"}, None] == result.value


@pytest.mark.parametrize("machine", ["no-nvml", "bare"])
def test_where_nothing_can_count_the_mask_is_written(rig: Any, machine: str) -> None:
    """
    Without NVML nobody knows what the machine has, so a number is written as
    it is.
    """
    code = "import safedev; safedev.guard_visible_devices([2, 7]).raw"

    assert "2,7" == rig.call(code, gpus=4, machine=machine, fresh=True).value


def test_the_order_decides_which_device_a_number_means(rig: Any) -> None:
    """
    With the fastest card at the end of the bus, PCI order makes ordinal 0 the
    first card on it.
    """
    settings = {"PRETEND_GPU_FASTEST": "1,0", "PRETEND_GPU_MODELS": "Small,Big"}
    before = "import safedev; safedev.guard_visible_devices(0, order='PCI_BUS_ID')"

    assert [0] == rig.call(SHOWN, gpus=2, settings=settings, before=before).value
    assert [1, 0] == rig.call(SHOWN, gpus=2, settings=settings).value


NVML = [
    "nvmlInit_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMigMode",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlShutdown",
]


@pytest.mark.parametrize("function", NVML)
def test_nvml_that_fails_at_any_call_does_no_harm(rig: Any, function: str) -> None:
    """
    Whichever call of NVML fails, a device is chosen, a refusal is explained, a
    UUID is found, and a mask is written.
    """
    code = """
    import safedev
    chosen = [str(safedev.select_device(1)), str(safedev.select_device("GPU-02020202"))]
    codes = [finding.code for finding in safedev.diagnose(9).findings]
    [chosen, codes]
    """

    result = rig.call(code, gpus=4, settings={"PRETEND_NVML_FAIL": f"{function}:999"})
    guarded = rig.call(
        "import safedev; safedev.guard_visible_devices([1]).raw",
        gpus=4,
        settings={"PRETEND_NVML_FAIL": f"{function}:999"},
        fresh=True,
    )

    assert [["cuda:1", "cuda:1"], ["out-of-range"]] == result.value
    assert "1" == guarded.value


def test_nvml_that_never_answers_is_given_up(rig: Any) -> None:
    """
    The guard waits for NVML for a bounded time, and then writes what it was
    asked to.
    """
    code = """
    import safedev._nvml
    safedev._nvml.SECONDS = 0.2
    import safedev
    safedev.guard_visible_devices([1]).raw
    """

    result = rig.call(code, gpus=4, settings={"PRETEND_NVML_HANG": "nvmlDeviceGetCount_v2"}, fresh=True, timeout=30)

    assert "1" == result.value


def test_a_replaced_environment_is_noticed(rig: Any) -> None:
    """
    What is written to a dictionary put in place of ``os.environ`` reaches no
    library: the guard refuses, and the diagnosis names it.
    """
    code = """
    import os, safedev
    os.environ = dict(os.environ)
    try:
        safedev.guard_visible_devices(1)
        told = "nothing"
    except safedev.MaskError as error:
        told = str(error)
    unchanged = "CUDA_VISIBLE_DEVICES" not in os.environ
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    [told, unchanged, [finding.code for finding in safedev.diagnose(0).findings]]
    """

    told, unchanged, codes = rig.call(code, gpus=4).value

    assert "[mask-not-in-force]" in told
    assert unchanged
    assert ["mask-not-in-force"] == codes


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(
            "import torch; torch.cuda.init(); os.environ['CUDA_VISIBLE_DEVICES'] = '2'", "mask-too-late", id="too-late"
        ),
        pytest.param(
            "os.environ = dict(os.environ, CUDA_VISIBLE_DEVICES='2')", "mask-not-in-force", id="replaced-environment"
        ),
        pytest.param("os.putenv('CUDA_VISIBLE_DEVICES', '2')", "mask-not-in-force", id="putenv"),
    ],
)
def test_reading_a_mask_that_is_not_in_force_warns(rig: Any, change: str, code: str) -> None:
    """
    The guard that only reads says so where the mask it reads is not the one
    that the driver holds to, or will.
    """
    result = rig.call("import safedev; safedev.guard_visible_devices(); None", gpus=4, before=f"import os; {change}")

    assert ["MaskWarning"] == [warning.name for warning in result.warnings]
    assert f"[{code}]" in result.warnings[0].message


def test_choosing_under_a_mask_that_came_too_late_warns(rig: Any) -> None:
    """
    A notebook's classic: CUDA has started, and the mask of a later cell does
    nothing. The device is valid, and not the one that was meant.
    """
    before = "import os, torch; torch.cuda.is_available(); os.environ['CUDA_VISIBLE_DEVICES'] = '2'"

    result = rig.call("import safedev; safedev.select_device()", gpus=4, before=before)

    assert "cuda:0" == result.value
    assert ["MaskWarning"] == [warning.name for warning in result.warnings]
    assert "[mask-too-late]" in result.warnings[0].message


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"PRETEND_GPU_LOST": "1"}, id="a-lost-device"),
        pytest.param({"PRETEND_GPU_MIG": "0:1/0,2/0"}, id="mig"),
    ],
)
def test_a_count_that_differs_for_another_reason_is_no_late_mask(rig: Any, settings: dict[str, str]) -> None:
    """
    Where a device is lost, or divided, the driver shows another number than
    NVML, and nobody changed the mask.
    """
    code = "import safedev; [finding.code for finding in safedev.diagnose(0).findings]"

    result = rig.call(code, gpus=2, settings=settings, before="import torch; torch.cuda.is_available()")

    assert "mask-too-late" not in result.value
