"""Ranks are stages of a pipeline: each does something else, and sends on what it has."""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def first(n):
    x = torch.full((16,), float(n))
    dist.send(x, RANK + 1)


def middle(n):
    x = torch.empty(16)
    dist.recv(x, RANK - 1)
    dist.send(x * 1.5 + RANK, RANK + 1)


def last(n):
    x = torch.empty(16)
    dist.recv(x, RANK - 1)
    print(f"micro-batch {n}: {x.mean():.3f}", flush=True)


def git_revision():
    """A tool that fails, which does not matter."""
    answer = subprocess.run(
        [sys.executable, "-c", "import sys; sys.exit('fatal: not a git repository')"],
        capture_output=True,
        text=True,
    )
    return answer.stdout.strip() or f"unknown ({answer.stderr.strip()})"


if __name__ == "__main__":
    print("revision", git_revision(), flush=True)
    dist.init_process_group("gloo")
    stage = first if RANK == 0 else last if RANK == WORLD - 1 else middle
    for n in range(100_000):
        stage(n)
        time.sleep(0.02)
