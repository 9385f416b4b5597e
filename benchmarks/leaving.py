"""What choosing a device leaves behind, in a fresh process on a pretend machine: counts, and therefore exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.report import Row, Section

if TYPE_CHECKING:
    from rig import Rig

# By name: what is imported, and the call.
CHOOSERS = {
    "floor: `torch.cuda.device_count()`": ("", "torch.cuda.device_count()"),
    "`import safedev`": ("", "__import__('safedev')"),
    "`safedev.select_device(1)`": ("import safedev", "safedev.select_device(1)"),
    "`safedev.select_device()`": ("import safedev", "safedev.select_device()"),
    "`safedev.select_device(UUID)`": (
        "import safedev",
        "safedev.select_device('GPU-04040404-0000-4000-8000-000000000003')",
    ),
    "`safedev.select_device(9)`, falling back": ("import safedev", "safedev.select_device(9)"),
    "`safedev.diagnose(9)`": ("import safedev", "safedev.diagnose(9)"),
    "`safedev.resolve_local_rank()`": ("import safedev", "safedev.resolve_local_rank()"),
    "`safedev.guard_visible_devices()`": ("import safedev", "safedev.guard_visible_devices()"),
    "`safedev.set_device(1)`": ("import safedev", "safedev.set_device(1)"),
    "`torch.cuda.set_device(1)`": ("", "torch.cuda.set_device(1)"),
    "`torch.accelerator.current_accelerator(True)`": ("", "torch.accelerator.current_accelerator(True)"),
    "lightning `_parse_gpu_ids([1])`": (
        "from lightning.fabric.utilities.device_parser import _parse_gpu_ids",
        "_parse_gpu_ids([1], include_cuda=True)",
    ),
    "accelerate `PartialState().device`": ("from accelerate import PartialState", "PartialState().device"),
    "ultralytics `select_device('1')`": (
        "from ultralytics.utils.torch_utils import select_device",
        "select_device('1', verbose=False)",
    ),
    "nvitop `parse_cuda_visible_devices()`": (
        "from nvitop import parse_cuda_visible_devices",
        "parse_cuda_visible_devices()",
    ),
}
STARTS_A_CONTEXT = {"`safedev.set_device(1)`"}
MASK = {"CUDA_VISIBLE_DEVICES": "2,3,4,5"}

SNIPPET = """
import gc, os, signal, sys, threading, warnings
import torch

def state():
    gc.collect()
    with open("/proc/self/statm") as statm:
        memory = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    handlers = {{n: signal.getsignal(n) for n in signal.valid_signals()}}
    files = {{n: os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if n.isdigit() and os.path.lexists("/proc/self/fd/" + n)}}
    children = open("/proc/self/task/%d/children" % os.getpid()).read().split()
    threads = len(os.listdir("/proc/self/task"))
    return memory, dict(os.environ), list(warnings.filters), handlers, {{n: p for n, p in files.items() if "/proc/" not in p}}, children, threads

# A first pass, and a second one to compare with, so that what looking costs is not counted.
state()
before = state()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    held = list(warnings.filters)
    {imports}
    {call}
    held = held != list(warnings.filters)
after = state()
names = ("variables", "filters", "handlers", "files", "processes", "threads")
left = [name for name, one, other in zip(names, before[1:], after[1:]) if one != other] + ["filters"] * held
pid = os.fork()
if pid == 0:
    try:
        torch.zeros(1, device="cuda")
        os._exit(0)
    except BaseException:
        os._exit(1)
usable = os.waitpid(pid, 0)[1] == 0
[(after[0] - before[0]) / 2**20, left, usable, pid]
"""


def row(rig: Rig, name: str, imports: str, call: str) -> Row:
    result = rig.call(SNIPPET.format(imports=imports or "pass", call=call), gpus=8, env=MASK, fresh=True, timeout=300)
    if result.error is not None:
        return Row(what=name, note=f"left out: {result.error.name}: {result.error.message[:80]}")
    memory, left, usable, child = result.value
    own = [event for event in result.trace if event.pid != child]
    seen: dict[str, Any] = {
        "drivers": sum(event.event == "init" for event in own),
        "contexts": sum(event.event == "ctx" for event in own),
    }
    faults = [f"{count} {what}" for what, count in seen.items() if count] + left + ([] if usable else ["no fork"])
    ours = "safedev" in name
    waking = name in STARTS_A_CONTEXT
    amiss = (seen != {"drivers": 1, "contexts": 1}) if waking else bool(faults)
    return Row(
        what=name,
        took=f"{memory:.1f} MiB, {len(result.nvml)} NVML calls",
        ratio=float(amiss) if waking else float(len(faults)) + max(0.0, memory - 1.0) * ours,
        most=0.0 if ours else None,
        note=", ".join(faults) or "nothing",
    )


def section(rig: Rig) -> Section:
    rows = tuple(row(rig, name, imports, call) for name, (imports, call) in CHOOSERS.items())
    floor = (
        "nothing. Counted: drivers and contexts, variables, warning filters, signal handlers, files, processes and "
        "threads that differ afterwards, a forked child that cannot use CUDA, and memory above 1 MiB"
    )
    return Section(title="what choosing leaves behind", floor=floor, rows=rows)
