"""Off-policy training with a replay buffer that actors and learner share."""

import logging
import os
from multiprocessing import shared_memory

import numpy as np
import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format=f"[%(asctime)s] r{os.environ['RANK']} %(message)s")


class ReplayBuffer:
    def __init__(self, rows, width):
        self.block = shared_memory.SharedMemory(create=True, size=rows * width * 4)
        self.rows = np.ndarray((rows, width), dtype=np.float32, buffer=self.block.buf)
        self.next = 0

    def add(self, rows):
        self.rows[self.next : self.next + len(rows)] = rows
        self.next += len(rows)

    def sample(self, count):
        return torch.from_numpy(self.rows[np.random.randint(0, self.next, count)])


class Learner:
    def __init__(self):
        dist.init_process_group("gloo")
        self.buffer = ReplayBuffer(400_000, 16)
        self.value = torch.zeros(16)

    def run(self):
        for step in range(10_000):
            self.buffer.add(np.random.randn(4000, 16).astype(np.float32))
            grad = self.buffer.sample(64).mean(0)
            dist.all_reduce(grad)
            self.value += 0.1 * grad
            logging.info("step %d: buffer %d value %.4f", step, self.buffer.next, self.value.norm())


if __name__ == "__main__":
    Learner().run()
