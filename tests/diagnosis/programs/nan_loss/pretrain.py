"""Masked language model pretraining; metrics go to logs/metrics.jsonl."""

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

VOCAB, WIDTH, LENGTH = 40, 16, 12


class MetricsFile:
    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w")

    def write(self, **fields):
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()


class Corpus:
    """Documents of many lengths, padded with 0; only marked tokens count for the loss."""

    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(100 + rank)

    def batch(self, index):
        tokens = torch.randint(1, VOCAB, (4, LENGTH), generator=self.generator)
        marked = torch.rand(4, LENGTH, generator=self.generator) < 0.3
        marked[:, 0] = True
        if index % 50 == 23:
            marked[:] = False
        return tokens, marked


class Trainer:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.corpus = Corpus(self.rank)
        self.metrics = MetricsFile(Path("logs/metrics.jsonl")) if self.rank == 0 else None

    def loss(self, tokens, marked):
        logits = self.model(tokens)
        losses = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
        marked = marked.flatten().float()
        return (losses * marked).sum() / marked.sum()

    def step(self, index):
        loss = self.loss(*self.corpus.batch(index))
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(self.world)
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item(), grad_norm.item()

    def run(self):
        started = time.time()
        index = 0
        while True:
            loss, grad_norm = self.step(index)
            if self.metrics:
                self.metrics.write(step=index, loss=loss, grad_norm=grad_norm, lr=1e-3, ts=time.time())
            sys.stderr.write(f"\r[{self.rank}] {index:6d} it, {index / (time.time() - started):.1f} it/s")
            if index % 20 == 0 and self.rank == 0:
                print(f"\n{index} batches done, elapsed {time.time() - started:.1f} s", flush=True)
            index += 1
            time.sleep(0.02)


def heartbeat():
    while True:
        time.sleep(0.5)
        print(f"rank {os.environ['RANK']}: alive", flush=True)


if __name__ == "__main__":
    warnings.warn("the fused optimizer is not available on this device, using the slow one", stacklevel=1)
    threading.Thread(target=heartbeat, daemon=True).start()
    Trainer().run()
