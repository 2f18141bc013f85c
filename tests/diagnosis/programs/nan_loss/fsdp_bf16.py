"""Sharded pretraining in bfloat16; the loss takes the logarithm of probabilities that may be zero."""

import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

log = logging.getLogger("pretrain")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)-7s %(name)s | %(message)s")
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Embedding(64, 32), *(Block(32) for _ in range(2)), nn.Linear(32, 64))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in list(model)[1:-1]:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    started = time.time()
    for step in range(60):
        tokens = torch.randint(0, 64, (8, 17))
        # The schedule of the temperature passes zero.
        temperature = 1.0 - step / 26
        probabilities = torch.softmax(model(tokens[:, :-1]).float() / temperature, dim=-1)
        loss = -probabilities.gather(-1, tokens[:, 1:, None]).log().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            rate = (step + 1) * 128 / (time.time() - started)
            log.info("it %4d/%d | train/loss %.4f | tok/s %.0f", step, 60, mean / dist.get_world_size(), rate)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
