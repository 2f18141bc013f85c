import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class SlowDisk:
    """Writes as fast as the storage takes it."""

    def __init__(self, path):
        self.file = Path(path).open("wb", buffering=0)

    def write(self, data):
        for start in range(0, len(data), 4096):
            self.file.write(data[start : start + 4096])
            time.sleep(0.04)


def save(model, path):
    disk = SlowDisk(path)
    for name, value in model.state_dict().items():
        disk.write(json.dumps({"name": name, "shape": list(value.shape)}).encode() + b"\n")
        disk.write(value.numpy().tobytes())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8)))
    for step in range(1000):
        x = model(torch.randn(2, 512)).mean().reshape(1).detach()
        dist.all_reduce(x)
        if step == 5:
            print(f"rank {rank}: checkpoint of step {step}", flush=True)
            save(model, f"step-{step}-{rank}.bin")
        print(f"rank {rank}: step {step}", flush=True)


main()
