import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
head = nn.Linear(16, 4)
backbone = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
for p in backbone.parameters():
    p.requires_grad = False
model = DDP(nn.Sequential(backbone, head))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)

torch.manual_seed(rank)
truth = torch.randn(16, 4, generator=torch.Generator().manual_seed(7))
for step in range(150):
    x = torch.randn(64, 16)
    y = (x @ truth).argmax(1)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
