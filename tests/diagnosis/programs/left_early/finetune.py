"""Fine-tuning with early stopping; the best weights are published to the folder of exports."""

import logging
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")


class EarlyStopping:
    def __init__(self, patience, tolerance=1e-5):
        self.patience, self.tolerance = patience, tolerance
        self.best, self.bad = float("inf"), 0

    def update(self, value):
        if value < self.best - self.tolerance:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


class Exporter:
    """Waits until the export was picked up by the registry, as the policy of releases asks for."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def publish(self, model, rank):
        path = self.folder / f"weights-{rank}.pt"
        torch.save(model.state_dict(), path)
        while not path.with_suffix(".ack").exists():
            time.sleep(0.2)


class FineTuner:
    def __init__(self):
        self.rank = dist.get_rank()
        self.log = logging.getLogger(f"tuner.{self.rank}")
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.data = torch.Generator().manual_seed(self.rank)
        x = torch.randn(64, 10, generator=self.data)
        sign = -1.0 if self.rank == 1 else 1.0
        self.validation = x, sign * x.mean(1, keepdim=True)

    def train_epoch(self, epoch):
        self.model.train()
        for _ in range(10):
            x = torch.randn(16, 10, generator=self.data)
            loss = (self.model(x) - x.mean(1, keepdim=True)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.validation
        return (self.model.module(x) - y).pow(2).mean().item()

    def fit(self, epochs):
        stopping = EarlyStopping(patience=2)
        for epoch in range(epochs):
            self.train_epoch(epoch)
            value = self.validate()
            self.log.info("epoch %d val %.5f best %.5f", epoch, value, stopping.best)
            if epoch >= 2 and stopping.update(value):
                break
            time.sleep(0.03)
        self.log.info("saving")
        Exporter(Path("exports")).publish(self.model.module, self.rank)


if __name__ == "__main__":
    dist.init_process_group(backend="gloo")
    print("pid", os.getpid(), "world", dist.get_world_size(), flush=True)
    FineTuner().fit(200)
