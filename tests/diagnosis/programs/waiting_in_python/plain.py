import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
batches = queue.Queue(maxsize=4)


def load():
    count = 40 if rank == 1 else 4000
    for _ in range(count):
        batches.put(torch.randn(8, 8))


threading.Thread(target=load, daemon=True).start()
model = DDP(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4000):
    x = batches.get()
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 3 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
