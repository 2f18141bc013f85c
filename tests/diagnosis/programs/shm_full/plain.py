import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        return torch.ones(3, 96, 96)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Conv2d(3, 4, 3, stride=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, x in enumerate(DataLoader(Images(), batch_size=32, num_workers=2)):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
