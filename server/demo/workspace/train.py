"""Trains a small next-byte model on the source of Python's standard library, data-parallel over gloo."""

import sysconfig
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

CONTEXT = 16
BATCH = 64
BATCHES = 171


def load_batches():
    """The corpus as BATCHES pairs of contexts and next bytes, the same on every rank."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py"))[:40])
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, len(data) - CONTEXT - 1, (BATCHES, BATCH), generator=generator)
    windows = data[starts.unsqueeze(-1) + torch.arange(CONTEXT + 1)]
    return list(zip(windows[..., :CONTEXT], windows[..., CONTEXT], strict=True))


def average_gradients(model, world_size):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size


def train(model, optimizer, batches, rank, world_size):
    steps = (len(batches) - rank + world_size - 1) // world_size
    for step in range(steps):
        context, target = batches[step * world_size + rank]
        loss = nn.functional.cross_entropy(model(context), target)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world_size)
        optimizer.step()
        if rank == 0 and step % 6 == 0:
            print(f"step {step:3d} loss {loss.item():.3f}")
    return loss.detach()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(256, 32), nn.Flatten(), nn.Linear(CONTEXT * 32, 256), nn.ReLU(), nn.Linear(256, 256)
    )
    # Before the process group: modules that the optimizer imports would keep an open group, and its threads,
    # beyond its end.
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    loss = train(model, optimizer, load_batches(), rank, world_size)
    dist.barrier()
    dist.all_reduce(loss)
    if rank == 0:
        print(f"finished: mean loss {loss.item() / world_size:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
