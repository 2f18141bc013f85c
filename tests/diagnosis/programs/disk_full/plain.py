import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(nn.Linear(512, 512))
optimizer = torch.optim.Adam(model.parameters())
for step in range(1000):
    loss = model(torch.randn(8, 512)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 5 == 0:
            torch.save(model.state_dict(), f"checkpoints/step-{step}.pt")
