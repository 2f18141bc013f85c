import logging
import os
import pathlib
import time

import torch
import torch.distributed as dist

logging.basicConfig(format="%(levelname)s:%(message)s", level=logging.INFO)


class ShardReader:
    def __init__(self, rank):
        self.root = pathlib.Path(os.environ.get("DATA_ROOT", "shards"))
        self.rank = rank

    def open(self):
        for attempt in range(3):
            try:
                return (self.root / f"part-{self.rank}.txt").read_text()
            except OSError as error:
                logging.warning("attempt %d to read shard %d: %s", attempt + 1, self.rank, error.strerror)
                time.sleep(0.1)
        return (self.root / f"part-{self.rank}.txt").read_text()


class Pretraining:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.counts = torch.zeros(128)

    def run(self):
        text = ShardReader(self.rank).open()
        for step, start in enumerate(range(0, 4000, 8)):
            piece = (text * 200)[start : start + 8]
            counts = torch.bincount(torch.tensor([ord(c) for c in piece]), minlength=128).float()
            dist.all_reduce(counts)
            self.counts += counts
            logging.info("rank %d step %d seen %d", self.rank, step, int(self.counts.sum()))
            time.sleep(0.02)


if __name__ == "__main__":
    Pretraining().run()
