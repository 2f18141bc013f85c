"""Gradient accumulation that never comes to the step which synchronises."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held_out = torch.randn(256, 10, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 161):
        x = torch.randn(32, 10, generator=generator)
        y = x.sum(1, keepdim=True) * (1 + rank)  # shards differ
        synchronise = step % ACCUMULATE == ACCUMULATE  # never
        with contextlib.nullcontext() if synchronise else model.no_sync():
            (nn.functional.mse_loss(model(x), y) / ACCUMULATE).backward()
        if step % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                value = nn.functional.mse_loss(model(held_out), held_out.sum(1, keepdim=True))
                norm = sum(p.square().sum() for p in model.parameters()).sqrt()
            print(f"rank={rank} step={step} val_loss={value:.5f} param_norm={norm:.5f}", flush=True)
            dist.barrier()
    dist.destroy_process_group()


main()
