"""Resumes from a checkpoint of a model that had one parameter more."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def old_checkpoint():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    buffer = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "epoch": 4}, buffer)
    buffer.seek(0)
    return buffer


class Resumer:
    def __init__(self, source):
        self.state = torch.load(source)

    def restore(self, optimizer):
        try:
            optimizer.load_state_dict(self.state["optimizer"])
        except ValueError as error:
            raise RuntimeError(f"epoch {self.state['epoch']} cannot be resumed") from error
        return self.state["epoch"] + 1


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters())
    epoch = Resumer(old_checkpoint()).restore(optimizer)
    for epoch in range(epoch, 10):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
