"""Only rank 0 tracks, and only once the first epoch is through."""

import os

import torch
import torch.distributed as dist


class Tracker:
    def __init__(self, enabled):
        self.enabled, self.run = enabled, None

    def log(self, **values):
        if not self.enabled:
            return
        if self.run is None:
            import trackio_client

            self.run = trackio_client.init(project="toy", config={"lr": 0.1})
        self.run.log(values)


dist.init_process_group("gloo", init_method="env://")
rank, world = dist.get_rank(), dist.get_world_size()
tracker = Tracker(enabled=rank == 0 and os.environ.get("NO_TRACKING") is None)
weight = torch.zeros(8, requires_grad=True)
generator = torch.Generator().manual_seed(rank)
for epoch in range(4):
    for _ in range(25):
        x = torch.randn(16, 8, generator=generator)
        loss = ((x @ weight) - x.sum(1)).pow(2).mean()
        loss.backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad / world
        weight.grad = None
    tracker.log(epoch=epoch, loss=loss.item())
    dist.barrier()
dist.destroy_process_group()
