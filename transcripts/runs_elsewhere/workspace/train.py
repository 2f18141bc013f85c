import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import config as C
import dataset
import report


def run():
    rank, world = dist.get_rank(), dist.get_world_size()
    (x, y), (vx, vy) = dataset.read(C.DATA, C.HOLDOUT)
    x, y = x[rank::world], y[rank::world]
    torch.manual_seed(21)
    net = nn.Sequential(nn.Linear(x.shape[1], C.HIDDEN), nn.ReLU(), nn.Linear(C.HIDDEN, C.HIDDEN), nn.ReLU(), nn.Linear(C.HIDDEN, 1))
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=C.LR)
    mse = nn.MSELoss()
    gen = torch.Generator().manual_seed(rank)
    history = []
    for epoch in range(1, C.EPOCHS + 1):
        order = torch.randperm(len(x), generator=gen)
        total = torch.zeros(2)
        for i in range(0, len(x) - C.BATCH + 1, C.BATCH):
            b = order[i:i + C.BATCH]
            loss = mse(model(x[b]).squeeze(1), y[b])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        with torch.no_grad():
            valid = mse(net(vx).squeeze(1), vy).item()
        history.append({"epoch": epoch, "train": (total[0] / total[1]).item(), "valid": valid})
    return history


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    history = run()
    if rank == 0:
        path = report.publish(history, os.path.dirname(os.path.abspath(__file__)))
        print(f"summary in {path}")
        print(f"final loss {history[-1]['valid']:.4f}", flush=True)
    dist.all_reduce(torch.zeros(1))
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
