import json
import logging
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(levelname)s | %(message)s")


class Config:
    def __init__(self, path):
        self.values = json.loads(Path(path).read_text())

    def __getattr__(self, name):
        return self.values[name]


class Trainer:
    def __init__(self, config):
        self.config = config
        self.rank = int(os.environ["RANK"])

    def setup(self):
        world = self.config.nodes * self.config.gpus_per_node
        logging.info("rank %d: setting up %d processes", self.rank, world)
        try:
            dist.init_process_group(
                "gloo", rank=self.rank, world_size=world, timeout=timedelta(seconds=self.config.timeout_s)
            )
        except Exception:
            logging.exception("setup failed")
            raise

    def train(self):
        x = torch.ones(3)
        dist.all_reduce(x)
        logging.info("sum %s", x.tolist())


if __name__ == "__main__":
    trainer = Trainer(Config("configured.json"))
    trainer.setup()
    trainer.train()
