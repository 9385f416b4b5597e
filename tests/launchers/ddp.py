"""One training step with DistributedDataParallel, as the documentation tells it: GPUs with NCCL, or the CPU with gloo.

torchrun --nproc-per-node=2 ddp.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import safedev


def main() -> None:
    device = safedev.set_device()
    on_gpu = device.type == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1).to(device), device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank = dist.get_rank()
    model(torch.full((1, 2), float(rank), device=device)).sum().backward()
    optimizer.step()

    gradient = model.module.weight.grad
    assert gradient is not None
    said = {"rank": rank, "device": str(device), "gradient": gradient.flatten().tolist()}
    (Path(sys.argv[1]) / f"{rank}.json").write_text(
        json.dumps({**said, "weight": model.module.weight.flatten().tolist()})
    )
    dist.barrier()  # gloo may abort in a process that is left while the others still talk
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
