"""torch over the pretend driver: what starts it, what torch then believes, how devices fail, what works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from driver_facts import CALLS, PRELUDE, Call
from rig import Result, Rig, RigTimeoutError, compiler

TORCH = tuple(int(part) for part in version("torch").split(".")[:2]) if find_spec("torch") else (0, 0)
STATES = "\n(awake(), torch.cuda.is_initialized())"
ZEROS = "import torch; torch.zeros(1, device='cuda:{}').tolist()"


def package_folder(name: str) -> Path | None:
    spec = find_spec(name)
    found = list(spec.submodule_search_locations or ()) if spec else []
    return Path(found[0]) if found else None


# ---- what starts the driver


@pytest.mark.parametrize("call", [pytest.param(call, id=call.id) for call in CALLS])
def test_a_call_of_torch_starts_the_driver_or_not(rig: Rig, call: Call) -> None:
    """
    A call of torch starts the driver, and makes torch say that it is
    initialised, exactly where its sources and users say so.
    """
    if TORCH < call.since:
        pytest.skip(f"holds from torch {call.since} on")
    code = PRELUDE + f"import torch\n{call.code}" + STATES
    result = rig.call(
        code, gpus=2, settings=dict(call.settings), env=dict(call.env), machine=call.machine, fresh=call.fresh
    )

    assert [call.starts, call.initialises] == result.value
    assert call.starts == result.awake


def test_importing_torch_calls_neither_driver_nor_nvml(rig: Rig) -> None:
    """
    `import torch` alone leaves the machine alone.
    """
    result = rig.call("import torch", gpus=2, fresh=True)

    assert () == result.trace
    assert () == result.nvml


def test_importing_torch_loads_the_drivers_library(rig: Rig) -> None:
    """
    `import torch` opens libcuda (cuBLASLt, which torch links, does so as it is
    loaded), and leaves it as it was: "not loaded" says nothing about torch.
    """
    result = rig.call(PRELUDE + "before = state(); import torch; (before, state())", gpus=1, fresh=True)

    assert ["absent", 3] == result.value


# ---- what torch believes, once it is too late


def test_a_frozen_mask_is_not_what_torch_counts(rig: Rig) -> None:
    """
    After is_available() torch says it is not initialised, counts by the new
    text, and a tensor lands by the old one.
    """
    code = """
    import os, torch
    torch.cuda.is_available()
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    believed = [torch.cuda.is_initialized(), torch.cuda.device_count()]
    believed + [torch.cuda.get_device_properties(torch.zeros(1, device="cuda:0").device).pci_bus_id - 1]
    """
    found = rig.call(code, gpus=4, env={"CUDA_VISIBLE_DEVICES": "1,2"}).value

    assert [False, 1, 1] == found


def test_a_failed_runtime_stays_failed(rig: Rig) -> None:
    """
    The runtime repeats its first error: a mask mended after it helps the
    driver's own next start and torch no more.
    """
    code = (
        PRELUDE
        + """
import torch
mask("-1")
first = torch.cuda.is_available()
left = state()
mask("0")
later = [torch.cuda.is_available(), torch.cuda.device_count()]
try:
    torch.zeros(1, device="cuda")
    made = "made"
except RuntimeError as error:
    made = str(error).splitlines()[0]
[first, left, *later, made, start(), count()]
"""
    )
    found = rig.call(code, gpus=2).value

    assert [False, 3, False, 1, "No CUDA GPUs are available", 0, 1] == found


def test_the_static_count_is_inherited(rig: Rig) -> None:
    """
    A child of a parent that called is_available() counts what its parent
    counted, and can use none of it. Source: pytorch issue 55643.
    """
    code = (
        PRELUDE
        + """
import torch
torch.cuda.is_available()
def tried():
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as error:
        return str(error).splitlines()[0]
in_child(lambda: [torch._C._cuda_getDeviceCount(), torch.cuda._is_in_bad_fork(), state(), tried()])
"""
    )
    count, bad_fork, state, message = rig.call(code, gpus=2).value

    assert [2, True, 3] == [count, bad_fork, state]
    assert message.startswith("Cannot re-initialize CUDA in forked subprocess")


def test_a_fork_after_somebody_elses_start_is_unknown_to_torch(rig: Rig) -> None:
    """
    Where another library started the driver, torch knows of no bad fork, and
    the child fails with the words for a driver that does not start.
    """
    code = (
        PRELUDE
        + """
