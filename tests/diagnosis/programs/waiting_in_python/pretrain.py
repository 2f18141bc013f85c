import os
import sys
import threading
import time

import torch
import torch.distributed as dist

from metrics import Board


class Heartbeat(threading.Thread):
    def __init__(self, board):
        super().__init__(daemon=True, name="heartbeat")
        self.board = board

    def run(self):
        while True:
            time.sleep(0.6)
            sys.stderr.write(f"\rheartbeat of {os.getpid()}\n")


class Trainer:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.weight = torch.zeros(16)
        self.board = Board()
        Heartbeat(self.board).start()

    def step(self, n):
        grad = torch.randn(16) * (25.0 if (self.rank, n) == (0, 60) else 1.0)
        norm = grad.norm().item()
        dist.all_reduce(grad)
        self.weight -= 0.01 * grad
        self.board.add("grad_norm", norm)

    def fit(self):
        for n in range(100_000):
            self.step(n)
            if n % 10 == 5:
                print(f"[{self.rank}] step {n:5d} grad norm {self.board.mean('grad_norm'):.3f}", flush=True)
            time.sleep(0.005)


if __name__ == "__main__":
    Trainer().fit()
