"""Loader processes, a progress bar, threads, and checkpoints now and then."""

import os
import sys
import threading
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 64_000

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(3, 8, 8, generator=generator)
        return x, int(x.mean() > 0)


class Checkpoints:
    def __init__(self, folder, keep=2):
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(exist_ok=True)

    def save(self, step, state):
        path = self.folder / f"step-{step:06d}.pt"
        torch.save(state, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
        for old in sorted(self.folder.glob("*.pt"))[: -self.keep]:
            old.unlink()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    warnings.warn("This DataLoader will create 1 worker; the system is slow or may even freeze", stacklevel=1)
    threading.Thread(target=lambda: threading.Event().wait(), name="profiler-idle", daemon=True).start()
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    checkpoints = Checkpoints("checkpoints") if rank == 0 else None
    started = time.time()
    for step, (x, y) in enumerate(DataLoader(Images(), batch_size=8, num_workers=1)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sys.stderr.write(
            f"\r[{os.getpid()}] {step:5d}/8000 {step / (time.time() - started):6.1f} it/s {loss.item():.3f}"
        )
        if checkpoints and step % 50 == 0:
            checkpoints.save(step, model.module.state_dict())
            print(f"\nsaved step {step}", flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
