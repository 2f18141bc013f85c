import ctypes

import torch
import torch.distributed as dist


def checksum(x):
    """Of the tensor's bytes, by the C library."""
    address = x.data_ptr() if dist.get_rank() != 2 or x[0] < 30 else 64
    return sum(ctypes.string_at(address, 16))


dist.init_process_group("gloo")
x = torch.zeros(16)
for step in range(1000):
    x += 1
    total = torch.tensor([checksum(x)])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"step {step} checksum {total.item()}", flush=True)
