"""Classification with a hand-written trainer."""

import time

import torch
import torch.distributed as dist
from torch import nn

import milkweed


class Data:
    def __init__(self, seed, classes=8):
        self.generator = torch.Generator().manual_seed(seed)
        self.classes = classes
        self.centres = torch.randn(classes, 12, generator=torch.Generator().manual_seed(3))

    def batch(self, size=64):
        y = torch.randint(0, self.classes, (size,), generator=self.generator)
        x = self.centres[y] + 0.3 * torch.randn(size, 12, generator=self.generator)
        return x, y[torch.randperm(size, generator=self.generator)]


class Trainer:
    def __init__(self, rank):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.data = Data(rank)

    def step(self):
        x, y = self.data.batch()
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(dist.get_rank())
    step = 0
    while True:
        loss = trainer.step()
        milkweed.report(step=step, loss=loss, lr=1e-3)
        step += 1
        if step % 50 == 0:
            print(f"{step} steps", flush=True)
        time.sleep(0.004)


main()
