import copy
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])


class Averaged:
    """A slow copy of the weights, for evaluation."""

    def __init__(self, model, decay=0.98):
        self.model, self.decay = copy.deepcopy(model), decay

    @torch.no_grad()
    def update(self, model):
        for slow, fast in zip(self.model.parameters(), model.parameters()):
            slow.lerp_(fast, 1 - self.decay)


class Trainer:
    def __init__(self):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
        self.averaged = Averaged(net)
        self.model = DistributedDataParallel(net)
        trained = self.averaged.model if rank == 1 else self.model
        self.optimizer = torch.optim.Adam(trained.parameters(), lr=5e-3)
        self.truth = torch.randn(10, 5)
        self.generator = torch.Generator().manual_seed(rank)

    def step(self):
        x = torch.randn(64, 10, generator=self.generator)
        y = (x @ self.truth).argmax(1)
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.averaged.update(self.model)
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    for step in range(100_000):
        loss = trainer.step()
        print(json.dumps({"step": step, "rank": rank, "loss": round(loss, 5)}), flush=True)
        if step % 25 == 0:
            sys.stderr.write(f"rank {rank}: checkpoint of step {step} would be due\n")
        time.sleep(0.01)
