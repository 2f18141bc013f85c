import fcntl
import json
import os
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])


class Cache:
    """Compiled kernels, shared by the ranks of a host under a file lock."""

    def __init__(self, path):
        self.file = open(path, "a+")

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_):
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def entries(self):
        self.file.seek(0)
        return [json.loads(line) for line in self.file]

    def add(self, **entry):
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()


def compile_kernel(step):
    cache = Cache("kernels.jsonl")
    with cache:
        known = any(entry["step"] == step for entry in cache.entries())
        if not known:
            cache.add(step=step, rank=RANK)


def warm_up(open_caches):
    cache = Cache("kernels.jsonl")
    cache.__enter__()
    open_caches.append(cache)


def main():
    dist.init_process_group("gloo")
    kept = []
    x = torch.ones(8)
    for step in range(1000):
        if step % 5 == 0 and RANK == 1:
            compile_kernel(step)
        if step == 18 and RANK == 0:
            warm_up(kept)
        dist.all_reduce(x)
        x /= dist.get_world_size()
        print(f"r{RANK} s{step}", flush=True)
        time.sleep(0.02)


main()
