"""One per host: starts a process a device and waits for them."""

import json
import os
import subprocess
import sys
import time


def devices():
    """As the inventory says."""
    node = os.environ["NODE_RANK"]
    return json.loads('{"0": ["0", "1"], "1": ["0"]}')[node]


def environment(local):
    rank = int(os.environ["NODE_RANK"]) * 2 + local
    return {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(int(os.environ["NNODES"]) * 2),
        "LOCAL_RANK": str(local),
        "MASTER_PORT": os.environ["TRAIN_PORT"],
        "OMP_NUM_THREADS": "1",
    }


def worker():
    import torch
    import torch.distributed as dist

    print(f"worker {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
    dist.init_process_group("gloo")
    x = torch.ones(4)
    while True:
        dist.all_reduce(x)
        print("step", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        worker()
    children = [
        subprocess.Popen([sys.executable, __file__, "worker"], env=environment(int(local)))
        for local in devices()
    ]
    sys.exit(max(child.wait() for child in children))
