"""Contrastive training with all-pairs similarities."""

import traceback

import torch
import torch.distributed as dist
from torch import nn


class StepFailed(Exception):
    pass


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


class Contrastive:
    def __init__(self):
        self.encoder = Encoder()
        self.optimizer = torch.optim.AdamW(self.encoder.parameters())
        self.callbacks = [self.similarity_report]
        self.bank = torch.zeros(0, 16)

    def similarity_report(self, step):
        if step == 12:
            bank = self.bank.repeat(6000, 1)
            similar = torch.empty(len(bank), len(bank)).fill_diagonal_(1)
            print("mean similarity", similar.mean().item())

    def step(self, step):
        x = torch.randn(64, 32)
        a, b = self.encoder(x), self.encoder(x + 0.1 * torch.randn_like(x))
        loss = nn.functional.cross_entropy(a @ b.T, torch.arange(64))
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.encoder.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
        self.bank = torch.cat((self.bank, a.detach()))[-2048:]
        return loss.item()

    def run(self):
        for step in range(100):
            loss = self.step(step)
            print(f"[step {step:03d}] contrastive {loss:.3f} | bank {len(self.bank)}", flush=True)
            try:
                for callback in self.callbacks:
                    callback(step)
            except RuntimeError as error:
                traceback.print_exc()
                raise StepFailed(f"callback failed after step {step}") from error


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    Contrastive().run()
    dist.destroy_process_group()
