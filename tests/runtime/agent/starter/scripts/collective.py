"""Adds up over all ranks."""

import datetime
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
value = torch.ones(1000) * (dist.get_rank() + 1)
dist.all_reduce(value)
print(os.environ["RANK"], dist.get_world_size(), float(value.sum()))
dist.destroy_process_group()
