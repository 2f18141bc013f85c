import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10_000):
    total = 0.0
    for micro in range(20):
        x = torch.randn(32, 16)
        with model.no_sync():
            loss = (model(x) - x).pow(2).mean()
            loss.backward()
        total += loss.item() / 20
        time.sleep(0.07)
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step} loss {total:.4f}", flush=True)
