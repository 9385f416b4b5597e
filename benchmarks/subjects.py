"""What is measured: floors, safedev, and others. Each entry makes a call without arguments; making it may import."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress

Subject = Callable[[], object]
SUBJECTS: dict[str, Callable[[], Subject]] = {}

# The local rank of each family, by name, and of four families the name without which a local rank is not to be
# believed, or is missing: no reader that is right under all of them can ask for less.
FAMILIES = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_LOCAL_RANK",
    "HOROVOD_LOCAL_RANK",
    "SLURM_LOCALID",
    "SLURM_STEP_ID",
    "TORCHELASTIC_RUN_ID",
    "RAY_JOB_ID",
    "WORLD_SIZE",
)


def subject(name: str) -> Callable[[Callable[[], Subject]], Callable[[], Subject]]:
    def keep(make: Callable[[], Subject]) -> Callable[[], Subject]:
        SUBJECTS[name] = make
        return make

    return keep


# --- the local rank


@subject("floor: one name")
def _one_name() -> Subject:
    name = next((n for n in FAMILIES if os.environ.get(n)), "LOCAL_RANK")

    def read() -> object:
        return int(os.environ.get(name, "0"))

    return read


@subject("floor: every family's name")
def _every_name() -> Subject:
    def read() -> object:
        get = os.environ.get
        found = 0
        for name in FAMILIES:
            value = get(name)
            if value is not None and name.endswith(("RANK", "RANKID", "LOCALID")):
                found = int(value)
        return found

    return read


@subject("safedev.resolve_local_rank()")
def _safedev_rank() -> Subject:
    import safedev

    return lambda: safedev.resolve_local_rank()  # noqa: PLW0108 - as users write it


@subject("torch.distributed.get_node_local_rank(0)")
def _torch_rank() -> Subject:
    from torch.distributed import get_node_local_rank

    return lambda: get_node_local_rank(0)


@subject("lightning, the class that the caller names")
def _lightning_rank() -> Subject:
    from lightning.fabric.plugins.environments import (
        LightningEnvironment,
        MPIEnvironment,
        SLURMEnvironment,
        TorchElasticEnvironment,
    )

    if "TORCHELASTIC_RUN_ID" in os.environ:
        return lambda: TorchElasticEnvironment().local_rank()
    if "SLURM_LOCALID" in os.environ:
        return lambda: SLURMEnvironment().local_rank()
    if "OMPI_COMM_WORLD_LOCAL_RANK" in os.environ:
        return lambda: MPIEnvironment().local_rank()
    return lambda: LightningEnvironment().local_rank()


@subject("submitit.JobEnvironment().local_rank")
def _submitit_rank() -> Subject:
    import submitit

    return lambda: submitit.JobEnvironment().local_rank


@subject("clusterscope.get_job().get_local_rank()")
def _clusterscope_rank() -> Subject:
    import clusterscope

    return lambda: clusterscope.get_job().get_local_rank()


# --- the device


def _libraries() -> tuple[Callable[[], object], Callable[[], object]]:
    """One question to libcuda and two to NVML, with the libraries' handles kept."""
    cuda, nvml, number = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_int()
    count, version, driver = cuda.cuDeviceGetCount, nvml.nvmlSystemGetCudaDriverVersion_v2, nvml.nvmlDeviceGetCount_v2
    there = ctypes.byref(number)
    return lambda: count(there), lambda: (version(there), driver(there))


@subject("floor: count + device")
def _count() -> Subject:
    import torch

    def choose() -> object:
        ordinal = 1
        return torch.device("cuda", ordinal if ordinal < torch.cuda.device_count() else 0)

    return choose


@subject("floor: all that is to be read")
def _all_to_be_read() -> Subject:
    import torch

    driver, nvml = _libraries()
    names = _every_name()

    def choose() -> object:
        driver()
        count = torch.cuda.device_count()
        nvml()
        os.environ.get("CUDA_VISIBLE_DEVICES")
        ordinal = int(str(names())) or 1
        return torch.device("cuda", ordinal if ordinal < count else 0)

    return choose


@subject("floor: count + every UUID")
def _every_uuid() -> Subject:
    import torch

    def choose() -> object:
        count = torch.cuda.device_count()
        known = torch.cuda._raw_device_uuid_nvml() or []  # noqa: SLF001 - torch has no public name for it
        wanted = known[-1]
        return torch.device("cuda", min(known.index(wanted), count - 1))

    return choose


@subject("safedev.select_device(1)")
def _select_ordinal() -> Subject:
    import safedev

    return lambda: safedev.select_device(1)


