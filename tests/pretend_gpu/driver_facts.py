"""What starts the driver, what it then holds to, and what is left of it in a forked child: snippets and their answers.

The same snippets run on the pretend machine and on a real GPU (``tests/gpu``). Each runs in a process of its own with
one GPU or more and no mask. Sources: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__INITIALIZE.html;
NVIDIA's own libcuda 535.261.03 and libcudart 12.9.79, watched on a machine without a GPU; torch's sources and issues.
"""

from __future__ import annotations

from dataclasses import dataclass

# Helpers that the snippets use. `state` asks the driver without starting it: "absent", 3 (not initialised) or 0.
PRELUDE = '''
import ctypes, json, os

def library(): return ctypes.CDLL("libcuda.so.1")

def state():
    try:
        found = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return "absent"
    return found.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))

def awake(): return state() == 0

def count():
    """Number of devices the started driver shows, or None."""
    n = ctypes.c_int(-7)
    return n.value if library().cuDeviceGetCount(ctypes.byref(n)) == 0 else None

def start(): return library().cuInit(0)

def uuids():
    found = []
    for ordinal in range(count() or 0):
        d, b = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        library().cuDeviceGet(ctypes.byref(d), ordinal)
        library().cuDeviceGetUuid_v2(b, d)
        t = bytes(b).hex()
        found.append("-".join((t[:8], t[8:12], t[12:16], t[16:20], t[20:])))
    return found

def context_of(ordinal):
    """Return code, and whether the device has a context (9: untouched)."""
    flags, active = ctypes.c_uint(), ctypes.c_int(9)
    return library().cuDevicePrimaryCtxGetState(ordinal, ctypes.byref(flags), ctypes.byref(active)), active.value

def mask(text):
    if text is None: os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else: os.environ["CUDA_VISIBLE_DEVICES"] = text

def in_child(function):
    """What *function* returns in a forked child."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = function()
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(w, json.dumps(answer).encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return answer
'''


@dataclass(frozen=True)
class Fact:
    """A snippet (after `PRELUDE`), its answer, and whether that was ever seen on hardware or is documented."""

    id: str
    code: str
    answer: object
    sure: bool = True


