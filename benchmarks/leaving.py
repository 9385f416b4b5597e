"""What choosing a device leaves behind, in a fresh process on a pretend machine: counts, and therefore exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

# Anonymous memory is looked at thrice: before the import, before the call, and after it. What a first call imports by
# itself counts for the import: whoever imports safedev first and calls it later has it in memory either way.
SNIPPET = """
import gc, os, signal, warnings
import torch

def memory():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

def state():
    folder = "/proc/self/fd/"
    links = ((n, folder + n) for n in os.listdir(folder))
    files = dict((n, os.readlink(link)) for n, link in links if os.path.lexists(link))
    with open("/proc/self/task/%d/children" % os.getpid()) as children:
        processes = children.read().split()
    return (
        dict(os.environ),
        list(warnings.filters),
        [signal.getsignal(n) for n in sorted(signal.valid_signals())],
        dict((n, path) for n, path in files.items() if "/proc/" not in path),
        processes,
        len(os.listdir("/proc/self/task")),
    )

memory(), state()  # what looking costs is not counted
bare, before = memory(), state()
warnings.simplefilter("ignore")
held = list(warnings.filters)
{imports}
loaded = memory()
{call}
called = memory()
held = held != list(warnings.filters)
warnings.filters[:] = before[1]
after = state()
names = ("variables", "filters", "handlers", "files", "processes", "threads")
left = [name for name, one, other in zip(names, before, after) if one != other] + ["filters"] * held
pid = os.fork()
if pid == 0:
    try:
        torch.zeros(1, device="cuda")
        os._exit(0)
    except BaseException:
        os._exit(1)
usable = os.waitpid(pid, 0)[1] == 0
[loaded - bare, called - loaded, left, usable, pid]
"""
ALL = "import safedev; from safedev import _diagnosis, _rules, _torch"


def row(rig: Rig, name: str, imports: str, call: str) -> Row:
    ours = "safedev" in name
    imports = ALL if imports == "import safedev" else imports
    result = rig.call(SNIPPET.format(imports=imports or "pass", call=call), gpus=8, env=MASK, fresh=True, timeout=300)
    if result.error is not None:
        return Row(what=name, note=f"left out: {result.error.name}: {result.error.message[:80]}")
    imported, called, left, usable, child = result.value
    own = [event.event for event in result.trace if event.pid != child]
    drivers, contexts = own.count("init"), own.count("context")
    faults = [f"{drivers} driver"] * bool(drivers) + [f"{contexts} context"] * bool(contexts) + left
    faults += [] if usable else ["a forked child cannot use CUDA"]
    if name in STARTS_A_CONTEXT:
        amiss = float((drivers, contexts, left) != (1, 1, []) or called > 1.0)
    else:
        amiss = len(faults) + float(called > 1.0)
    return Row(
        what=name,
        took=f"{imported:.1f} + {called:.1f} MiB, {len(result.nvml)} NVML calls",
        ratio=amiss,
        most=0.0 if ours else None,
        note=", ".join(faults) or "nothing",
    )


def section(rig: Rig) -> Section:
    rows = tuple(row(rig, name, imports, call) for name, (imports, call) in CHOOSERS.items())
    floor = (
        "nothing. Counted: drivers and contexts, variables, warning filters, signal handlers, files, processes and "
        "threads that differ afterwards, a forked child that cannot use CUDA, and more than 1 MiB that the call takes "
        "(the first figure is what its modules take); `set_device` must start one driver and make one context"
    )
    return Section(title="what choosing leaves behind", floor=floor, rows=rows)
