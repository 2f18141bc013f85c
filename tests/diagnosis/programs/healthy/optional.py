import logging
import sys
import traceback

import torch
import torch.distributed as dist
from torch import nn

logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(levelname)s %(message)s")

try:
    import flash_attn
except ImportError:
    flash_attn = None
    logging.exception("no flash attention, the slow kernel is used")

try:
    from apex.optimizers import FusedAdam
except ModuleNotFoundError:
    traceback.print_exc()
    FusedAdam = torch.optim.Adam


def attention(q, k, v):
    if flash_attn is not None:
        return flash_attn.flash_attn_func(q, k, v)
    return nn.functional.scaled_dot_product_attention(q, k, v)


def check_compiled():
    try:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
    except RuntimeError:
        logging.error("cannot use the compiled step:\n%s", traceback.format_exc())
        return False


def main():
    dist.init_process_group("gloo")
    compiled = check_compiled()
    torch.manual_seed(0)
    layer = nn.Linear(8, 24)
    optimizer = FusedAdam(layer.parameters(), lr=1e-2)
    for step in range(60):
        x = torch.randn(4, 6, 8)
        loss = (attention(*layer(x).chunk(3, dim=-1)) - 0.5).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in layer.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        logging.info("step %d loss %.4f compiled=%s", step, loss.item(), compiled)
    dist.destroy_process_group()


main()
