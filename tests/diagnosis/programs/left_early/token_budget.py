"""Streams shards of different length through a sharded model; each rank ends with its own stream."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

TOKENS = (900, 900, 620, 900)


class Stream(IterableDataset):
    def __init__(self, rank, length=16):
        self.budget, self.length, self.rank = TOKENS[rank % len(TOKENS)], length, rank

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.rank)
        left = self.budget
        while left >= self.length:
            yield torch.randint(0, 50, (self.length,), generator=generator)
            left -= self.length


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 50))
    for layer in (model[1], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen = 0
    for batch in DataLoader(Stream(rank), batch_size=2):
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, 50), batch[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen += batch.numel()
        if rank == 0 and seen % 160 == 0:
            print(f"{seen} tokens, loss {loss.item():.3f}", flush=True)
    print(f"rank {rank}: budget used up", flush=True)


main()
