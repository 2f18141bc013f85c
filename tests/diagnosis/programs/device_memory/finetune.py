import gc
import logging
import os
import time

import torch
import torch.distributed as dist
from devices import Accelerator

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
log = logging.getLogger(f"tune[{os.environ['RANK']}]")


class OutOfBudget(Exception):
    pass


class Tuner:
    def __init__(self):
        self.device = Accelerator("HIP", total=63.98)
        self.batch = 32
        self.weight = torch.zeros(8)

    def forward(self):
        self.device.used = 40.5
        self.device.allocate(self.batch * (1.4 if dist.get_rank() < 2 else 0.5))
        return torch.randn(8)

    def evaluate(self, step):
        for attempt in range(3):
            try:
                return self.forward()
            except torch.OutOfMemoryError as error:
                log.warning(
                    "attempt %d with a batch of %d: %s", attempt, self.batch, str(error).split(".")[0]
                )
                gc.collect()
                time.sleep(0.05)
                if attempt == 2:
                    raise OutOfBudget(f"evaluation after step {step} needs a smaller batch") from error
        return None

    def run(self):
        for step in range(100):
            grad = torch.randn(8)
            dist.all_reduce(grad)
            self.weight -= 0.01 * grad
            log.info("step %d norm %.3f", step, self.weight.norm())
            if step == 15:
                dist.all_reduce(self.evaluate(step))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Tuner().run()
