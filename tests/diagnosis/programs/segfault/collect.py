import logging
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

from fastops import Ring

logging.basicConfig(
    stream=sys.stderr, level=logging.INFO, format="%(asctime)s.%(msecs)03d %(threadName)s %(message)s"
)
RANK = int(os.environ["RANK"])


class Collector(threading.Thread):
    def __init__(self, ring, stride):
        super().__init__(name="collector", daemon=True)
        self.ring, self.stride = ring, stride

    def run(self):
        rows = torch.randn(32, 64)
        while True:
            self.ring.push(rows)
            self.ring.position += self.stride
            time.sleep(0.002)


class Learner:
    def __init__(self):
        dist.init_process_group("gloo")
        self.ring = Ring(torch.zeros(100_000, 64))
        Collector(self.ring, 5_000_000 if RANK == 1 else -32).start()

    def run(self):
        for step in range(100_000):
            value = self.ring.buffer[:64].mean().reshape(1)
            dist.all_reduce(value)
            if step % 20 == 0:
                logging.info("step %d value %.5f", step, value.item())
            time.sleep(0.005)


if __name__ == "__main__":
    Learner().run()
