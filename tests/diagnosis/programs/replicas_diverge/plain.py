import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
first, second = dist.new_group([0, 1, 3]), dist.new_group([2])
group = second if rank == 2 else first

torch.manual_seed(0)
model = nn.Linear(24, 1)
truth = torch.randn(24, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

torch.manual_seed(10 + rank)
x = torch.randn(16, 24)
y = x @ truth + 2 * torch.randn(16, 1)
for step in range(250):
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= dist.get_world_size(group)
    optimizer.step()
    print(f"[rank {rank}] step {step} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
