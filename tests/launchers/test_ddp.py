"""The recipe for DistributedDataParallel, on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

from launch import Bench

DDP = Path(__file__).with_name("ddp.py")


def test_the_recipe_for_ddp_trains(tmp_path: Path) -> None:
    """
    Two workers of torchrun without a GPU get the CPU, meet over gloo, and share their gradients: the input of each is
    its rank, so that the gradient of a sum is the mean of the ranks, and the weights stay alike.
    """
    bench = Bench(folder=tmp_path, gpus={"CUDA_VISIBLE_DEVICES": ""}, count=0)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--log-dir={tmp_path}/log"]
    done = bench.run(bench.on_gpus(*torchrun, str(DDP), str(tmp_path)))

    assert 0 == done.status, done.output
    assert ["cpu", "cpu"] == done.column("device")
    assert [[0.5, 0.5], [0.5, 0.5]] == done.column("gradient")
    assert done.column("weight")[0] == done.column("weight")[1]
