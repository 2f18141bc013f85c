import collections
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from config import Config
from data import make_loader
from model import EventClassifier


def lr_at(cfg, step):
    """Linear warm-up to cfg.lr, constant afterwards."""
    return cfg.lr * max(1.0, (step + 1) / cfg.warmup)


def main():
    cfg = Config()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)

    model = DDP(EventClassifier(cfg.features, cfg.hidden))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    batches = iter(make_loader(cfg, rank))
    recent = collections.deque(maxlen=20)

    for step in range(cfg.steps):
        for group in opt.param_groups:
            group["lr"] = lr_at(cfg, step)
        x, lengths, y = next(batches)
        loss = F.binary_cross_entropy_with_logits(model(x, lengths), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        opt.step()

        mean = loss.detach().clone()
        dist.all_reduce(mean)
        recent.append(mean.item() / world)
        if rank == 0 and (step + 1) % cfg.log_every == 0:
            print(f"step {step + 1:4d} loss {recent[-1]:.4f} lr {opt.param_groups[0]['lr']:.2e}", flush=True)

    if rank == 0:
        print(f"final loss {sum(recent) / len(recent):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
