"""What every process of a launch runs: takes its device, meets the others, and reports as one file.

    LAUNCHER python worker.py FOLDER WORKERS

A worker that was refused its device reports that, and waits until all have reported before it fails: several launchers
end the other workers as soon as one has failed, and the claim is that each of them fails of itself.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import safedev
from safedev.launchers import Launch, detect_launch

PATIENCE = 45.0  # seconds


def sum_of_ranks(launch: Launch) -> int:
    """Let the whole job add up its ranks, on the CPU: pretend GPUs do not calculate."""
    dist.init_process_group("gloo", rank=launch.rank, world_size=launch.world_size, timeout=timedelta(seconds=PATIENCE))
    ranks = torch.tensor([launch.rank])
    dist.all_reduce(ranks)
    dist.barrier()  # gloo may abort a worker whose peer has left
    dist.destroy_process_group()
    return int(ranks)


def wait_for_all(folder: Path, workers: int) -> None:
    end = time.monotonic() + PATIENCE
    while len(list(folder.glob("*.json"))) < workers and time.monotonic() < end:
        time.sleep(0.1)


def write(report: dict[str, object], folder: Path) -> None:
    name = f"{report['host']}-{os.getpid()}"
    (folder / f"{name}.new").write_text(json.dumps(report))
    (folder / f"{name}.new").rename(folder / f"{name}.json")


def main() -> None:
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    report: dict[str, object] = {"host": socket.gethostname(), "mask": os.environ.get("CUDA_VISIBLE_DEVICES")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", safedev.SafedevWarning)
        try:
            launch = detect_launch()
            assert launch is not None
            report |= {name: getattr(launch, name) for name in ("launcher", "local_rank", "rank", "world_size")}
            report["node_rank"] = os.environ.get("GROUP_RANK") or report["host"]
            device = safedev.set_device()
            report["device"] = str(device)
            if device.type == "cuda":
                report["current"] = torch.cuda.current_device()
                report["gpu"] = torch.cuda.get_device_properties(device).pci_bus_id
            report["sum"] = sum_of_ranks(launch)
        except safedev.InvalidDeviceError as error:
            report["error"] = str(error)
            report["codes"] = [finding.code for finding in error.diagnosis.findings]
            raise
        finally:
            report["warnings"] = [
                str(entry.message) for entry in caught if issubclass(entry.category, safedev.SafedevWarning)
            ]
            write(report, folder)
            wait_for_all(folder, workers)


if __name__ == "__main__":
    main()