import torch
start()
def tried():
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as error:
        return [torch.cuda._is_in_bad_fork(), str(error).splitlines()[0]]
in_child(tried)
"""
    )
    bad_fork, message = rig.call(code, gpus=2).value

    assert bad_fork is False
    assert message.startswith("CUDA driver initialization failed")


def test_children_of_a_parent_that_only_counted_are_free(rig: Rig) -> None:
    """
    device_count() does no harm: each child reads its own mask.
    """
    code = (
        PRELUDE
        + """
import torch
torch.cuda.device_count()
def bus(text):
    mask(text)
    return torch.cuda.get_device_properties(0).pci_bus_id
[in_child(lambda: bus("2")), in_child(lambda: bus("1"))]
"""
    )
    found = rig.call(code, gpus=3).value

    assert [3, 2] == found


# ---- devices and drivers that fail


def error_of(rig: Rig, ordinal: int = 0, *, gpus: int = 2, **settings: str) -> str:
    error = rig.call(ZEROS.format(ordinal), gpus=gpus, settings=settings).error
    return error.message.splitlines()[0] if error else ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            {"PRETEND_GPU_BUSY": "1"}, "CUDA error: CUDA-capable device(s) is/are busy or unavailable", id="busy"
        ),
        pytest.param(
            {"PRETEND_GPU_COMPUTE_MODE": "1:2"},
            "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            id="prohibited",
        ),
        pytest.param(
            {"PRETEND_GPU_CONTEXT_ERROR": "1:802"}, "CUDA error: system not yet initialized", id="context-error"
        ),
        pytest.param({"PRETEND_GPU_OOM": "1"}, "CUDA out of memory.", id="out-of-memory"),
        pytest.param({"PRETEND_GPU_FREE_MIB": "100,0"}, "CUDA out of memory.", id="nothing-free"),
    ],
)
def test_one_device_fails_and_the_other_does_not(rig: Rig, settings: dict[str, str], words: str) -> None:
    """
    A fault of GPU 1 reaches the user in torch's own words, and GPU 0 works.
    """
    failing = error_of(rig, 1, **settings)
    working = error_of(rig, 0, **settings)

    assert failing.startswith(words)
    assert "" == working


def test_an_exclusive_device_that_is_free_works(rig: Rig) -> None:
    """
    Exclusive mode alone is no fault.
    """
    message = error_of(rig, 1, PRETEND_GPU_COMPUTE_MODE="1:3")

    assert "" == message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            {"PRETEND_GPU_NO_KERNELS": "0"}, "no kernel image is available for execution on the device", id="no-kernels"
        ),
        pytest.param({"PRETEND_GPU_LAUNCH_ERROR": "0:719"}, "unspecified launch failure", id="launch-error"),
    ],
)
def test_a_launch_fails(rig: Rig, settings: dict[str, str], words: str) -> None:
    """
    A device may be had, and refuse to run anything.
    """
    result = rig.call("import torch; torch.zeros(1, device='cuda') + 1", gpus=1, settings=settings)

    assert result.error is not None
    assert words in result.error.message


def test_an_ordinal_past_the_last_is_refused(rig: Rig) -> None:
    """
    The message is the real runtime's.
    """
    error = rig.call("import torch; torch.cuda.set_device(2)", gpus=2).error

    assert error is not None
    assert error.message.startswith("CUDA error: invalid device ordinal")


@pytest.mark.parametrize(
    ("settings", "machine", "words"),
    [
        pytest.param(
            {"PRETEND_CUDA_VERSION": "12.4"},
            "full",
            "The NVIDIA driver on your system is too old (found version 12040)",
            id="driver-too-old",
        ),
        pytest.param(
            {"PRETEND_DRIVER_ERROR": "35"},
            "full",
            "The NVIDIA driver on your system is too old",
            id="driver-said-to-be-too-old",
        ),
        pytest.param(
            {"PRETEND_DRIVER_ERROR": "803"}, "full", "Unexpected error from cudaGetDeviceCount()", id="driver-mismatch"
        ),
        pytest.param({}, "no-driver", "Found no NVIDIA driver on your system", id="no-driver"),
    ],
)
def test_a_driver_that_cannot_start_is_still_counted_by_nvml(
    rig: Rig, settings: dict[str, str], machine: str, words: str
) -> None:
    """
    NVML counts the devices of a driver that this torch cannot start; using one
    fails with torch's words.
    """
    code = """
    import torch
    count, message = torch.cuda.device_count(), ""
    try:
        torch.zeros(1, device="cuda")
    except Exception as error:
        message = str(error)
    (count, message)
    """
    count, message = rig.call(code, gpus=2, settings=settings, machine=machine).value

    assert 2 == count
    assert message.startswith(words)


def test_an_old_driver_is_not_started_by_the_runtime(rig: Rig) -> None:
    """
    The runtime compares versions before it starts the driver, which itself
    would start.
    """
    code = PRELUDE + "import torch; torch.cuda.is_available(); before = state(); (before, start())"
    result = rig.call(code, gpus=1, settings={"PRETEND_CUDA_VERSION": "12040"})

    assert [3, 0] == result.value


def test_an_old_device_is_warned_of(rig: Rig) -> None:
    """
    torch warns of a device that its build has no kernels for.
    """
    result = rig.call("import torch; torch.cuda.init()", gpus=1, settings={"PRETEND_GPU_CAPABILITY": "0:3.5"})

    assert any("compute capability (CC) 3.5" in w.message for w in result.warnings)


@pytest.mark.parametrize("where", ["PRETEND_GPU_HANG", "PRETEND_DRIVER_HANG", "PRETEND_NVML_HANG"])
def test_a_hang_is_ended_by_the_rig(rig: Rig, where: str) -> None:
    """
    A device, a driver or an NVML function that never returns costs a test its
    time limit and no more.
    """
    value = {"PRETEND_GPU_HANG": "0", "PRETEND_DRIVER_HANG": "1", "PRETEND_NVML_HANG": "nvmlInit"}[where]
    code = "import torch; torch.cuda.device_count(); torch.zeros(1, device='cuda')"

    with pytest.raises(RigTimeoutError):
        rig.call(code, gpus=1, settings={where: value}, timeout=0.5)


def test_a_slow_device_works(rig: Rig) -> None:
    """
    A device that takes its time is used in the end.
    """
    found = rig.call(
        ZEROS.format(0), gpus=1, settings={"PRETEND_GPU_SLOW": "0:0.05", "PRETEND_DRIVER_SLOW": "0.05"}
    ).value

    assert [0.0] == found


# ---- NVML


NVML = """
import pynvml
def ask(function, *args):
    try:
        return getattr(pynvml, function)(*args)
    except pynvml.NVMLError as error:
        return error.value