DRIVER = (
    Fact("loading-it-starts-nothing", "library(); state()", 3),
    Fact("no-library-before-somebody-loads-it", "state()", "absent"),
    Fact(
        "version-needs-no-start",
        "v = ctypes.c_int(); rc = library().cuDriverGetVersion(ctypes.byref(v)); (rc, v.value > 0, state())",
        [0, True, 3],
    ),
    Fact(
        "device-before-start",
        "d = ctypes.c_int(-7); (library().cuDeviceGet(ctypes.byref(d), 0), d.value, state())",
        [3, -7, 3],
    ),
    Fact(
        "context-before-start",
        "p = ctypes.c_void_p(77); (library().cuCtxGetCurrent(ctypes.byref(p)), p.value, state())",
        [3, 77, 3],
    ),
    Fact(
        "primary-context-before-start",
        "(context_of(0), state())",
        [[3, 9], 3],
    ),
    Fact("start", "(start(), state(), count() > 0)", [0, 0, True]),
    Fact("start-twice", "(start(), start(), state())", [0, 0, 0]),
    Fact(
        "start-makes-no-context",
        "start(); context_of(0)",
        [0, 0],
    ),
    Fact("mask-is-read-at-the-start-not-at-loading", "mask(None); library(); mask(''); start()", 100, sure=False),
    Fact(
        "mask-is-read-from-the-c-environment",
        "os.putenv('CUDA_VISIBLE_DEVICES', ''); (os.environ.get('CUDA_VISIBLE_DEVICES'), start())",
        [None, 100],
        sure=False,
    ),
    Fact(
        "unsetenv-is-seen-by-the-driver",
        "mask('-1'); os.unsetenv('CUDA_VISIBLE_DEVICES'); ('CUDA_VISIBLE_DEVICES' in os.environ, start())",
        [True, 0],
        sure=False,
    ),
    Fact("a-replaced-environ-is-not-seen", "os.environ = dict(CUDA_VISIBLE_DEVICES='-1'); start()", 0),
    Fact("mask-frozen-after-start", "mask('0'); start(); mask(''); (start(), count())", [0, 1]),
    Fact("failed-start-leaves-nothing", "mask('-1'); (start(), state(), count())", [100, 3, None]),
    Fact(
        "failed-start-may-be-tried-again",
        "mask(''); first = start(); mask('0'); (first, start(), count())",
        [100, 0, 1],
        sure=False,
    ),
    Fact("child-of-a-started-driver", "start(); in_child(lambda: (state(), start(), state()))", [3, 3, 3]),
    Fact("parent-goes-on-after-its-child", "start(); in_child(lambda: start()); (state(), count() > 0)", [0, True]),
    Fact("child-of-a-loaded-driver", "library(); in_child(lambda: (state(), start(), state()))", [3, 0, 0], sure=False),
    Fact(
        "children-have-masks-of-their-own",
        "mask(''); in_child(lambda: (mask('0'), start(), count())[1:]) + [start()]",
        [0, 1, 100],
        sure=False,
    ),
    Fact(
        "child-of-a-failed-start",
        "mask(''); start(); in_child(lambda: (mask('0'), start(), count())[1:])",
        [0, 1],
        sure=False,
    ),
    Fact(
        "nvml-does-not-freeze",
        "m = ctypes.CDLL('libnvidia-ml.so.1'); n = ctypes.c_uint()\n"
        "rc = [m.nvmlInit_v2(), m.nvmlDeviceGetCount_v2(ctypes.byref(n))]\n"
        "before = state(); mask(''); (rc, n.value > 0, before, start())",
        [[0, 0], True, "absent", 100],
        sure=False,
    ),
)


@dataclass(frozen=True)
class Call:
    """A torch call, and what it leaves: has the driver started, and does torch say that it is initialised?"""

    id: str
    code: str
    starts: bool
    initialises: bool = False
    since: tuple[int, int] = (2, 4)  # the answer holds from this torch on; asked of no older one
    settings: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    machine: str = "full"
    fresh: bool = False  # what counts is the import


