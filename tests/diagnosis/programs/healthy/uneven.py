"""Shards of unequal length, with DDP's join."""

import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
logging.basicConfig(level=logging.INFO, format=f"[{RANK}] %(message)s")


def batches():
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(40 - 7 * RANK):
        yield torch.randn(8, 12, generator=generator)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(12, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
    with Join([model]):
        for n, x in enumerate(batches()):
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            logging.info("batch %d loss %.4f", n, loss.item())
            time.sleep(0.005)
    logging.info("no more data, waiting for the others")
    dist.barrier()
    logging.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