"""


@pytest.mark.parametrize(("setting", "code"), [("PRETEND_GPU_LOST", 15), ("PRETEND_GPU_NO_PERMISSION", 4)])
def test_nvml_lists_what_the_driver_has_lost(rig: Rig, setting: str, code: int) -> None:
    """
    NVML counts a device that fell off the bus (15) or is forbidden (4) and
    refuses its handle; the driver's list closes up.
    """
    text = (
        NVML
        + PRELUDE
        + "start(); pynvml.nvmlInit()\n"
        + "(pynvml.nvmlDeviceGetCount(), ask('nvmlDeviceGetHandleByIndex', 0), count(), uuids()[0][:8])"
    )
    found = rig.call(text, torch=False, gpus=2, settings={setting: "0"}).value

    assert [2, code, 1, "02020202"] == found


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("nvmlInit", ""),
        ("nvmlDeviceGetCount", ""),
        ("nvmlDeviceGetHandleByIndex", ", 0"),
        ("nvmlDeviceGetUUID", ", h"),
        ("nvmlDeviceGetName", ", h"),
        ("nvmlDeviceGetPciInfo", ", h"),
        ("nvmlDeviceGetMemoryInfo", ", h"),
        ("nvmlDeviceGetComputeMode", ", h"),
        ("nvmlSystemGetDriverVersion", ""),
        ("nvmlSystemGetCudaDriverVersion", ""),
        ("nvmlDeviceGetMigMode", ", h"),
        ("nvmlDeviceGetCudaComputeCapability", ", h"),
        ("nvmlDeviceGetMinorNumber", ", h"),
    ],
)
def test_any_function_of_nvml_can_fail(rig: Rig, function: str, arguments: str) -> None:
    """
    A function fails with the code that was asked for, whatever its version
    suffix; before that it does not.
    """
    text = (
        NVML
        + f"""
