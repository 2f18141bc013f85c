import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(8, 3)
samples = torch.randn(126, 8)
mine = samples[rank * 32 : (rank + 1) * 32]

with torch.no_grad():
    for batch, x in enumerate(mine.split(8)):
        out = model(x)
        outs = [torch.zeros_like(out) for _ in range(world)]
        dist.all_gather(outs, out)
        if rank == 0:
            print(f"batch {batch}: {torch.cat(outs).argmax(1).tolist()}", flush=True)
