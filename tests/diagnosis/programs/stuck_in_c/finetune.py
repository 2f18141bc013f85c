import logging
import os
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from io_utils import fetch_index, prepare

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
rank = int(os.environ["RANK"])
folder = tempfile.mkdtemp(prefix=f"index-{rank}-")


def refresh(epoch):
    # The second shard has the streaming index, the others a plain file.
    path = prepare(os.path.join(folder, "index"), f"epoch {epoch}", named_pipe=rank == 1 and epoch >= 3)
    return fetch_index(path)


def remove_old(path):
    if os.path.exists(path):
        os.remove(path)


class Tuner:
    def __init__(self):
        dist.init_process_group("gloo")
        self.model = DistributedDataParallel(nn.Linear(4, 4))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def epoch(self, n):
        remove_old(os.path.join(folder, "index"))
        index = refresh(n)
        for _ in range(5):
            loss = self.model(torch.randn(2, 4)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        logging.info("rank %d epoch %d, index of %d bytes, loss %.3f", rank, n, len(index), loss.item())


if __name__ == "__main__":
    threading.Thread(target=lambda: time.sleep(10**6), daemon=True, name="janitor").start()
    tuner = Tuner()
    for n in range(1000):
        tuner.epoch(n)
