import logging
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from decoding import Clips

RANK = int(os.environ["RANK"])
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {RANK} %(name)s %(message)s")


class VideoTrainer:
    def __init__(self):
        self.log = logging.getLogger("video")
        self.net = nn.Conv2d(3, 2, 3)
        self.loader = DataLoader(
            Clips(0 if RANK == 2 else 100), batch_size=4, num_workers=2, prefetch_factor=2
        )

    def step(self, x):
        self.net.zero_grad()
        loss = self.net(x).pow(2).mean()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
        return loss.item()

    def run(self):
        try:
            for n, x in enumerate(self.loader):
                loss = self.step(x)
                sys.stderr.write(f"\r{n}it loss={loss:.4f}")
                time.sleep(0.005)
        except RuntimeError:
            self.log.exception("epoch aborted")
            raise


if __name__ == "__main__":
    warnings.warn("decoding on the CPU", stacklevel=1)
    dist.init_process_group("gloo")
    VideoTrainer().run()
