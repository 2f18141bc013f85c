import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
weights = torch.zeros(32)

for step in range(1000):
    grad = torch.randn(32) + weights
    if step % 10 == 5 and rank == 0:
        dist.broadcast(weights, src=0)
    else:
        dist.all_reduce(grad)
        weights -= 0.1 * grad / world
    if rank == 0:
        print(f"step {step} norm {weights.norm().item():.4f}", flush=True)
