"""Trains briefly, then rank 0 puts all shards of the optimizer together for one checkpoint."""

import io

import torch
import torch.distributed as dist


def consolidate(parts):
    """One tensor of all moments, in double precision as the archive wants them."""
    return torch.cat([part.repeat(24_000).double() for part in parts])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    moments = torch.zeros(4096)
    for step in range(10):
        grad = torch.randn(4096)
        dist.all_reduce(grad)
        moments.mul_(0.9).add_(grad / world, alpha=0.1)
        if rank == 0:
            print("step", step, "moment", moments.norm().item(), flush=True)
    parts = [torch.empty_like(moments) for _ in range(world)] if rank == 0 else None
    dist.gather(moments, parts)
    if rank == 0:
        whole = consolidate(parts * 4)
        torch.save(whole, io.BytesIO())
    dist.barrier()
    dist.destroy_process_group()


main()
