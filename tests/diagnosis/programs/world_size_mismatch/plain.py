import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--world-size", type=int, default=8)
args = parser.parse_args()

print("joining", flush=True)
dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=args.world_size)
x = torch.ones(8)
for step in range(100):
    dist.all_reduce(x)
    print(f"step {step}", flush=True)