@subject("safedev.select_device()")
def _select_auto() -> Subject:
    import safedev

    return lambda: safedev.select_device()  # noqa: PLW0108 - found by its name at each call, as users do


@subject("safedev.select_device(10**6), refused")
def _select_refused() -> Subject:
    import safedev

    def choose() -> object:
        try:
            return safedev.select_device(10**6, fallback="raise")
        except safedev.InvalidDeviceError as error:
            return str(error)

    return choose


@subject("safedev.select_device(10**6), falling back")
def _select_fallback() -> Subject:
    import safedev

    return lambda: safedev.select_device(10**6, fallback="cuda:0")


@subject("safedev.select_device(UUID of the last)")
def _select_uuid() -> Subject:
    import torch

    import safedev

    known = torch.cuda._raw_device_uuid_nvml() or []  # noqa: SLF001
    return lambda: safedev.select_device(known[-1])


@subject("safedev.diagnose(1)")
def _diagnose() -> Subject:
    import safedev

    return lambda: safedev.diagnose(1).is_valid


@subject("lightning _parse_gpu_ids([1])")
def _lightning() -> Subject:
    from lightning.fabric.utilities.device_parser import _parse_gpu_ids

    return lambda: _parse_gpu_ids([1], include_cuda=True)


@subject("lightning _parse_gpu_ids([0])")
def _lightning_first() -> Subject:
    from lightning.fabric.utilities.device_parser import _parse_gpu_ids

    return lambda: _parse_gpu_ids([0], include_cuda=True)


@subject("accelerate PartialState().device")
def _accelerate() -> Subject:
    from accelerate import PartialState

    def choose() -> object:
        PartialState._reset_state()  # noqa: SLF001 - it answers from memory otherwise
        return PartialState().device

    return choose


@subject("ultralytics select_device('1')")
def _ultralytics() -> Subject:
    from ultralytics.utils.torch_utils import select_device

    return lambda: select_device("1", verbose=False)


@subject("torch.accelerator.current_accelerator(check_available=True)")
def _torch_accelerator() -> Subject:
    import torch

    return lambda: torch.accelerator.current_accelerator(check_available=True)


@subject("torch.cuda.device_count()")
def _torch_count() -> Subject:
    import torch

    return torch.cuda.device_count


@subject("safedev.select_device(0)")
def _select_first() -> Subject:
    import safedev

    warmed()
    return lambda: safedev.select_device(0)


@subject("torch.cuda.set_device(0)")
def _torch_set_device() -> Subject:
    import torch

    return lambda: torch.cuda.set_device(0)


@subject("safedev.set_device(0)")
def _safedev_set_device() -> Subject:
    import safedev

    warmed()
    return lambda: safedev.set_device(0)


# --- the mask


@subject("floor: split and int")
def _split() -> Subject:
    def read() -> object:
        return len([int(entry) for entry in os.environ["CUDA_VISIBLE_DEVICES"].split(",")])

    return read


@subject("torch's parser of the mask")
def _torch_parser() -> Subject:
    import torch

    return lambda: len(torch.cuda._parse_visible_devices())  # noqa: SLF001


@subject("safedev.guard_visible_devices()")
def _guard() -> Subject:
    import safedev

    return lambda: len(safedev.guard_visible_devices().entries)


@subject("floor: one pass over the names")
def _pass() -> Subject:
    return lambda: len([name for name in os.environ if "VISIBLE" in name])


@subject("import safedev, select_device()")
def _import_and_select() -> Subject:
    def choose() -> object:
        import safedev

        return safedev.select_device()

    return choose


@subject("import accelerate, PartialState().device")
def _import_accelerate() -> Subject:
    def choose() -> object:
        from accelerate import PartialState

        return PartialState().device

    return choose


@subject("import lightning.fabric, _parse_gpu_ids([1])")
def _import_lightning() -> Subject:
    def choose() -> object:
        from lightning.fabric.utilities.device_parser import _parse_gpu_ids

        return _parse_gpu_ids([1], include_cuda=True)

    return choose


def warmed() -> None:
    """Import what safedev imports at the first call, for what a first call costs by itself."""
    with suppress(ImportError):
        from safedev import _diagnosis, _rules, _select, _torch  # noqa: F401


@subject("safedev.select_device(1), its modules loaded")
def _first_ordinal() -> Subject:
    warmed()
    return SUBJECTS["safedev.select_device(1)"]()


@subject("safedev.select_device(), its modules loaded")
def _first_auto() -> Subject:
    warmed()
    return SUBJECTS["safedev.select_device()"]()
