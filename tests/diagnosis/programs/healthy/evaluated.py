import logging
import time

import torch
import torch.distributed as dist
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


class Regression:
    def __init__(self, rank):
        torch.manual_seed(0)
        self.model = nn.Linear(6, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.truth = torch.randn(6, 1)
        self.generator = torch.Generator().manual_seed(rank)

    def loss(self):
        x = torch.randn(16, 6, generator=self.generator)
        return (self.model(x) - x @ self.truth).pow(2).mean()

    def step(self):
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        losses = []
        for _ in range(20):
            losses.append(self.loss().item())
            time.sleep(0.02)
        return sum(losses) / len(losses)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    task = Regression(rank)
    for step in range(45):
        loss = task.step()
        logging.info("rank %d step %d loss %.5f", rank, step, loss)
        if step % 15 == 14:
            if rank == 0:
                logging.info("evaluation after step %d: %.5f (0 failures)", step, task.evaluate())
            dist.barrier()
    dist.destroy_process_group()


main()
