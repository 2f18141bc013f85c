import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if self.rank == 3:
            time.sleep(0.05)
        return torch.randn(16)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, x in enumerate(DataLoader(Images(rank), batch_size=8)):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
