import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Images(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        if self.rank == 1 and i == 120 and get_worker_info():
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(16)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, x in enumerate(DataLoader(Images(rank), batch_size=8, num_workers=2)):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
