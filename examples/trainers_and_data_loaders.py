"""Trainers and data loaders on the same hosts, controlled by one ordinary Python program.

    python examples/trainers_and_data_loaders.py                      # on this machine alone
    python examples/trainers_and_data_loaders.py --mesh NAME          # on the hosts of an allocated mesh
    milkweed controller NAME examples/trainers_and_data_loaders.py    # the same, as a run of that mesh

Two meshes of procs lie on one mesh of hosts. Each trainer is given the loaders, and asks one of them for its
batches: those go from proc to proc, and this program never sees them. What it sees are losses and gradients:
it averages them, and tells all trainers the mean.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from milkweed.runtime import (
    Actor,
    ActorMesh,
    Future,
    HostMesh,
    MilkweedError,
    attach,
    current_rank,
    endpoint,
    this_host,
)

FEATURES = 16
BATCH = 256

# Inputs and targets. Arrays cross between procs from where they lie, beside the message. One-sided memory
# goes here: a loader then hands out an RDMABuffer of each array, from which trainers read when they want.
Batch = tuple[np.ndarray, np.ndarray]


class DataLoader(Actor):
    """One shard of the data: noisy values of a function that the trainers are to learn."""

    def __init__(self, noise: float) -> None:
        self._noise = noise
        self._truth = np.random.default_rng(0).normal(size=(FEATURES, 1)) / FEATURES**0.5
        self._random = np.random.default_rng([1, current_rank().rank])

    @endpoint
    async def next_batch(self) -> Batch:
        inputs = self._random.normal(size=(BATCH, FEATURES))
        targets = np.sin(inputs @ self._truth) + self._noise * self._random.normal(size=(BATCH, 1))
        return inputs.astype(np.float32), targets.astype(np.float32)


class Trainer(Actor):
    """One copy of the model. All begin alike and take the same steps, so they stay alike."""

    def __init__(self, loaders: ActorMesh, lr: float) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=lr, momentum=0.9)
        shards = loaders.flatten("shards")
        self._loader = shards.slice(shards=current_rank().rank % len(shards))
        self._batch: Future[Batch] = self._loader.next_batch.call_one()

    @endpoint
    def gradient(self) -> tuple[float, np.ndarray]:
        """Loss and gradient of the next batch; the one after it is on its way meanwhile."""
        inputs, targets = map(torch.from_numpy, self._batch.get())
        self._batch = self._loader.next_batch.call_one()
        loss = nn.functional.mse_loss(self._model(inputs), targets)
        self._optimizer.zero_grad()
        loss.backward()
        return loss.item(), _flat([parameter.grad for parameter in self._model.parameters()])

    @endpoint
    def step(self, gradient: np.ndarray) -> None:
        parameters = list(self._model.parameters())
        parts = torch.from_numpy(gradient).split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        self._optimizer.step()

    @endpoint
    def weights(self) -> np.ndarray:
        return _flat(list(self._model.parameters()))


def _flat(tensors: Sequence[torch.Tensor | None]) -> np.ndarray:
    return torch.cat([tensor.detach().flatten() for tensor in tensors if tensor is not None]).numpy()


def find_hosts(mesh: str | None) -> HostMesh:
    """The mesh that is named, or that we were started on; else this machine."""
    try:
        return attach(mesh)
    except MilkweedError as error:
        if error.code != "not_attached":
            raise
        return this_host()


async def train(hosts: HostMesh, steps: int, lr: float) -> None:
    loader_procs, trainer_procs = await asyncio.gather(
        hosts.spawn_procs(per_host={"loaders": 1}, name="loaders"),
        hosts.spawn_procs(per_host={"trainers": 2}, name="trainers"),
    )
    loaders = await loader_procs.spawn("loaders", DataLoader, noise=0.05)
    trainers = await trainer_procs.spawn("trainers", Trainer, loaders, lr=lr)
    print(f"hosts {len(hosts)}, data loaders {len(loaders)}, trainers {len(trainers)}", flush=True)
    for step in range(steps):
        losses, gradients = zip(*(await trainers.gradient.call()).values(), strict=True)
        trainers.step.broadcast(np.mean(gradients, axis=0))
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step:3d} loss {np.mean(losses):.4f}", flush=True)
    first, *others = (await trainers.weights.call()).values()
    assert all(np.array_equal(first, other) for other in others), "the trainers' models drifted apart"
    print("all models are alike", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trainers and data loaders on the same hosts.")
    parser.add_argument("--mesh", help="id or name of an allocated mesh")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.05)
    options = parser.parse_args()
    asyncio.run(train(find_hosts(options.mesh), options.steps, options.lr))


if __name__ == "__main__":
    main()
