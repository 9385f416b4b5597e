"""What choosing a device does besides: to the driver, to the process, to its children; and what refusals become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig import on_host


def twice() -> list[str]:
    import safedev

    return [str(safedev.select_device(2)), str(safedev.select_device(2)), str(safedev.select_device())]


def test_choosing_starts_no_driver(rig: Any) -> None:
    """
    Where NVML answers, choosing starts no driver and makes no context, and
    gives the same answer twice.
    """
    result = rig.call(twice, gpus=4)

    assert ["cuda:2", "cuda:2", "cuda:0"] == result.value
    assert [] == list(result.trace)


@pytest.mark.parametrize("env", [{"CUDA_VISIBLE_DEVICES": "-1"}, {"CUDA_VISIBLE_DEVICES": ""}], ids=["-1", "empty"])
def test_choosing_the_cpu_starts_no_driver(rig: Any, env: dict[str, str]) -> None:
    """
    Where the mask hides all, it is not asked which other accelerator there is by a call that starts the driver.
    """
    result = rig.call("import safedev; str(safedev.select_device())", gpus=4, env=env)

    assert "cpu" == result.value
    assert [] == list(result.trace)


def test_this_trace_can_show_a_start(rig: Any) -> None:
    """
    The twin of the above: torch's own question starts the driver, and the
    trace shows it.
    """
    result = rig.call("import torch; torch.cuda.is_available()", gpus=4)

    assert result.awake


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("select_device(9, fallback='cpu')", id="refused"),
        pytest.param("select_device('GPU-03030303')", id="by-uuid"),
        pytest.param("diagnose(9)", id="diagnosed"),
        pytest.param("guard_visible_devices([1, 2])", id="guarded"),
        pytest.param("resolve_local_rank()", id="local-rank"),
    ],
)
def test_explaining_starts_no_driver(rig: Any, call: str) -> None:
    """
    Nor does what has to look closer.
    """
    code = f"import safedev, warnings; warnings.simplefilter('ignore'); safedev.{call}; None"

    assert [] == list(rig.call(code, gpus=4).trace)


def test_a_job_that_was_given_some_devices_is_told_so(rig: Any, tmp_path: Path) -> None:
    """
    Where the bus of the host shows more than NVML, an ordinal past the last is
    perhaps one of the host's.
    """
    code = on_host(tmp_path, bus=8, nodes=[4, 5]) + "import safedev; safedev.diagnose(4).render()"
    told = rig.call(code, gpus=2).value

    assert "seems to have been given 2 (/dev/nvidia4, /dev/nvidia5), which count from 0 [out-of-range]" in told


@pytest.mark.parametrize(
    ("host", "words"),
    [
        pytest.param({"bus": 4}, "seems to have been given none", id="no-node"),
        pytest.param({"bus": 4, "loaded": False}, "no NVIDIA driver is loaded", id="no-driver"),
        pytest.param({"bus": 0}, "torch finds no CUDA device", id="no-device-in-the-host"),
    ],
)
def test_why_there_is_no_device_is_told(rig: Any, tmp_path: Path, host: Any, words: str) -> None:
    """
    A container that was given none is told from a host without a driver, and
    from one without a device.
    """
    code = on_host(tmp_path, **host) + "import safedev; safedev.diagnose('cuda').render()"
    told = rig.call(code, gpus=0, settings={"PRETEND_NVML": "absent"}).value

    assert words in told
    assert "[no-cuda-device]" in told


def test_a_driver_that_is_loaded_has_the_last_word(rig: Any) -> None:
    """
    A forward-compatible library serves more than NVML tells; nothing starts for
    the question.
    """
    code = "import ctypes, safedev, safedev._nvml; safedev._nvml.cuda_version = lambda: 11040; "
    code += "ctypes.CDLL('libcuda.so.1'); str(safedev.select_device(fallback='raise'))"
    result = rig.call(code, gpus=2)

    assert "cuda:0" == result.value
    assert not result.awake


def test_a_driver_that_is_loaded_and_too_old_is_found(rig: Any) -> None:
    """
    It says so itself.
    """
    code = "import ctypes, safedev; ctypes.CDLL('libcuda.so.1'); [f.code for f in safedev.diagnose(0).findings]"
    result = rig.call(code, gpus=2, settings={"PRETEND_CUDA_VERSION": "11.4"})

    assert ["driver-unusable"] == result.value
    assert not result.awake


def test_nvml_that_hangs_leaves_one_thread(rig: Any) -> None:
    """
    However often it is asked: while one waits that was given up, no other is.
    """
    code = """
    import threading, safedev, safedev._nvml
    safedev._nvml.SECONDS = 0.5
    codes = [[f.code for f in safedev.diagnose(9).findings] for _ in range(5)]
    codes, sum(thread.name.startswith("safedev-nvml") for thread in threading.enumerate())
    """
    codes, waiting = rig.call(code, gpus=2, settings={"PRETEND_NVML_HANG": "nvmlDeviceGetUUID"}, timeout=30).value

    assert [["out-of-range"]] * 5 == codes
    assert 1 == waiting


def leaves() -> dict[str, Any]:
    import os
    import signal
    import threading
    import warnings
    from pathlib import Path

    import safedev

    def world() -> list[object]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        descriptors = list(Path("/proc/self/fd").iterdir())
        return [dict(os.environ), list(warnings.filters), handlers, threading.active_count(), len(descriptors)]

    before = world()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for preferred in (0, None, "cuda", 9, "GPU-02020202", "cpu"):
            safedev.select_device(preferred)
        safedev.diagnose(9)
        safedev.resolve_local_rank()
        safedev.guard_visible_devices()
    after = world()
    return {"before": list(map(str, before)), "after": list(map(str, after))}


def test_choosing_leaves_nothing_behind(rig: Any) -> None:
    """
    No variable, filter, handler, thread or open file is left.
    """
    seen = rig.call(leaves, gpus=4).value

    assert seen["before"] == seen["after"]


def chooses_in_a_loop() -> None:
    import warnings

    import safedev

    warnings.simplefilter("default")
    for _ in range(3):
        warnings.warn("the program's own", stacklevel=1)
        safedev.select_device()


@pytest.mark.parametrize(
    ("machine", "env", "shown"),
    [
        pytest.param("bare", {}, 1, id="no-driver"),
        pytest.param("full", {"CUDA_VISIBLE_DEVICES": "-1"}, 1, id="all-hidden"),
        pytest.param("full", {}, 2, id="nvml-starts-in-the-first-count"),
    ],
)
def test_a_program_that_chooses_again_and_again_is_warned_as_ever(
    rig: Any, machine: str, env: dict[str, str], shown: int
) -> None:
    """
    Python shows the warning of a line once; and once more after the first count, where torch may warn of NVML.
    """
    result = rig.call(chooses_in_a_loop, gpus=4, machine=machine, env=env)

    assert ["the program's own"] * shown == [warning.message for warning in result.warnings]


def in_a_child() -> int:
    import os

    import torch

    import safedev

    safedev.select_device(1)
    child = os.fork()
    if child == 0:
        try:
            torch.cuda.set_device(1)
            torch.zeros(1, device="cuda:1")
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_forked_afterwards_can_use_cuda(rig: Any) -> None:
    """
    Choosing does not poison fork.
    """
    assert 0 == rig.call(in_a_child, gpus=4).value


def in_threads() -> list[str]:
    import warnings
    from concurrent.futures import ThreadPoolExecutor

    import safedev

    filters = list(warnings.filters)
    with ThreadPoolExecutor(16) as pool:
        chosen = list(pool.map(lambda n: str(safedev.select_device(n % 4)), range(400)))
    assert filters == list(warnings.filters)
    return chosen


def test_threads_do_not_disturb_each_other(rig: Any) -> None:
    """
    Four hundred choices in sixteen threads are right, and leave the warning
    filters as they were.
    """
    assert [f"cuda:{n % 4}" for n in range(400)] == rig.call(in_threads, gpus=4).value


def test_after_the_parent_started_cuda_a_forked_child_is_told_so(rig: Any) -> None:
    """
    In a process forked from one that had started CUDA, nothing can be chosen
    but the CPU, and the reason is named.
    """

    def child() -> str:
        import os

        import torch

        import safedev

        torch.cuda.init()
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                safedev.select_device(0, fallback="raise")
            except safedev.InvalidDeviceError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            return pipe.read()

    told = rig.call(child, gpus=4).value

    assert "[driver-unusable]" in told
    assert "forked" in told


@pytest.mark.parametrize(
    ("call", "settings", "device", "codes"),
    [
        pytest.param("set_device(1)", {"PRETEND_GPU_BUSY": "1"}, "cuda:0", ["device-unusable"], id="busy-falls-back"),
        pytest.param("set_device(0)", {"PRETEND_GPU_BUSY": "0"}, None, ["device-unusable"], id="busy-first-declines"),
        pytest.param("set_device(0, fallback='cpu')", {"PRETEND_GPU_BUSY": "0"}, "cpu", ["device-unusable"], id="cpu"),
        pytest.param("set_device(1)", {"PRETEND_GPU_BUSY": "0,1"}, None, ["device-unusable"], id="both-busy"),
        pytest.param("set_device(1)", {"PRETEND_DRIVER_ERROR": "803"}, "cpu", ["driver-unusable"], id="no-driver"),
        pytest.param(
            "set_device(1, fallback='raise')", {"PRETEND_DRIVER_ERROR": "35"}, None, ["driver-unusable"], id="raise"
        ),
        pytest.param(
            "select_device(1)", {"PRETEND_CUDA_VERSION": "11.4"}, "cpu", ["driver-unusable"], id="too-old-by-nvml"
        ),
        pytest.param(
            "select_device()", {"PRETEND_CUDA_VERSION": "11.4"}, "cpu", ["driver-unusable"], id="too-old-auto"
        ),
    ],
)
def test_a_refusal_is_a_finding(
    rig: Any, call: str, settings: dict[str, str], device: str | None, codes: list[str]
) -> None:
    """
    A driver or a device that refuses is a finding like any other: the policy
    is asked, and what it chooses is tried, once.
    """
    result = rig.call(f"import safedev; safedev.{call}", gpus=4, settings=settings)

    if device is None:
        assert "InvalidDeviceError" == result.error.name
        text = result.error.message
    else:
        assert device == result.value
        assert ["FallbackWarning"] == [warning.name for warning in result.warnings]
        text = result.warnings[-1].message
    assert [True] * len(codes) == [f"[{code}]" in text for code in codes]


def test_a_device_that_only_nvml_counts_is_refused(rig: Any) -> None:
    """
    The others can be used from torch 2.12 on. Before, torch asks each device that it counted for its capability, so
    that one which the driver lacks keeps CUDA from starting at all: pytorch pull request 175355.
    """
    result = rig.call("import safedev; str(safedev.set_device(3))", gpus=4, settings={"PRETEND_GPU_LOST": "3"})
    told = [one.message for one in (*result.warnings, result.error) if one is not None]

    assert ("cuda:0" if rig.call("import torch; torch.__version__ >= '2.12'").value else None) == result.answer
    assert 1 == len(told)
    assert "[device-unusable]" in told[0]


@pytest.mark.parametrize(
    ("spec", "env", "before", "machine", "device", "processes"),
    [
        pytest.param("GPU-02020202", {"CUDA_VISIBLE_DEVICES": "3,1"}, "", "full", "cuda:1", 0, id="by-nvml"),
        pytest.param(
            "GPU-02020202",
            {"CUDA_VISIBLE_DEVICES": "GPU-03030303,GPU-02020202-0000"},
            "",
            "full",
            "cuda:1",
            0,
            id="by-mask",
        ),
        pytest.param("GPU-02020202", {}, "import torch; torch.cuda.init()", "full", "cuda:1", 0, id="by-the-driver"),
        pytest.param("GPU-02020202", {"CUDA_VISIBLE_DEVICES": "3,1"}, "", "no-nvml", "cuda:1", 0, id="no-nvml"),
    ],
)
def test_a_uuid_finds_its_device(
    rig: Any, spec: str, env: dict[str, str], before: str, machine: str, device: str, processes: int
) -> None:
    """
    Whoever can tell the UUIDs is asked: the driver that has started, the
    mask's own text, NVML.
    """
    result = rig.call(
        f"import safedev; safedev.select_device({spec!r})", gpus=4, env=env, before=before, machine=machine
    )

    assert device == result.value
    assert processes == len({event.pid for event in result.trace} - {result.pid})


def test_where_the_order_is_unknown_a_child_asks_the_driver(rig: Any) -> None:
    """
    With different cards and no order, NVML's index tells no ordinal: a short
    child process asks the driver, and this process stays asleep.
    """
    result = rig.call(
        "import safedev; safedev.select_device('GPU-02020202')",
        gpus=2,
        settings={"PRETEND_GPU_MODELS": "Small,Big", "PRETEND_GPU_FASTEST": "1,0"},
    )

    assert "cuda:0" == result.value
    assert not result.awake
    assert ["init"] == [event.event for event in result.trace]


def test_a_mask_moved_after_the_start_is_seen_by_uuid(rig: Any) -> None:
    """
    The count is the same, the device is not: the driver's UUIDs tell that the
    mask came too late.
    """
    code = "import safedev; [finding.code for finding in safedev.diagnose(0).findings]"

    moved = rig.call(
        code,
        gpus=4,
        env={"CUDA_VISIBLE_DEVICES": "2"},
        before="import os, torch; torch.cuda.is_available(); os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
    )
    kept = rig.call(code, gpus=4, env={"CUDA_VISIBLE_DEVICES": "2"}, before="import torch; torch.cuda.is_available()")

    assert ["mask-too-late"] == moved.value
    assert [] == kept.value


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"CUDA_VISIBLE_DEVICES": "--1"}, id="signs"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "+"}, id="sign-alone"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1" * 5000}, id="more-digits-than-int-takes"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "\x1b[31m0"}, id="escape-code"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "x" * 100_000}, id="long"),
    ],
)
def test_a_mask_that_torch_cannot_count_under_is_explained(rig: Any, env: dict[str, str]) -> None:
    """
    What makes torch's own count fail is a finding, and no traceback; nothing
    of the value reaches the message unescaped or whole.
    """
    result = rig.call("import safedev; safedev.select_device(0, fallback='raise')", gpus=4, env=env)

    assert "InvalidDeviceError" == result.error.name
    assert "[mask-unreadable]" in result.error.message
    assert result.error.message.isascii()
    assert len(result.error.message) < 3000
    assert "\x1b" not in result.error.message


def test_the_error_survives_pickling_with_its_diagnosis(rig: Any) -> None:
    """
    An error from a worker process can be sent to its parent, whole.
    """

    def sent() -> list[str]:
        import pickle

        import safedev

        try:
            safedev.select_device(9, fallback="raise")
        except safedev.InvalidDeviceError as error:
            again = pickle.loads(pickle.dumps(error))
            return [str(error), str(again)]
        return []

    here, there = rig.call(sent, gpus=2).value

    assert here == there


def after_a_blind_start() -> str:
    import os
    from contextlib import suppress

    import torch

    import safedev

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    with suppress(RuntimeError):
        torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    try:
        return str(safedev.set_device(0, fallback="raise"))
    except safedev.InvalidDeviceError as error:
        return str(error)


def test_a_mask_that_hid_all_at_the_first_try_is_named(rig: Any) -> None:
    """
    torch's runtime does not ask the driver again, which never started: no mask that comes later helps.
    """
    told = rig.call(after_a_blind_start, gpus=2).value

    assert "No CUDA GPUs are available" in told
    assert "start the program anew" in told


def replaced_environ() -> list[str]:
    import os
    import warnings

    import safedev
    from safedev import _driver

    warnings.simplefilter("error")
    os.environ = dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID")  # type: ignore[assignment]  # noqa: B003 - tested
    device = safedev.set_device("GPU-03030303", fallback="raise")
    return [str(device), (_driver.uuids() or ())[device.index]]


def test_a_uuid_is_that_device_whatever_a_replaced_environ_says(rig: Any) -> None:
    """
    The driver does not read the order that the replaced os.environ holds, and puts its fastest device first.
    """
    settings = {"PRETEND_GPU_MODELS": "A,A,B", "PRETEND_GPU_FASTEST": "2,0,1"}
    result = rig.call(replaced_environ, gpus=3, settings=settings)

    assert ["cuda:0", "GPU-03030303-0000-4000-8000-000000000002"] == result.value


@pytest.mark.parametrize("order", [None, "PCI_BUS_ID"])
@pytest.mark.parametrize(("mask", "ordinal"), [("2", 0), ("0,2", 1), (None, 2)])
def test_numbers_beside_a_lost_device_mislead_no_request_by_uuid(
    rig: Any, order: str | None, mask: str | None, ordinal: int
) -> None:
    """
    Which numbers the driver gives to the others is its own affair: it is asked, and the device is the right one.
    """
    env = {name: value for name, value in (("CUDA_VISIBLE_DEVICES", mask), ("CUDA_DEVICE_ORDER", order)) if value}
    code = "import safedev; from safedev import _driver; safedev.set_device('GPU-04040404').index, _driver.uuids()"

    index, uuids = rig.call(code, gpus=4, env=env, settings={"PRETEND_GPU_LOST": "1"}).value

    assert ordinal == index
    assert "GPU-04040404-0000-4000-8000-000000000003" == uuids[index]


@pytest.mark.parametrize(
    ("mask", "settings"),
    [
        pytest.param("0,1", {"PRETEND_GPU_FASTEST": "2,0,1,3"}, id="equal-devices-in-another-order"),
        pytest.param("0", {"PRETEND_GPU_MIG": "0:1/0,0:2/0"}, id="instances"),
        pytest.param("0,1", {"PRETEND_GPU_MIG": "0:1/0,1:2/0", "PRETEND_DRIVER_RELEASE": "535.1"}, id="one-instance"),
        pytest.param("0", {"PRETEND_GPU_MIG": "0:1/0", "PRETEND_NVML_FAIL": "nvmlDeviceGetMigMode:4"}, id="untold-mig"),
        pytest.param("0,1,2,3", {"PRETEND_GPU_LOST": "3"}, id="a-lost-device"),
        pytest.param("gpu-01010101", {"PRETEND_MASK_RULES": "uuid-case"}, id="another-reading-of-a-uuid"),
    ],
)
@pytest.mark.parametrize("before", ["", "import sys; sys.modules['pynvml'] = None"], ids=["", "without-nvidia-ml-py"])
def test_a_mask_that_nobody_has_changed_is_not_late(rig: Any, mask: str, settings: dict[str, str], before: str) -> None:
    """
    Whatever the driver makes of it: it is the one that the process was started with.
    """
    result = rig.call(
        never_late, gpus=4, env={"CUDA_VISIBLE_DEVICES": mask}, settings=settings, before=before, fresh=True
    )

    assert "mask-too-late" not in result.value
    assert [] == [one.message for one in result.warnings if "mask-too-late" in one.message]


def never_late() -> list[str]:
    import torch

    import safedev

    torch.cuda.init()
    safedev.set_device(0)
    safedev.set_device(0)
    safedev.guard_visible_devices()
    return [finding.code for finding in safedev.diagnose(0).findings]


@pytest.mark.parametrize("mask", ["2", "0,2", "3", None])
def test_a_lost_device_is_no_late_mask(rig: Any, mask: str | None) -> None:
    """
    The mask is the one that the driver has read, however it numbers what is left.
    """
    code = "import safedev; [finding.code for finding in safedev.diagnose('cuda').findings]"
    env = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    codes = rig.call(
        code, gpus=4, env=env, settings={"PRETEND_GPU_LOST": "1"}, before="import torch; torch.cuda.is_available()"
    ).value

    assert "mask-too-late" not in codes
