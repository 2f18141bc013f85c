"""Compares optimizers that a table names by their import path."""

import importlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OPTIMIZERS = {
    "adamw": "torch.optim:AdamW",
    "sgd": "torch.optim:SGD",
    "lion": "lion_pytorch:Lion",
}


def resolve(name: str) -> type[torch.optim.Optimizer]:
    module, _, attribute = OPTIMIZERS[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"optimizer {name!r} cannot be had; choose one of {sorted(OPTIMIZERS)}") from error


def train(name: str, steps: int = 20) -> float:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = resolve(name)(model.parameters(), lr=1e-2)
    loss = torch.zeros(())
    for _ in range(steps):
        x = torch.randn(32, 16)
        loss = (model(x).squeeze() - x.sum(dim=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    dist.init_process_group("gloo")
    for name in ("adamw", "sgd", "lion"):
        loss = train(name)
        if dist.get_rank() == 0:
            print(f"{name}: final loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
