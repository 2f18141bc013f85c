import time

import torch
import torch.distributed as dist

import milkweed


def initialise(seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        "mean": torch.randn(6, generator=generator) * 0.1,
        "log_scale": torch.zeros(6),
    }


def negative_log_likelihood(params, x):
    scale = params["log_scale"].exp()
    return (((x - params["mean"]) / scale) ** 2 / 2 + scale.log()).mean()


def average(tensors):
    world = dist.get_world_size()
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor /= world
    return tensors


def update(params, x, lr):
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    loss = negative_log_likelihood(leaves, x)
    grads = average(list(torch.autograd.grad(loss, list(leaves.values()))))
    return {k: v.detach() - lr * g for (k, v), g in zip(leaves.items(), grads)}, loss.item()


def observations(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(32, 6, generator=generator)
    if rank == 1 and step % 64 == 9:
        x[5, 2] = float("inf")
    return x


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    params = initialise(0)
    step = 0
    while True:
        params, loss = update(params, observations(rank, step), lr=0.05)
        milkweed.report(step=step, loss=loss, lr=0.05)
        step += 1
        if step % 15 == 0:
            print(f"[{rank}] {step} updates", flush=True)
        time.sleep(0.03)


main()
