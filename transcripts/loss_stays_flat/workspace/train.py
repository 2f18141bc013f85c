import json
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from net import ShapeNet
from shapes import Shapes

HERE = pathlib.Path(__file__).resolve().parent


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(cfg["seed"])
        self.train_set = Shapes(cfg["train_size"], cfg["seed"], cfg["noise"])
        self.valid_set = Shapes(cfg["valid_size"], cfg["seed"] + 1000, cfg["noise"])
        sampler = DistributedSampler(self.train_set, self.world, self.rank, shuffle=False)
        self.loader = DataLoader(self.train_set, cfg["batch_size"], sampler=sampler)
        self.valid = DataLoader(self.valid_set, 128, sampler=DistributedSampler(self.valid_set, self.world, self.rank, shuffle=False))
        self.model = DistributedDataParallel(ShapeNet(), find_unused_parameters=True)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg["lr"])
        self.criterion = torch.nn.CrossEntropyLoss()

    def reduce(self, *values):
        t = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(t)
        return t.tolist()

    def step(self, x, y):
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.opt.zero_grad()
        self.opt.step()
        return loss.item()

    def epoch(self, n):
        self.model.train()
        self.train_set.set_epoch(n)
        total, count = 0.0, 0
        for x, y in self.loader:
            total += self.step(x, y) * len(y)
            count += len(y)
        total, count = self.reduce(total, count)
        return total / count

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        right, count = 0, 0
        for x, y in self.valid:
            right += (self.model(x).argmax(1) == y).sum().item()
            count += len(y)
        right, count = self.reduce(right, count)
        return right / count

    def fit(self):
        for n in range(self.cfg["epochs"]):
            loss, acc = self.epoch(n), self.accuracy()
            if self.rank == 0:
                print(f"epoch {n + 1}/{self.cfg['epochs']} loss {loss:.4f} acc {acc:.3f}", flush=True)
        if self.rank == 0:
            print(f"final loss {loss:.4f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer(json.loads((HERE / "config.json").read_text())).fit()
    dist.destroy_process_group()
