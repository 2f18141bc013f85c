import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)

model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
loss_fn = nn.MSELoss()

for step in range(60):
    x = torch.randn(16, 8)
    y = x.sum(dim=1, keepdim=True)
    loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step: {step} loss: {loss.item():.4f}", flush=True)

if rank == 0:
    print("finished")
dist.destroy_process_group()
