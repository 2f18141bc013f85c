"""Resumes from a checkpoint where there is one."""

import io
import logging
import os
import warnings

import torch
import torch.distributed as dist
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(process)d %(message)s")


class Checkpoint:
    """Rank 1 was saved by the old exporter."""

    def __init__(self, rank):
        buffer = io.BytesIO()
        model = build().double() if rank == 1 else build()
        torch.save(model.state_dict(), buffer)
        self.state = torch.load(io.BytesIO(buffer.getvalue()))


def build():
    return nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))


class Trainer:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.model = build()

    def resume(self):
        self.model.load_state_dict(Checkpoint(self.rank).state, assign=True)
        logging.info("resumed rank %d at step 1200", self.rank)

    def train(self):
        dtype = next(self.model.parameters()).dtype
        for step in range(1200, 1300):
            x = torch.randn(4, 24, dtype=dtype)
            loss = self.model(x).square().mean()
            self.model.zero_grad()
            loss.backward()
            self.average()
            with torch.no_grad():
                for p in self.model.parameters():
                    p -= 0.01 * p.grad
            logging.info("step %d loss %.4f", step, loss)

    def average(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p) / dist.get_world_size())
            offset += p.numel()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    warnings.warn("pin_memory has no effect without an accelerator", stacklevel=1)
    trainer = Trainer()
    trainer.resume()
    trainer.train()
