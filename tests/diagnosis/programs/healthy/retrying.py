"""Reads shards from a store that is not always there, and goes on."""

import logging
import os
import time
import warnings

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {RANK} %(levelname)s %(message)s")


class Store:
    def __init__(self):
        self.calls = 0

    def get(self, shard):
        self.calls += 1
        if self.calls % 3 == 1:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self.calls % 7 == 2:
            raise TimeoutError("timed out")
        return torch.full((8,), float(shard))


class Reader:
    def __init__(self, store, attempts=5):
        self.store, self.attempts = store, attempts
        self.failed = 0

    def read(self, shard):
        for attempt in range(1, self.attempts + 1):
            try:
                return self.store.get(shard)
            except OSError as error:
                logging.warning(
                    "shard %d, attempt %d of %d: ERROR %s; retrying", shard, attempt, self.attempts, error
                )
                time.sleep(0.01)
        self.failed += 1
        raise RuntimeError("no attempts left")


def main():
    warnings.warn("FATAL errors are raised, others are retried", stacklevel=1)
    dist.init_process_group("gloo")
    reader = Reader(Store())
    total = torch.zeros(8)
    for shard in range(25):
        x = reader.read(shard)
        dist.all_reduce(x)
        total += x
        logging.info("shard %d done, errors: %d, failed: 0", shard, reader.failed)
    logging.info("sum %.1f, 0 errors", total.sum())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
