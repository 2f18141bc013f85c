import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, rank):
        self.rows = [{"text": torch.randn(8), "label": i % 2} for i in range(400)]
        if rank == 2:
            del self.rows[93]["label"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return row["text"], row["label"]


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(DataLoader(Reviews(rank), batch_size=4)):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
