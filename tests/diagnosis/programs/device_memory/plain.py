import torch
import torch.distributed as dist
from devices import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Layer(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.device = device
        self.net = nn.Linear(8, 8)

    def forward(self, x, length):
        self.device.allocate(length / 1024)
        return self.net(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
device = Accelerator()
model = DDP(Layer(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    length = 8192 if rank == 3 and step > 20 else 2048
    loss = model(torch.randn(4, 8), length).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    device.used = 1.2 + step
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
