import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooks import Logs, WeightChecksums


class Trainer:
    def __init__(self, hooks):
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 2)))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.hooks = hooks

    def train(self, steps):
        for step in range(steps):
            x = torch.randn(8, 12)
            loss = nn.functional.cross_entropy(self.model(x), (x.sum(1) > 0).long())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            for hook in self.hooks:
                hook.after_step(self, step, loss.item())


def ping():
    while True:
        time.sleep(1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for name in ("metrics", "prefetch"):
        threading.Thread(target=ping, name=name, daemon=True).start()
    Trainer([Logs(), WeightChecksums()]).train(100_000)
