"""When training is over rank 0 writes a long report alone; the other ranks have ended."""

import random
import sys

import torch
import torch.distributed as dist


def bootstrap(values, rounds):
    random_ = random.Random(0)
    means = []
    for number in range(rounds):
        picked = random_.choices(values, k=len(values))
        means.append(sum(picked) / len(picked))
        if number % 500 == 0:
            print(f"\rbootstrap {number}/{rounds}", end="", file=sys.stderr)
    means.sort()
    return means[len(means) // 20], means[-len(means) // 20]


def main():
    dist.init_process_group("gloo")
    rank, losses = dist.get_rank(), []
    weight = torch.zeros(4)
    for step in range(200):
        x = torch.randn(8, 4)
        error = x @ weight - x.sum(1)
        grad = error @ x / 8
        dist.all_reduce(grad)
        weight -= 0.02 * grad
        losses.append(error.square().mean().item())
    dist.barrier()
    dist.destroy_process_group()
    if rank != 0:
        return
    print("writing the report", flush=True)
    print("interval", bootstrap(losses, 400_000))


main()
