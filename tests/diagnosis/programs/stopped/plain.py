import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(nn.Linear(8, 8))
for step in range(10_000):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    model.zero_grad()
    loss.backward()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 2 and step == 30:
        os.kill(os.getpid(), signal.SIGSTOP)
