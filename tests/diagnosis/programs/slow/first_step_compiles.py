"""Before the first step all ranks wait for rank 0, which builds an extension in a child process."""

import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BUILD = """
import hashlib, time
end = time.monotonic() + 25
data = b""
while time.monotonic() < end:
    data = hashlib.sha256(data * 1000).digest()
open("kernel.bin", "wb").write(data)
"""


def build_once() -> bytes:
    if dist.get_rank() == 0:
        print("building the kernels", flush=True)
        subprocess.run([sys.executable, "-c", BUILD], check=True)
    dist.barrier()
    return Path("kernel.bin").read_bytes()


def main() -> None:
    dist.init_process_group("gloo")
    kernel = build_once()
    x = torch.tensor(list(kernel), dtype=torch.float32)
    for step in range(20):
        dist.all_reduce(x)
        x /= dist.get_world_size()
        print("step", step, x.mean().item(), flush=True)
    dist.destroy_process_group()


main()
