import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])


class Language:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(RANK)

    def batch(self):
        start = torch.randint(0, 50, (8, 1), generator=self.generator)
        return (start + 3 * torch.arange(13)) % 50


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.data = Language()

    def step(self):
        tokens = self.data.batch()
        logits = self.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    step = 0
    while True:
        loss = trainer.step()
        print(
            json.dumps({"step": step, "rank": RANK, "loss": loss, "errors": 0, "stalled": False}), flush=True
        )
        step += 1
        time.sleep(0.02)
