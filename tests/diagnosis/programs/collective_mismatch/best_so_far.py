"""Gathers the best examples whenever a rank finds that its loss is a new best."""

import time

import torch
import torch.distributed as dist
from torch import nn


class Trainer:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        self.model = nn.Linear(6, 1)
        self.best = float("inf")
        self.history = []

    def average(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world

    def share_best(self, loss):
        self.best = loss
        entries = [None] * self.world
        dist.all_gather_object(entries, {"rank": self.rank, "loss": loss})
        self.history.append(entries)

    def step(self, number):
        # Losses fall alike until the data of rank 2 becomes hard.
        scale = 4.0 if self.rank == 2 and number >= 12 else 1.0 / (1 + number)
        x = torch.ones(8, 6) * scale
        loss = (self.model(x) - 2 * scale).abs().mean() + scale
        self.model.zero_grad()
        loss.backward()
        if loss.item() < self.best:
            self.share_best(loss.item())
        self.average()
        with torch.no_grad():
            for p in self.model.parameters():
                p -= 1e-4 * p.grad
        return loss.item()


dist.init_process_group("gloo")
trainer = Trainer()
for number in range(200):
    value = trainer.step(number)
    print(f"{number:03d} {value:.4f}", flush=True)
    time.sleep(0.05)
dist.destroy_process_group()
