"""Training on hosts that a scheduler may take for a while: it tells so by a file."""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
RANK = int(os.environ["RANK"])


class Preemption(threading.Thread):
    def __init__(self, folder):
        super().__init__(name="preemption", daemon=True)
        self.request = folder / f"yield-{RANK}"

    def run(self):
        while True:
            if self.request.exists():
                self.request.unlink()
                signal.raise_signal(signal.SIGSTOP)
            time.sleep(0.05)


class Trainer:
    def __init__(self, folder):
        self.folder = folder
        dist.init_process_group("gloo")
        Preemption(folder).start()

    def run(self):
        x = torch.ones(16)
        for step in range(100_000):
            dist.all_reduce(x)
            x /= dist.get_world_size()
            if step == 40 and RANK == 0:
                (self.folder / "yield-3").touch()
            if step % 4 == 0:
                logging.info("rank %d step %d", RANK, step)
            time.sleep(0.02)


if __name__ == "__main__":
    Trainer(Path.cwd()).run()
