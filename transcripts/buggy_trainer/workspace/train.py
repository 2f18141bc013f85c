"""A small language model on the Python documentation, data-parallel over all ranks; the loss is a native kernel."""

import argparse
import os

import torch
import torch.distributed as dist
from pydoc_data.topics import topics
from torch import nn
from tqdm import tqdm

from fused_loss import fused_loss

CONTEXT, BATCH = 16, 64


def corpus() -> torch.Tensor:
    """A fixed part of the documentation that every Python brings along, as bytes."""
    text = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore")
    return torch.frombuffer(bytearray(text[:163_896]), dtype=torch.uint8).long()


def shard(data: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    size = len(data) // world_size
    begin, end = rank * (size + 1), (rank + 1) * size
    return data[begin:end]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(128, 32)
        self.body = nn.Sequential(nn.Linear(32 * CONTEXT, 192), nn.GELU(), nn.Linear(192, 192), nn.GELU())
        self.head = nn.Linear(192, 128)
        nn.init.normal_(self.head.weight, std=6.0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(tokens).flatten(1)))


def average_gradients(model: nn.Module, world_size: int) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--learning-rate", type=float, default=3e-3)
    args = options.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    data = shard(corpus(), rank, world_size)
    windows = data.unfold(0, CONTEXT + 1, CONTEXT)
    batches = len(windows) // BATCH
    for step in tqdm(range(batches), disable=True):
        rows = windows[step * BATCH : (step + 1) * BATCH]
        loss = fused_loss(model(rows[:, :-1]), rows[:, -1])
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world_size)
        optimizer.step()
        if rank == 0 and (step % 4 == 0 or step == batches - 1):
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"finished: {batches} steps on {world_size} ranks, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
