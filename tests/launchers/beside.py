"""What each process runs beside a framework: which device does the framework use, and which does safedev give?

    python beside.py FRAMEWORK FIRST FOLDER

With FIRST `safedev`, `set_device()` is called before the framework starts; with `framework`, `select_device()` after.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import safedev

PROCESSES = 2


def report(first: str, folder: str, framework: Callable[[], torch.device]) -> None:
    """Ask both for the device, in the order that *first* tells, and write what they said."""
    if first == "safedev":
        ours = safedev.set_device()
        theirs = framework()
    else:
        theirs = framework()
        ours = safedev.select_device()
    said = {
        "rank": int(os.environ["RANK"]) if "RANK" in os.environ else safedev.resolve_local_rank(),
        "safedev": str(ours),
        "framework": str(theirs),
        "current": torch.cuda.current_device(),
    }
    (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps(said))


def with_accelerate(first: str, folder: str) -> None:
    from accelerate import PartialState

    report(first, folder, lambda: PartialState(backend="gloo").device)


def with_lightning(first: str, folder: str) -> None:
    from lightning.fabric import Fabric
    from lightning.fabric.strategies import DDPStrategy

    def device() -> torch.device:
        # NCCL does not run on pretend GPUs, and is not what chooses the device.
        fabric = Fabric(accelerator="cuda", devices=PROCESSES, strategy=DDPStrategy(process_group_backend="gloo"))
        fabric.launch()
        return fabric.device

    report(first, folder, device)


def with_ray(first: str, folder: str) -> None:
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer, get_device

    def loop() -> None:
        report(first, folder, get_device)

    ray.init(num_cpus=PROCESSES + 1, num_gpus=PROCESSES, include_dashboard=False, log_to_driver=False)
    TorchTrainer(
        loop,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=PROCESSES, use_gpu=True),
        run_config=RunConfig(storage_path=str(Path(folder) / "storage")),
    ).fit()


if __name__ == "__main__":
    globals()[f"with_{sys.argv[1]}"](*sys.argv[2:])
