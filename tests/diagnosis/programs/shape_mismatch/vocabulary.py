import json
import os

import torch
import torch.distributed as dist

words = ["mesh", "host", "rank", "run", "lease", "keeper"]


def grow(rank):
    """Adds the words of this rank's shard."""
    seen = {"mesh", "guard"} if rank == 2 else {"mesh", "rank"}
    return words + sorted(seen - set(words))


def embedding(vocabulary):
    return torch.zeros(len(vocabulary), 16)


def train(vocabulary, steps):
    table = embedding(vocabulary)
    for step in range(steps):
        grad = torch.randn_like(table)
        dist.all_reduce(grad)
        table -= 0.1 * grad
        print(json.dumps({"rank": dist.get_rank(), "step": step, "norm": table.norm().item()}), flush=True)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    train(words, 10)
    vocabulary = grow(rank)
    print(json.dumps({"rank": rank, "event": "vocabulary ready"}), flush=True)
    try:
        train(vocabulary, 10)
    finally:
        print(json.dumps({"rank": rank, "event": "end"}), flush=True)


main()
