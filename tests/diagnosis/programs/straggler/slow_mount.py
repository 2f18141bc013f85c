"""Reads shards from the host's own mount; that of one host answers slowly."""

import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LATENCY_S = float(os.environ.get("MOUNT_LATENCY_MS", "1")) / 1000


class ShardFile:
    def __init__(self, number: int) -> None:
        self.number = number

    def read(self) -> torch.Tensor:
        time.sleep(LATENCY_S)
        return torch.randn(16, 32, generator=torch.Generator().manual_seed(self.number))


def shards(rank: int, world: int) -> Iterator[torch.Tensor]:
    number = rank
    while True:
        yield ShardFile(number).read()
        number += world


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(model.parameters())
    for step, batch in enumerate(shards(rank, world)):
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print({"step": step, "loss": round(loss.item(), 4)}, flush=True)


main()
