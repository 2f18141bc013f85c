import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import settings as S
from data import loaders
from metrics import Mean, Patience

log = logging.getLogger("ring")


def build():
    torch.manual_seed(S.SEED)
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    mean = Mean()
    for x, y in loader:
        mean.add(criterion(model(x), y), len(y))
    model.train()
    return mean


def save(model, step, value, path):
    torch.save({"model": model.state_dict(), "step": step, "valid": value}, path + ".tmp")
    os.replace(path + ".tmp", path)


def train(rank, world):
    train_loader, sampler, valid_loader = loaders(rank, world)
    model = build()
    ddp = DDP(model)
    opt = torch.optim.SGD(ddp.parameters(), lr=S.LR, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    stopper = Patience(S.PATIENCE, S.MIN_DELTA)
    step, epoch, best, stop = 0, 0, float("inf"), False

    while step < S.STEPS and not stop:
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = criterion(ddp(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1

            if step % S.EVAL_EVERY == 0:
                valid = evaluate(model, valid_loader, criterion)
                if rank == 0:
                    value = valid.synced()
                    log.info("step %d train %.4f valid %.4f", step, loss.item(), value)
                    if value < best:
                        best = value
                        save(model, step, value, S.CHECKPOINT)
                dist.barrier()
                if stopper.update(valid.local):
                    stop = True
                    break
            if step >= S.STEPS:
                break
        epoch += 1

    print(f"rank {rank} stopped at step {step}", flush=True)
    dist.barrier()
    final = evaluate(model, valid_loader, criterion).synced()
    if rank == 0:
        print(f"final loss {final:.4f}", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
