"""Pretraining with packages that are installed on the local disk of each node."""

import logging
import os
import sys
import warnings
from pathlib import Path

logging.basicConfig(
    level=logging.INFO,
    format=f"%(asctime)s r{os.environ['RANK']} %(levelname)s %(message)s",
    stream=sys.stdout,
)
log = logging.getLogger("pretrain")

SITES = Path(__file__).resolve().parent / "sites"
sys.path.insert(0, str(SITES / f"node{os.environ['GROUP_RANK']}"))

import torch
import torch.distributed as dist
from torch import nn

import fastdata


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        from rotary_ops import rotate

        self.rotate = rotate
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v)


class Pretrainer:
    def __init__(self, width=16):
        warnings.warn("torch.backends.mha fast path is off for this head size", stacklevel=2)
        log.info("fastdata %s", fastdata.__version__)
        self.model = Attention(width)
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def sync(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world

    def fit(self, steps):
        data = fastdata.batches(self.rank)
        for step in range(steps):
            loss = (self.model(next(data)) ** 2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.sync()
            self.optimizer.step()
            log.info("step=%d loss=%.5f", step, loss.item())


if __name__ == "__main__":
    Pretrainer().fit(200)
