import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
truth = torch.randn(8, 1)
torch.manual_seed(rank)
for step in range(80):
    x = torch.randn(32, 8)
    loss = (model(x) - x @ truth).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
if rank == 0:
    print("finished")
dist.destroy_process_group()
