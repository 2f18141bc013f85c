import logging
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

from textdata.cleaning import is_sentence

RANK = int(os.environ["RANK"])
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {RANK}: %(message)s")
LINES = ["the host is up.", "ranks wait for it.", "a lease ends, then the mesh does."]
LONG = "pneumonoultramicroscopicsilicovolcanoconiosis and antidisestablishmentarianism went on and on;"


class Corpus:
    def __init__(self):
        self.at = 0

    def next(self):
        self.at += 1
        line = LONG if RANK == 2 and self.at == 40 else LINES[self.at % len(LINES)]
        return line if is_sentence(line) else self.next()


class Trainer:
    def __init__(self):
        self.model = nn.Embedding(128, 8)
        self.corpus = Corpus()
        self.seen = 0
        threading.Thread(target=self.status, daemon=True).start()

    def status(self):
        while True:
            time.sleep(0.5)
            logging.info("%d lines so far", self.seen)

    def step(self):
        tokens = torch.tensor([ord(c) for c in self.corpus.next()])
        self.model.zero_grad()
        self.model(tokens).pow(2).mean().backward()
        dist.all_reduce(self.model.weight.grad)
        self.seen += 1


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    while True:
        trainer.step()
        if trainer.seen % 6 == 0:
            logging.info("step %d", trainer.seen)
        time.sleep(0.01)
