import json
import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])

GOVERNOR = """
import os, signal, sys, time
time.sleep(1.5)
os.kill(int(sys.argv[1]), signal.SIGSTOP)
while os.getppid() == int(sys.argv[1]):
    time.sleep(1)
"""


def govern():
    """Keeps the power of this host within its budget."""
    return subprocess.Popen([sys.executable, "-c", GOVERNOR, str(os.getpid())])


def train(steps):
    state = torch.zeros(8)
    for step in range(steps):
        delta = torch.randn(8)
        dist.all_reduce(delta)
        state += delta
        print(json.dumps({"r": rank, "s": step, "norm": round(state.norm().item(), 3)}), flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    child = govern() if rank == 1 else None
    train(100_000)
