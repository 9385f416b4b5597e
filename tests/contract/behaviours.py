"""What torch.cuda does, row by row: expected values are those of torch itself, read in its source or seen on a machine.

A row is a machine, a snippet whose last expression is the outcome, and the outcome. ``said(call)`` is what a call
returns, or the class and the first line of its error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

PRELUDE = """
import os, threading, warnings
import torch
cuda = torch.cuda
MASK = "CUDA_VISIBLE_DEVICES"
def said(call, *arguments):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
def in_child(call):
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os.write(writing, repr(said(call)).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading) as answer:
        return answer.read()
"""

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
_ERROR = getattr(torch, "AcceleratorError", RuntimeError).__name__
BEYOND = f"{_ERROR}: CUDA error: invalid device ordinal"
BUSY = f"{_ERROR}: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
FULL = f"{_ERROR}: CUDA error: out of memory"
NONE = "RuntimeError: No CUDA GPUs are available"
NO_ACCELERATOR = "RuntimeError: Cannot access accelerator device when none is available."
INVALID = "AssertionError: Invalid device id"
FORKED = (
    "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
    "'spawn' start method"
)
TOO_OLD = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 10020). Please update your GPU driver "
    "by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your version "
    "of the CUDA driver."
)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """One row. With *names*, *memory*, *faults*, *driver* or *nvml* it needs a machine that is made for it."""

    code: str
    outcome: Any
    gpus: int = 1
    env: dict[str, str] = field(default_factory=dict)
    names: list[str] | None = None
    memory: int | None = None
    faults: dict[int, str] = field(default_factory=dict)
    driver: str = "working"
    nvml: str = "working"
    since: tuple[int, int] = (2, 4)

    @property
    def made(self) -> bool:
        return bool(self.names or self.memory or self.faults) or (self.driver, self.nvml) != ("working", "working")


def row(code: str, outcome: Any, gpus: int = 1, mask: str | None = None, **more: Any) -> Behaviour:
    env = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    return Behaviour(code=code, outcome=outcome, gpus=gpus, env=env, **more)


COUNTING = {
    "all-devices-are-counted": row("cuda.device_count()", 3, gpus=3),
    "one-device-is-counted": row("cuda.device_count()", 1),
    "no-device-is-counted": row("cuda.device_count()", 0, gpus=0),
    "a-mask-narrows-the-count": row("cuda.device_count()", 2, gpus=3, mask="2,0"),
    "an-empty-mask-hides-all": row("cuda.device_count()", 0, mask=""),
    "minus-one-hides-all": row("cuda.device_count()", 0, mask="-1"),
    "a-repeated-entry-hides-all": row("cuda.device_count()", 0, mask="0,0"),
    "an-unknown-entry-ends-the-list": row("cuda.device_count()", 1, mask="0,7,1"),
    "an-unreadable-mask-hides-all": row("cuda.device_count()", 0, mask="none"),
    "a-range-is-its-first-number": row("cuda.device_count()", 1, mask="0-2"),
    "a-uuid-is-a-mask": row("os.environ[MASK] = cuda._raw_device_uuid_nvml()[0]\ncuda.device_count()", 1),
    "the-beginning-of-a-uuid-is-a-mask": row(
        "os.environ[MASK] = cuda._raw_device_uuid_nvml()[1][:12]\n[cuda.device_count(), cuda.get_device_name(0)]",
        [1, "B"],
        gpus=2,
        names=["A", "B"],
    ),
    "a-uuid-of-no-device-hides-all": row("cuda.device_count()", 0, mask="GPU-00000000-dead"),
    "torch-fails-on-a-sign-without-number": row(
        "said(cuda.device_count)", "ValueError: invalid literal for int() with base 10: '-'", mask="--1"
    ),
    "counting-starts-nothing": row("[cuda.device_count(), cuda.is_initialized()]", [1, False]),
    "a-mask-set-after-counting-counts": row(
        "before = cuda.device_count()\nos.environ[MASK] = ''\n[before, cuda.device_count()]", [1, 0]
    ),
    "a-mask-set-after-counting-reaches-the-driver": row(
        "cuda.device_count()\nos.environ[MASK] = '1'\ncuda.get_device_name(0)", "B", gpus=2, names=["A", "B"]
    ),
    "without-nvml-counting-freezes-the-mask": row(
        "before = cuda.device_count()\nos.environ[MASK] = '0'\n[before, cuda.device_count()]",
        [2, 2],
        gpus=2,
        nvml="absent",
    ),
    "without-nvml-counting-leaves-torch-uninitialised": row(
        "[cuda.device_count(), cuda.is_initialized()]", [2, False], gpus=2, nvml="absent"
    ),
    "the-count-after-start-is-the-drivers": row(
        "cuda.init()\nos.environ[MASK] = ''\n[cuda.device_count(), cuda.device_count()]", [1, 1], since=(2, 12)
    ),
    "the-count-during-start-is-the-drivers": row(
        "os.environ[MASK] = '0'\ncuda.is_available()\ndel os.environ[MASK]\ncuda.init()\ncuda.device_count()",
        1,
        gpus=2,
        since=(2, 12),
    ),
}

AVAILABLE = {
    "available-with-a-device": row("cuda.is_available()", True),
    "unavailable-without-one": row("cuda.is_available()", False, gpus=0),
    "unavailable-where-all-are-hidden": row("cuda.is_available()", False, mask=""),
    "asking-leaves-torch-uninitialised": row("[cuda.is_available(), cuda.is_initialized()]", [True, False]),
    "asking-freezes-the-mask": row(
        "cuda.is_available()\nos.environ[MASK] = ''\n[cuda.device_count(), cuda.is_available()]", [0, True]
    ),
    "a-mask-that-grows-after-asking-is-too-late": row(
        "os.environ[MASK] = '0'\ncuda.is_available()\ndel os.environ[MASK]\n"
        "[cuda.device_count(), said(cuda.set_device, 1)]",
        [2, BEYOND],
        gpus=2,
        since=(2, 12),
    ),
    "hidden-once-is-hidden-for-good": row(
        "os.environ[MASK] = ''\nbefore = cuda.is_available()\ndel os.environ[MASK]\n"
        "[before, cuda.is_available(), cuda.device_count(), said(cuda.set_device, 0)]",
        [False, False, 1, NONE],
    ),
    "asking-by-nvml-freezes-nothing": row(
        "os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'\nbefore = cuda.is_available()\nos.environ[MASK] = ''\n"
        "[before, cuda.is_available()]",
        [True, False],
    ),
    "built-with-cuda": row("torch.backends.cuda.is_built()", True, gpus=0),
}

STARTING = {
    "init-starts": row("cuda.init()\ncuda.is_initialized()", True),
    "init-twice-is-once": row("cuda.init()\ncuda.init()\ncuda.is_initialized()", True),
    "init-without-a-device-is-refused": row("[said(cuda.init), cuda.is_initialized()]", [NONE, False], gpus=0),
    "init-with-all-hidden-is-refused": row("said(cuda.init)", NONE, mask="-1"),
    "nothing-is-initialised-at-first": row("cuda.is_initialized()", False),
    "the-first-device-is-current-at-first": row("[cuda.current_device(), cuda.is_initialized()]", [0, True]),
    "without-a-device-none-is-current": row("said(cuda.current_device)", NONE, gpus=0),
    "a-child-of-a-started-parent-cannot-start": row(
        "cuda.init()\nin_child(lambda: [said(cuda.current_device), cuda.is_initialized()])", repr([FORKED, False])
    ),
    "a-child-of-a-parent-that-asked-cannot-start": row(
        "cuda.is_available()\nin_child(lambda: said(cuda.init))", repr(FORKED)
    ),
    "a-child-of-a-parent-that-counted-can-start": row(
        "cuda.device_count()\nin_child(lambda: [cuda.current_device(), cuda.is_initialized()])", "[0, True]"
    ),
    "a-child-does-not-start-its-parent": row(
        "in_child(cuda.init)\n[cuda.is_initialized(), cuda._is_in_bad_fork()]", [False, False]
    ),
    "seeds-wait-for-the-start": row(
        "cuda.manual_seed_all(7)\n[cuda.is_initialized(), cuda.initial_seed()]", [False, 7]
    ),
    "seeds-after-the-start-count-at-once": row("cuda.init()\ncuda.manual_seed_all(9)\ncuda.initial_seed()", 9),
    "there-is-a-generator-for-each-device": row("cuda.init()\nlen(cuda.default_generators)", 2, gpus=2),
}

SETTING = {
    "an-ordinal-is-made-current": row("cuda.set_device(1)\ncuda.current_device()", 1, gpus=2),
    "the-first-is-made-current": row("cuda.set_device(0)\n[cuda.current_device(), cuda.is_initialized()]", [0, True]),
    "text-is-made-current": row("cuda.set_device('cuda:1')\ncuda.current_device()", 1, gpus=2),
    "a-device-is-made-current": row("cuda.set_device(torch.device('cuda', 0))\ncuda.current_device()", 0),
    "a-negative-one-does-nothing": row("[cuda.set_device(-1), cuda.is_initialized()]", [None, False]),
    "one-beyond-the-last-is-refused": row("said(cuda.set_device, 1)", BEYOND),
    "one-far-beyond-the-last-is-refused": row("said(cuda.set_device, 100)", BEYOND),
    "one-beyond-the-mask-is-refused": row("said(cuda.set_device, 1)", BEYOND, gpus=2, mask="1"),
    "a-refused-one-changes-nothing": row(
        "cuda.set_device(1)\nsaid(cuda.set_device, 5)\ncuda.current_device()", 1, gpus=2
    ),
    "a-refused-one-has-started-the-driver": row("said(cuda.set_device, 1)\ncuda.is_initialized()", True),
    "none-can-be-made-current-without-one": row("said(cuda.set_device, 0)", NONE, gpus=0),
    "the-cpu-is-refused": row("said(cuda.set_device, 'cpu')", "ValueError: Expected a cuda device, but got: cpu"),
    "cuda-without-an-ordinal-is-refused": row(
        "said(cuda.set_device, 'cuda')",
        "ValueError: Expected a torch.device with a specified index or an integer, but got:cuda",
    ),
    "no-device-is-refused": row(
        "said(cuda.set_device, None)",
        "ValueError: Expected a torch.device with a specified index or an integer, but got:None",
    ),
    "true-is-refused": row("said(cuda.set_device, True)", "RuntimeError: invalid argument to setDevice"),
    "an-ordinal-is-eight-bits-to-torch": row("cuda.set_device(256)\ncuda.current_device()", 0),
    "a-wrapped-ordinal-may-be-negative": row(  # older torch prints it as a byte, which is no text: to Python 3.10 none
        "told = said(cuda.set_device, 129)\n"
        "told == 'RuntimeError: ' or told.startswith(('RuntimeError: device id must be', 'UnicodeDecodeError'))",
        True,
    ),
    "each-thread-has-its-own": row(
        "cuda.set_device(1)\nseen = []\nthread = threading.Thread(target=lambda: seen.append(cuda.current_device()))\n"
        "thread.start()\nthread.join()\n[seen, cuda.current_device()]",
        [[0], 1],
        gpus=2,
    ),
}

CONTEXTS = {
    "a-context-changes-it-and-goes-back": row(
        "with cuda.device(1):\n    inside = cuda.current_device()\n[inside, cuda.current_device()]", [1, 0], gpus=2
    ),
    "a-context-goes-back-after-an-error": row(
        "def fail():\n    with cuda.device(1):\n        raise KeyError('x')\n[said(fail), cuda.current_device()]",
        ["KeyError: 'x'", 0],
        gpus=2,
    ),
    "contexts-nest": row(
        "seen = []\nwith cuda.device(1):\n    with cuda.device(2):\n        seen.append(cuda.current_device())\n"
        "    seen.append(cuda.current_device())\nseen + [cuda.current_device()]",
        [2, 1, 0],
        gpus=3,
    ),
    "a-context-of-a-negative-one-does-nothing": row(
        "with cuda.device(-1):\n    inside = cuda.is_initialized()\ninside", False
    ),
    "a-context-of-none-is-of-the-current-one": row(
        "cuda.set_device(1)\nwith cuda.device(None):\n    inside = cuda.current_device()\ninside", 1, gpus=2
    ),
    "a-context-beyond-the-last-is-refused": row("[said(cuda.device(4).__enter__), cuda.current_device()]", [BEYOND, 0]),
    "a-context-of-the-cpu-is-refused": row(
        "said(cuda.device, 'cpu')", "ValueError: Expected a cuda device, but got: cpu"
    ),
    "a-context-of-a-tensor-on-the-cpu-does-nothing": row(
        "with cuda.device_of(torch.zeros(1)):\n    inside = cuda.is_initialized()\ninside", False
    ),
    "an-exchange-with-a-negative-one-does-nothing": row(
        "[cuda._exchange_device(-1), cuda._maybe_exchange_device(-1), cuda.is_initialized()]", [-1, -1, False]
    ),
    "an-exchange-takes-no-more-than-seven-bits": row(
        "said(cuda._exchange_device, 200)", "RuntimeError: Overflow when unpacking DeviceIndex"
    ),
    "a-context-can-be-entered-again": row(
        "context = cuda.device(1)\nseen = []\nfor _ in range(2):\n    context = cuda.device(1)\n    with context:\n"
        "        seen.append(cuda.current_device())\nseen + [cuda.current_device()]",
        [1, 1, 0],
        gpus=2,
    ),
    "setting-inside-a-context-ends-with-it": row(
        "with cuda.device(1):\n    cuda.set_device(2)\ncuda.current_device()", 0, gpus=3
    ),
}

LOOKING = {
    "a-name": row("cuda.get_device_name(1)", "B", gpus=2, names=["A", "B"]),
    "the-name-of-the-current-one": row("cuda.set_device(1)\ncuda.get_device_name()", "B", gpus=2, names=["A", "B"]),
    "names-follow-the-mask": row(
        "[cuda.get_device_name(0), cuda.get_device_name(1)]", ["C", "A"], gpus=3, names=["A", "B", "C"], mask="2,0"
    ),
    "a-name-by-text": row("cuda.get_device_name('cuda:1')", "B", gpus=2, names=["A", "B"]),
    "a-name-beyond-the-last-is-refused": row("said(cuda.get_device_name, 1)", INVALID),
    "a-negative-name-is-refused": row("said(cuda.get_device_name, -1)", INVALID),
    "a-name-of-the-cpu-is-refused": row(
        "said(cuda.get_device_name, 'cpu')", "ValueError: Expected a cuda device, but got: cpu"
    ),
    "a-name-without-a-device-is-refused": row("said(cuda.get_device_name, 0)", NONE, gpus=0),
    "looking-starts-the-driver": row("cuda.get_device_name(0)\ncuda.is_initialized()", True),
    "torch-asserts-that-a-device-is-there": row(
        "cuda.init()\nsaid(cuda._get_device_properties, 1).partition(' at ')[0]",
        "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
    ),
    "looking-makes-nothing-current": row("cuda.get_device_properties(1)\ncuda.current_device()", 0, gpus=2),
    "a-capability-has-two-numbers": row("[type(n).__name__ for n in cuda.get_device_capability(0)]", ["int", "int"]),
    "a-capability-beyond-the-last-is-refused": row("said(cuda.get_device_capability, 9)", INVALID),
    "properties-agree-with-name-and-capability": row(
        "p = cuda.get_device_properties(0)\n"
        "[p.name == cuda.get_device_name(0), (p.major, p.minor) == cuda.get_device_capability(0), p.total_memory > 0]",
        [True, True, True],
    ),
    "properties-tell-the-memory": row("cuda.get_device_properties(0).total_memory", 8 << 30, memory=8 << 30),
    "properties-tell-the-uuid": row(
        "'GPU-' + str(cuda.get_device_properties(0).uuid) == cuda._raw_device_uuid_nvml()[0]", True, since=(2, 5)
    ),
    "free-memory-is-part-of-the-memory": row("free, total = cuda.mem_get_info()\n0 < free <= total", True),
    "memory-is-told-of-any-device": row("cuda.mem_get_info(0)[1]", 8 << 30, memory=8 << 30),
    "memory-of-another-leaves-the-current-one": row("cuda.mem_get_info(1)\ncuda.current_device()", 0, gpus=2),
    "memory-beyond-the-last-is-refused": row("said(cuda.mem_get_info, 1)", BEYOND),
    "memory-of-the-cpu-is-refused": row(
        "said(cuda.mem_get_info, 'cpu')", "ValueError: Expected a cuda device, but got: cpu"
    ),
    "nothing-is-allocated-at-first": row("[cuda.memory_allocated(), cuda.is_initialized()]", [0, False]),
    "nothing-is-allocated-after-the-start": row(
        "cuda.init()\n[cuda.memory_allocated(), cuda.max_memory_reserved(0)]", [0, 0]
    ),
    "emptying-the-cache-starts-nothing": row("[cuda.empty_cache(), cuda.is_initialized()]", [None, False]),
    "synchronising-starts": row("[cuda.synchronize(), cuda.is_initialized()]", [None, True]),
    "synchronising-beyond-the-last-is-refused": row("said(cuda.synchronize, 3)", BEYOND),
    "nothing-is-captured": row("cuda.init()\ncuda.is_current_stream_capturing()", False),
    "memory-allocated-beyond-the-last-is-refused": row(
        "cuda.init()\nsaid(cuda.memory_allocated, 7)",
        "RuntimeError: Invalid device argument \x07: did you call init?",
    ),
    "a-device-can-reach-another": row("cuda.can_device_access_peer(0, 1)", True, gpus=2, names=["A", "A"]),
    "a-peer-beyond-the-last-is-refused": row(
        "said(cuda.can_device_access_peer, 0, 4)", "AssertionError: Invalid peer device id"
    ),
    "a-device-is-only-a-word": row(
        "[str(torch.device('cuda')), torch.device('cuda:5').index, cuda.is_initialized()]", ["cuda", 5, False]
    ),
}

ACCELERATOR = {
    "the-accelerator-is-cuda": row("str(torch.accelerator.current_accelerator())", "cuda"),
    "the-accelerator-without-a-device": row(  # up to 2.6 there is none
        "[str(said(torch.accelerator.current_accelerator)), cuda.is_initialized()]",
        ["cuda" if VERSION >= (2, 7) else NO_ACCELERATOR, False],
        gpus=0,
    ),
    "naming-the-accelerator-leaves-the-mask-free": row(  # up to 2.6 it starts the driver
        "torch.accelerator.current_accelerator()\nos.environ[MASK] = '1'\ncuda.get_device_name(0)",
        "B" if VERSION >= (2, 7) else "A",
        gpus=2,
        names=["A", "B"],
    ),
    "accelerators-are-counted": row("torch.accelerator.device_count()", 2, gpus=2),
    "accelerators-are-counted-through-the-mask": row(
        "said(torch.accelerator.device_count)", NONE if VERSION[:2] == (2, 7) else 0, mask=""
    ),
    "counting-accelerators-initialises-older-torch": row(
        "torch.accelerator.device_count()\ncuda.is_initialized()", VERSION < (2, 8)
    ),
    "an-accelerator-is-available": row("torch.accelerator.is_available()", True),
    "an-accelerator-is-made-current": row(
        "torch.accelerator.set_device_index(1)\n[torch.accelerator.current_device_index(), cuda.current_device()]",
        [1, 1],
        gpus=2,
    ),
    "a-negative-accelerator-does-nothing": row(
        "torch.accelerator.set_device_index(-1)\ncuda.is_initialized()", False, since=(2, 8)
    ),
    "an-accelerator-beyond-the-last-is-refused": row("said(torch.accelerator.set_device_index, 1)", BEYOND),
    "another-kind-of-accelerator-is-refused": row(
        "said(torch.accelerator.set_device_index, 'cpu')",
        "ValueError: cpu doesn't match the current accelerator cuda.",
        since=(2, 7),
    ),
    "an-accelerator-context-goes-back": row(
        "with torch.accelerator.device_index(1):\n    inside = cuda.current_device()\n[inside, cuda.current_device()]",
        [1, 0],
        gpus=2,
        since=(2, 8),
    ),
    "synchronising-an-accelerator-that-is-not-used-does-nothing": row(
        "[torch.accelerator.synchronize(5), cuda.is_initialized()]", [None, False]
    ),
    "synchronising-another-leaves-the-current-one": row(
        "torch.accelerator.current_device_index()\n[torch.accelerator.synchronize(1), cuda.current_device()]",
        [None, 0],
        gpus=2,
    ),
    "synchronising-an-accelerator-beyond-the-last-is-refused": row(
        "torch.accelerator.current_device_index()\nsaid(torch.accelerator.synchronize, 5)", BEYOND
    ),
    "nothing-is-allocated-on-the-accelerator": row(
        "cuda.init()\ntorch.accelerator.empty_cache()\ntorch.accelerator.reset_peak_memory_stats()\n"
        "[torch.accelerator.memory_allocated(), torch.accelerator.max_memory_reserved()]",
        [0, 0],
        since=(2, 9),
    ),
    "the-accelerators-memory-is-told": row(
        "torch.accelerator.get_memory_info(0) == cuda.mem_get_info(0)", True, since=(2, 12), memory=8 << 30
    ),
}
for _name, _row in list(ACCELERATOR.items()):
    ACCELERATOR[_name] = Behaviour(**{**_row.__dict__, "since": max(_row.since, (2, 6))})

_EXCLUSIVE: dict[str, Any] = {"gpus": 2, "faults": {1: "exclusive"}}
_EXCLUSIVE_FIRST: dict[str, Any] = {"gpus": 2, "faults": {0: "exclusive"}}
FAULTS = {
    "a-device-in-exclusive-use-is-counted": row("[cuda.device_count(), cuda.is_available()]", [2, True], **_EXCLUSIVE),
    "a-device-in-exclusive-use-refuses": row("said(cuda.set_device, 1)", BUSY, **_EXCLUSIVE),
    "its-refusal-changes-nothing": row("said(cuda.set_device, 1)\ncuda.current_device()", 0, **_EXCLUSIVE),
    "the-others-can-be-used": row("cuda.set_device(0)\ncuda.mem_get_info(0)[0] > 0", True, **_EXCLUSIVE),
    "its-name-is-told": row("cuda.get_device_name(1) == cuda.get_device_name(0)", True, **_EXCLUSIVE),
    "its-memory-is-not": row("said(cuda.mem_get_info, 1)", BUSY, **_EXCLUSIVE),
    "its-context-refuses": row("said(cuda.device(1).__enter__)", BUSY, **_EXCLUSIVE),
    "its-number-follows-the-mask": row("said(cuda.set_device, 1)", BUSY, mask="1,0", **_EXCLUSIVE_FIRST),
    "going-back-to-it-makes-no-context": row(
        "with cuda.device(1):\n    pass\ncuda.current_device()", 0, **_EXCLUSIVE_FIRST
    ),
    "it-may-be-current-from-the-start": row(
        "[cuda.current_device(), said(cuda.set_device, 0)]",
        [0, BUSY if VERSION >= (2, 8) else None],  # older torch does nothing where the device is current already
        **_EXCLUSIVE_FIRST,
    ),
    "a-device-without-memory-refuses": row("said(cuda.set_device, 1)", FULL, gpus=2, faults={1: "out-of-memory"}),
    "a-driver-too-old-is-counted-by-nvml": row("cuda.device_count()", 2, gpus=2, driver="too-old"),
    "a-driver-too-old-is-unavailable": row("said(cuda.is_available)", False, gpus=2, driver="too-old"),
    "a-driver-too-old-is-warned-about": row(
        "with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n"
        "    cuda.is_available()\n"
        "    cuda.is_available()\n[str(warning.message)[:69] for warning in caught]",
        ["CUDA initialization: The NVIDIA driver on your system is too old (foun"[:69]],
        gpus=2,
        driver="too-old",
    ),
    "a-driver-too-old-does-not-start": row(
        "[said(cuda.init), said(cuda.set_device, 0), cuda.is_initialized()]",
        [TOO_OLD, TOO_OLD, False],
        gpus=2,
        driver="too-old",
    ),
    "a-driver-too-old-does-nothing-for-a-negative-one": row("cuda.set_device(-1)", None, gpus=2, driver="too-old"),
}

BEHAVIOURS = {**COUNTING, **AVAILABLE, **STARTING, **SETTING, **CONTEXTS, **LOOKING, **ACCELERATOR, **FAULTS}