import os
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
before = ask({function!r}{arguments})
os.environ["PRETEND_NVML_FAIL"] = "nvmlShutdown:1,{function}:17"
(before == 17, ask({function!r}{arguments}))
"""
    )
    found = rig.call(text, torch=False, gpus=1, settings={"PRETEND_GPU_MIG": "0:1/0"}).value

    assert [False, 17] == found


def test_nvml_needs_its_start(rig: Rig) -> None:
    """
    A question before nvmlInit is answered with 1, "uninitialised".
    """
    found = rig.call(NVML + "ask('nvmlDeviceGetCount')", torch=False, gpus=1).value

    assert 1 == found


def test_nvml_describes_a_device(rig: Rig) -> None:
    """
    Name, memory, address, capability and version are those of the settings.
    """
    text = (
        NVML
        + """
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(1)
m = pynvml.nvmlDeviceGetMemoryInfo(h)
[pynvml.nvmlDeviceGetName(h), m.total >> 20, m.free >> 20, pynvml.nvmlDeviceGetPciInfo(h).busId,
 pynvml.nvmlDeviceGetCudaComputeCapability(h), pynvml.nvmlSystemGetCudaDriverVersion(),
 pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetUUID(h)]
"""
    )
    settings = {
        "PRETEND_GPU_MODELS": "Small,Big",
        "PRETEND_GPU_TOTAL_MIB": "8,80",
        "PRETEND_GPU_FREE_MIB": "1,70",
        "PRETEND_GPU_CAPABILITY": "1:8.6",
        "PRETEND_CUDA_VERSION": "12.4",
        "PRETEND_DRIVER_RELEASE": "550.1",
    }
    found = rig.call(text, torch=False, gpus=2, settings=settings).value

    assert [
        "Big",
        80,
        70,
        "00000000:02:00.0",
        [8, 6],
        12040,
        "550.1",
        "GPU-02020202-0000-4000-8000-000000000001",
    ] == found


def test_nvml_lists_mig_devices_with_holes(rig: Rig) -> None:
    """
    MIG devices stand below their GPU, and a place in the list may be empty.
    """
    text = (
        NVML
        + """
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
found = []
for place in range(3):
    m = ask("nvmlDeviceGetMigDeviceHandleByIndex", h, place)
    about = ("nvmlDeviceGetUUID", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId")
    found.append(m if isinstance(m, int) else [ask(function, m) for function in about])
[pynvml.nvmlDeviceGetMigMode(h), pynvml.nvmlDeviceGetMaxMigDeviceCount(h), found]
"""
    )
    found = rig.call(text, torch=False, gpus=1, settings={"PRETEND_GPU_MIG": "0:1/0,0:-,0:2/0"}).value

    first = ["MIG-01010101-0000-5000-8000-000000010000", 1, 0]
    third = ["MIG-01010101-0000-5000-8000-000000020000", 2, 0]
    assert [[1, 1], 7, [first, 6, third]] == found


# ---- what works


def test_torch_describes_a_device(rig: Rig) -> None:
    """
    torch's properties, capability and memory are those of the settings.
    """
    code = """
    import torch
    p = torch.cuda.get_device_properties(1)
    [p.name, str(p.uuid), p.pci_bus_id, p.total_memory >> 20, (p.major, p.minor), torch.cuda.get_device_name(1),
     torch.cuda.get_device_capability(1), torch.cuda.mem_get_info(1)[0] >> 20, p.multi_processor_count, p.warp_size]
    """
    settings = {
        "PRETEND_GPU_MODELS": "Small,Big",
        "PRETEND_GPU_TOTAL_MIB": "8,80",
        "PRETEND_GPU_FREE_MIB": "1,70",
        "PRETEND_GPU_CAPABILITY": "1:8.6",
    }
    found = rig.call(code, gpus=2, settings=settings).value

    assert ["Big", "02020202-0000-4000-8000-000000000001", 2, 80, [8, 6], "Big", [8, 6], 70, 132, 32] == found


def test_copies_are_true(rig: Rig) -> None:
    """
    What goes to a device, on to another and back is what it was.
    """
    code = """
    import torch
    there = torch.arange(6.0).reshape(2, 3).to("cuda:0")
    pinned = torch.ones(2).pin_memory()
    back = [there.to("cuda:1").cpu().tolist(), there[1].tolist(), there[1, 2].item()]
    back + [pinned.is_pinned(), pinned.cuda(non_blocking=True).tolist()]
    """
    found = rig.call(code, gpus=2).value

    assert [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [3.0, 4.0, 5.0], 5.0, True, [1.0, 1.0]] == found


def test_memory_is_counted(rig: Rig) -> None:
    """
    What is allocated is missing from what is free, and back when it is given
    back.
    """
    code = """
    import torch
    free = lambda: torch.cuda.mem_get_info()[0] >> 20
    before = free()
    there = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    during = free()
    del there
    torch.cuda.empty_cache()
    [before, during, free()]
    """
    found = rig.call(code, gpus=1, settings={"PRETEND_GPU_FREE_MIB": "1000"}).value

    assert [1000, 900, 1000] == found


def test_streams_and_events_work(rig: Rig) -> None:
    """
    Streams, events and synchronisation return as they should.
    """
    code = """
    import torch
    stream = torch.cuda.Stream(priority=-1)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    with torch.cuda.stream(stream):
        there = torch.zeros(2, device="cuda")
    last.record()
    stream.wait_event(last)
    torch.cuda.synchronize()
    torch.accelerator.synchronize()
    [stream.priority, stream.query(), last.query(), first.elapsed_time(last) >= 0]
    """
    found = rig.call(code, gpus=1).value

    assert [-1, True, True, True] == found


def test_kernels_do_nothing(rig: Rig) -> None:
    """
    A kernel is launched, counted, and changes nothing; a tensor can be shown.
    """
    result = rig.call("import torch; there = torch.ones(2, device='cuda'); (there.tolist(), repr(there))", gpus=1)

    assert [[0.0, 0.0], "tensor([0., 0.], device='cuda:0')"] == result.value
    assert 0 in result.events("launch")


def test_the_current_device_is_the_threads_own(rig: Rig) -> None:
    """
    A new thread starts on ordinal 0, whatever the others chose.
    """
    code = """
    import threading, torch
    torch.cuda.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_device()))
    thread.start()
    thread.join()
    [torch.cuda.current_device(), *seen]
    """
    found = rig.call(code, gpus=2).value

    assert [1, 0] == found


def test_torch_accelerator_works(rig: Rig) -> None:
    """
    torch.accelerator answers for the pretend GPUs.
    """
    code = """
    import torch
    torch.accelerator.set_device_index(1)
    kind = str(torch.accelerator.current_accelerator())
    [kind, torch.accelerator.current_device_index(), torch.accelerator.device_count()]
    """
    found = rig.call(code, gpus=2).value

    assert ["cuda", 1, 2] == found


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "torch.mm(torch.zeros(2, 2, device='cuda'), torch.zeros(2, 2, device='cuda'))", id="matrix-product"
        ),
        pytest.param(
            "x = torch.zeros(1, 1, 4, 4, device='cuda'); torch.nn.functional.conv2d(x, x)",
            id="convolution",
        ),
        pytest.param("g = torch.cuda.CUDAGraph(); g.capture_begin()", id="graph"),
        pytest.param(
            "torch.cuda.nccl.all_reduce([torch.zeros(1, device='cuda:0'), torch.zeros(1, device='cuda:1')])", id="nccl"
        ),
        pytest.param("torch.zeros(1, device='cuda').untyped_storage()._share_cuda_()", id="shared-memory"),
    ],
)
def test_what_is_not_modelled_raises(rig: Rig, code: str) -> None:
    """
    What the machine does not model fails with an error of torch's; nothing
    crashes.
    """
    result = rig.call(f"import torch\n{code}", gpus=2)

    assert result.error is not None
    assert "RuntimeError" in result.error.names


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("torch.rand(3, device='cuda').sum().item()", id="random-sum"),
        pytest.param("torch.zeros(3, device='cuda').nonzero()", id="nonzero"),
        pytest.param("torch.zeros(3, device='cuda').sort()", id="sort"),
        pytest.param("torch.zeros(3, device='cuda', requires_grad=True).sum().backward()", id="backward"),
        pytest.param(
            "p = torch.nn.Parameter(torch.zeros(3, device='cuda')); p.grad = p.detach(); torch.optim.Adam([p]).step()",
            id="optimiser",
        ),
        pytest.param("torch.cuda.memory_summary()", id="summary"),
        pytest.param("torch.cuda.list_gpu_processes()", id="processes"),
        pytest.param(
            "c = torch.cuda; [f(0) for f in (c.utilization, c.temperature, c.power_draw, c.clock_rate)]",
            id="meters",
        ),
        pytest.param("torch.cuda.can_device_access_peer(0, 1)", id="peers"),
        pytest.param("torch.cuda.ipc_collect()", id="ipc"),
    ],
)
def test_common_calls_come_back(rig: Rig, code: str) -> None:
    """
    Other calls of a training loop come back, with whatever values.
    """
    result = rig.call(f"import torch\n{code}", gpus=2)

    assert result.error is None


def test_a_gloo_job_runs_on_pretend_devices(rig: Rig, tmp_path: Path) -> None:
    """
    Two processes, each on a device of its own, add up a tensor through gloo,
    and wrap a model in DistributedDataParallel.
    """
    worker = tmp_path / "worker.py"
    worker.write_text("""
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank, world_size=2)
there = torch.tensor([rank + 1.0]).to("cuda")
dist.all_reduce(there)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda(), device_ids=[rank])
line = f"{there.item()} {there.device} {next(model.parameters()).device}"
os.write(1, line.encode() + bytes([10]))  # in one piece: both write to one file
dist.barrier()  # gloo may abort a worker whose peer has left
dist.destroy_process_group()
""")
    starter = tmp_path / "starter.py"
    starter.write_text(f"""
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, {str(worker)!r}], env=dict(os.environ, RANK=str(r))) for r in (0, 1)]
sys.exit(max(abs(rank.wait()) for rank in ranks))
""")
    done = rig.run([sys.executable, starter], gpus=2, env={"MEETING": str(tmp_path / "meeting")}, timeout=90)

    assert 0 == done.returncode, done.stderr
    assert ["3.0 cuda:0 cuda:0", "3.0 cuda:1 cuda:1"] == sorted(done.stdout.splitlines())


# ---- the libraries themselves


def test_every_runtime_function_of_torch_is_ours(rig: Rig) -> None:
    """
    No function of the CUDA runtime that torch's libraries take comes from the
    real one, but for those that register kernels.
    """
    torch_folder = package_folder("torch")
    if shutil.which("nm") is None or torch_folder is None:
        pytest.skip("no nm, from binutils")
    ours = symbols("--defined-only", Path(rig.environ()["LD_PRELOAD"]))
    theirs: set[str] = set()
    for name in ("libc10_cuda", "libtorch_cpu", "libtorch_cuda", "libtorch_cuda_linalg", "libtorch_python"):
        theirs |= symbols("--undefined-only", torch_folder / "lib" / f"{name}.so")

    registering = {name for name in theirs if re.match("__cuda((Unr|R)egister|(Push|Pop)CallConfiguration)", name)}
    assert set() == {name for name in theirs if re.match("(__)?cuda[A-Z]", name)} - registering - ours


def symbols(which: str, library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}


FIELDS = {
    "totalGlobalMem": 24 << 30,
    "sharedMemPerBlock": 49152,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsDim[2]": 64,
    "maxGridSize[1]": 65535,
    "totalConstMem": 65536,
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "pciBusID": 2,
    "pciDeviceID": 0,
    "pciDomainID": 0,
    "l2CacheSize": 52428800,
    "maxThreadsPerMultiProcessor": 2048,
    "sharedMemPerMultiprocessor": 233472,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 232448,
    "maxBlocksPerMultiProcessor": 32,
}


def test_the_properties_lie_where_nvidias_header_says(rig: Rig, tmp_path: Path) -> None:
    """
    A program compiled with the header of CUDA 13 (triton's wheel has one) reads
    each property where the pretend runtime wrote it.
    """
    triton = package_folder("triton")
    headers = triton / "backends" / "nvidia" / "include" if triton else None
    if headers is None or "CUDA_VERSION 13" not in (headers / "cuda.h").read_text():
        pytest.skip("no header of CUDA 13 to compare with")
    lines = [f'printf("%lld\\n", (long long)p.{name});' for name in FIELDS]
    (tmp_path / "read.c").write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <driver_types.h>\n"
        "struct cudaDeviceProp p; int cudaGetDeviceProperties(struct cudaDeviceProp *, int);\n"
        'int main(void) { if (cudaGetDeviceProperties(&p, 1)) return 1; printf("%s\\n", p.name);'
        + "".join(lines)
        + "return 0; }\n"
    )
    program, preload = tmp_path / "read", rig.environ()["LD_PRELOAD"]
    subprocess.run([str(compiler()), "-I", headers, "-o", program, tmp_path / "read.c", preload], check=True)
    done = rig.run([program], gpus=2)

    assert 0 == done.returncode, done.stderr
    assert ["Pretend GPU", *map(str, FIELDS.values())] == done.stdout.splitlines()


def test_the_errors_have_the_real_runtimes_words(rig: Rig) -> None:
    """
    Each error that the pretend runtime names has the name and the text of the
    real one, which comes with torch.
    """
    folder = package_folder("nvidia")
    real = next(iter(folder.glob("cu*/lib/libcudart.so.*")), None) if folder else None
    if real is None:
        pytest.skip("no real runtime to compare with")
    code = (
        "import ctypes, json, sys\nfound = ctypes.CDLL(sys.argv[1])\n"
        "ask = [getattr(found, n) for n in ('cudaGetErrorName', 'cudaGetErrorString')]\n"
        "for one in ask: one.restype = ctypes.c_char_p\n"
        "print(json.dumps([[one(code).decode() for one in ask] for code in range(1000)]))"
    )
    run = [sys.executable, "-c", code]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
    theirs = subprocess.run([*run, real], env=clean, capture_output=True, text=True, check=True).stdout
    ours = rig.run([*run, rig.environ()["LD_PRELOAD"]]).stdout
    different = [
        (a, b) for a, b in zip(eval(ours), eval(theirs), strict=True) if a[0] != "unrecognized error code" and a != b
    ]

    assert [] == different
    assert "invalid device ordinal" in ours


def test_asking_for_the_text_of_an_error_starts_the_driver(rig: Rig) -> None:
    """
    cudaGetErrorString and cudaDriverGetVersion start the driver,
    cudaRuntimeGetVersion does not. Seen with libcudart 12.9.79.
    """

    def awake(call: str) -> bool:
        result: Result = rig.call(
            f"import ctypes; r = ctypes.CDLL(None); n = ctypes.c_int(); r.{call}", torch=False, gpus=1
        )
        return result.awake

    found = [awake(f"{name}(ctypes.byref(n))") for name in ("cudaRuntimeGetVersion", "cudaDriverGetVersion")]

    assert [False, True] == found
    assert awake("cudaGetErrorString(0)")


def test_the_tests_own_process_has_no_pretend_library(rig: Rig) -> None:
    """
    The pretend libraries are in the processes of the rig alone, whatever the
    tests of this process have imported.
    """
    loaded = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")

    assert str(rig._folder) not in loaded
    assert str(rig._folder) in rig.call("open('/proc/self/maps').read()", gpus=1, torch=False).value
