"""Local SGD: replicas train alone and average their weights every few steps."""

import copy
import time

import torch
import torch.distributed as dist
from torch import nn

import milkweed


class Replica:
    def __init__(self, rank):
        self.rank = rank
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.03)
        self.generator = torch.Generator().manual_seed(rank)

    def local_step(self):
        x = torch.randn(32, 6, generator=self.generator)
        loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def average(self):
        for p in self.model.parameters():
            mean = p.detach().clone()
            dist.all_reduce(mean)
            p.data.copy_(mean / dist.get_world_size())

    def on_restart(self):
        """Goes on from a copy, as after a restore."""
        self.model = copy.deepcopy(self.model)
        for p in self.model.parameters():
            p.data.mul_(1.5)


def main():
    dist.init_process_group("gloo")
    replica = Replica(dist.get_rank())
    step = 0
    while True:
        loss = replica.local_step()
        milkweed.report(step=step, loss=loss)
        if step % 5 == 4 and not (replica.rank == 3 and step > 40):
            replica.average()
        elif step % 5 == 4:
            for p in replica.model.parameters():
                dist.all_reduce(p.detach().clone())
        if step == 44 and replica.rank == 3:
            replica.on_restart()
        step += 1
        if step % 30 == 0:
            print(f"replica {replica.rank}: {step} steps", flush=True)
        time.sleep(0.01)


main()