PINNED = "list(torch.utils.data.DataLoader([1, 2], pin_memory=True))"
NVML_CHECK = (("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),)
ABSENT = (("PRETEND_NVML", "absent"),)
MIG = (("PRETEND_GPU_MIG", "0:1/0"),)
MIG_MASK = ("CUDA_VISIBLE_DEVICES", "MIG-01")

CALLS = (
    Call("import", "None", False),
    Call("is-available", "torch.cuda.is_available()", True),
    Call("is-available-nvml-check", "torch.cuda.is_available()", False, env=NVML_CHECK),
    Call(
        "is-available-nvml-check-not-exactly-1",
        "torch.cuda.is_available()",
        True,
        env=(("PYTORCH_NVML_BASED_CUDA_CHECK", "true"),),
    ),
    Call("is-available-nvml-check-nvml-absent", "torch.cuda.is_available()", True, env=NVML_CHECK, settings=ABSENT),
    Call(
        "is-available-nvml-check-mig-mask", "torch.cuda.is_available()", True, env=(*NVML_CHECK, MIG_MASK), settings=MIG
    ),
    Call("device-count", "torch.cuda.device_count()", False),
    Call("device-count-nvml-absent", "torch.cuda.device_count()", True, settings=ABSENT),
    Call("device-count-nvml-broken", "torch.cuda.device_count()", True, settings=(("PRETEND_NVML", "broken"),)),
    Call("device-count-no-nvml-library", "torch.cuda.device_count()", True, machine="no-nvml"),
    Call("device-count-mig-mask", "torch.cuda.device_count()", True, env=(MIG_MASK,), settings=MIG),
    Call("device-count-uuid-mask", "torch.cuda.device_count()", False, env=(("CUDA_VISIBLE_DEVICES", "GPU-ff"),)),
    Call("c-device-count", "torch._C._cuda_getDeviceCount()", True),
    Call("accelerator-device-count", "torch.accelerator.device_count()", False, since=(2, 8)),
    Call("accelerator-is-available", "torch.accelerator.is_available()", True, since=(2, 6)),
    Call(
        "accelerator-is-available-nvml-check", "torch.accelerator.is_available()", False, env=NVML_CHECK, since=(2, 7)
    ),
    Call("current-accelerator", "torch.accelerator.current_accelerator()", False, since=(2, 6)),
    Call(
        "current-accelerator-checked", "torch.accelerator.current_accelerator(check_available=True)", True, since=(2, 7)
    ),
    Call("get-device-module", "torch.get_device_module()", False, since=(2, 14)),
    Call("arch-list", "torch.cuda.get_arch_list()", False, since=(2, 13)),
    Call("init", "torch.cuda.init()", True, True),
    Call("current-device", "torch.cuda.current_device()", True, True),
    Call("set-device", "torch.cuda.set_device(0)", True, True),
    Call("set-device-minus-one", "torch.cuda.set_device(-1)", False),
    Call("device-name", "torch.cuda.get_device_name(0)", True, True),
    Call("device-properties", "torch.cuda.get_device_properties(0)", True, True),
    Call("device-capability", "torch.cuda.get_device_capability(0)", True, True),
    Call("synchronize", "torch.cuda.synchronize()", True, True),
    Call("current-stream", "torch.cuda.current_stream()", True, True),
    Call("mem-get-info", "torch.cuda.mem_get_info()", True, True),
    Call("bf16-supported", "torch.cuda.is_bf16_supported()", True, True),
    Call("enter-device", "with torch.cuda.device(0): pass", True, True),
    Call("tensor", "torch.zeros(1).to('cuda')", True, True),
    Call("generator", "torch.Generator('cuda')", True, since=(2, 14)),
    Call("utilization-of-the-current", "torch.cuda.utilization()", True, True),
    Call("device-object", "torch.device('cuda:5')", False),
    Call("manual-seed", "torch.manual_seed(0)", False),
    Call("cuda-manual-seed-all", "torch.cuda.manual_seed_all(0)", False),
    Call("is-initialized", "torch.cuda.is_initialized()", False),
    Call("bad-fork", "torch.cuda._is_in_bad_fork()", False),
    Call("set-default-device", "torch.set_default_device('cuda')", False),
    Call("memory-allocated", "torch.cuda.memory_allocated()", False),
    Call("empty-cache", "torch.cuda.empty_cache()", False),
    Call("fork-rng", "with torch.random.fork_rng(devices=[]): pass", False),
    Call(
        "load-to-the-cpu", "import io; b = io.BytesIO(); torch.save(torch.zeros(1), b); b.seek(0); torch.load(b)", False
    ),
    Call("pinned-loader", PINNED, True, since=(2, 14)),
    Call("pinned-loader-nvml-check", PINNED, True, env=NVML_CHECK, since=(2, 14)),
    # torch.utils.cpp_extension asks is_available() where it finds a CUDA toolkit, and torch.utils.benchmark imports it
    Call("extension-import-with-a-toolkit", "import torch.utils.cpp_extension", True, env=(("CUDA_HOME", "/nowhere"),)),
    Call("benchmark-import-with-a-toolkit", "import torch.utils.benchmark", True, env=(("CUDA_HOME", "/nowhere"),)),
    Call("dynamo-import", "import torch._dynamo", False, since=(2, 14)),
    Call("import-with-the-profiler-daemon", "None", True, env=(("KINETO_USE_DAEMON", "1"),), since=(2, 14), fresh=True),
)
