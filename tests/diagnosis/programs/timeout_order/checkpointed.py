"""Rank 0 writes the checkpoint; the others wait for it at a barrier that names who is late."""

import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s <{RANK}> %(message)s")


class Storage:
    """The object store: each part is confirmed before the next is sent."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def upload(self, name, parts):
        for n in range(parts):
            (self.folder / f"{name}.{n:03d}").write_bytes(os.urandom(1024))
            time.sleep(0.15)
            if n % 10 == 0:
                logging.info("uploaded part %d of %d", n, parts)


class Trainer:
    def __init__(self):
        dist.init_process_group("gloo", timeout=timedelta(minutes=20))
        self.weight = torch.zeros(64)
        self.storage = Storage(Path("uploads"))

    def checkpoint(self, step):
        if RANK == 3:
            self.storage.upload(f"step{step}", parts=60)
        dist.monitored_barrier(timeout=timedelta(seconds=2.5), wait_all_ranks=True)

    def run(self):
        for step in range(100):
            grad = torch.randn(64)
            dist.all_reduce(grad)
            self.weight -= 0.1 * grad
            if step == 12:
                self.checkpoint(step)
            logging.info("step %d", step)


if __name__ == "__main__":
    Trainer().run()
