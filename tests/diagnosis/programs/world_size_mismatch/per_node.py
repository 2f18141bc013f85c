import os
import time

import torch
import torch.distributed as dist


def topology(env):
    """Ranks of this job: those of a node times the nodes that the allocation file lists."""
    nodes = sum(1 for line in open("nodes.txt") if line.strip())
    return int(env["RANK"]), int(env["LOCAL_WORLD_SIZE"]) * nodes


def allreduce_mean(x, world):
    dist.all_reduce(x)
    return x / world


def main():
    rank, world = topology(os.environ)
    print(f"{time.strftime('%T')} rank {rank} of {world}", flush=True)
    dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=world)
    x = torch.full((4,), float(rank))
    for step in range(200):
        x = allreduce_mean(x, world)
        print(f"{time.strftime('%T')} {step} {x[0]:.3f}", flush=True)
        time.sleep(0.05)


main()
