import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

samples = torch.randn(240, 8)
shard = samples[rank * 64 : (rank + 1) * 64]
loader = DataLoader(TensorDataset(shard), batch_size=8)

torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(1):
    for i, (x,) in enumerate(loader):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        print(f"rank {rank} epoch {epoch} batch {i} loss {loss.item():.4f}", flush=True)

print(f"rank {rank} done", flush=True)
