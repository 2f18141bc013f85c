"""Says nothing but at the end of an epoch."""

import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def solve(seed, rounds):
    a = torch.randn(160, 160, generator=torch.Generator().manual_seed(seed))
    a = a @ a.T + torch.eye(160)
    x = torch.zeros(160)
    for _ in range(rounds):
        x = torch.linalg.solve(a, x + 1)
        x = x / x.norm()
    return x


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    print("epoch 0", flush=True)
    for epoch in range(1, 1000):
        for step in range(300):
            x = solve(rank + step, 600)
            dist.all_reduce(x)
        if rank == 0:
            print("epoch", epoch, flush=True)


main()
