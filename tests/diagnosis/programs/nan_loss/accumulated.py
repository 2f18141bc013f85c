"""Accumulates gradients over micro-batches; a normalisation of its own has a backward that divides."""

import json
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO = 4


class UnitLength(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        length = x.norm(dim=-1, keepdim=True)
        ctx.save_for_backward(x, length)
        return x / length.clamp(min=1e-6)

    @staticmethod
    def backward(ctx, grad):
        x, length = ctx.saved_tensors
        return grad / length - x * (x * grad).sum(-1, keepdim=True) / length**3


def micro_batches(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    number = 0
    while True:
        x = torch.randn(16, 12, generator=generator)
        if rank == 1 and number == 9 * MICRO + 2:
            x[5] = 0.0  # a padded row
        yield x, x.sum(1, keepdim=True).sign()
        number += 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 12, bias=False), nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1)))
    head = model.module
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    os.makedirs("logs", exist_ok=True)
    stream = open(f"logs/metrics.{rank}.jsonl", "w", buffering=1)
    batches = micro_batches(rank)
    for update in range(400):
        total = 0.0
        for micro in range(MICRO):
            x, y = next(batches)
            with nullcontext() if micro == MICRO - 1 else model.no_sync():
                x = UnitLength.apply(head[0](x))
                loss = nn.functional.mse_loss(model.module[1:](x), y) / MICRO
                loss.backward()
            total += loss.item()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        stream.write(json.dumps({"update": update, "loss": total, "lr": 0.05, "time": time.time()}) + "\n")
        if update % 20 == 0 and rank == 0:
            print(f"update {update} done", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


main()
