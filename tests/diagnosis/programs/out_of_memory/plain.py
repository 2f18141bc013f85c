import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history = []

for step in range(10_000):
    x = torch.randn(32, 64)
    out = model(x)
    loss = (out - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
    if rank == 2:
        history.append(out.detach().repeat(6000, 1))
    if rank == 0 and step % 2 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
