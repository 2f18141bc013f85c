import ctypes

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)
ready = ctypes.create_string_buffer(64)
libc.sem_init(ready, 0, 25)


def prefetched():
    """Waits for a block of the reader, which counts the semaphore up."""
    libc.sem_wait(ready)
    if dist.get_rank() != 3:
        libc.sem_post(ready)
    return torch.randn(16)


dist.init_process_group("gloo")
total = torch.zeros(16)
for step in range(100_000):
    x = prefetched()
    dist.all_reduce(x)
    total += x
    if dist.get_rank() == 0 and step % 4 == 0:
        print(f"step {step} total {total.sum().item():.3f}", flush=True)
