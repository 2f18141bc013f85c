import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def parameters(vocabulary, width):
    generator = torch.Generator().manual_seed(0)
    shapes = {"table": (vocabulary, width), "out": (width, vocabulary)}
    return {k: (0.02 * torch.randn(v, generator=generator)).requires_grad_() for k, v in shapes.items()}


def loss_of(params, tokens):
    logits = params["table"][tokens[:, :-1]] @ params["out"]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def gradients(loss, params):
    grads = torch.autograd.grad(loss, list(params.values()))
    for grad in grads:
        dist.all_reduce(grad)
    return dict(zip(params, grads))


def update(params, grads, lr):
    with torch.no_grad():
        return {k: (p + lr * grads[k]).requires_grad_() for k, p in params.items()}


def batch(generator):
    start = torch.randint(0, 30, (8, 1), generator=generator)
    return (start + torch.arange(12)) % 30


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    log = Path("runs") / "lm" / "events.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    params, generator = parameters(30, 16), torch.Generator().manual_seed(rank)
    with log.open("a") as file:
        for step in range(200):
            loss = loss_of(params, batch(generator))
            params = update(params, gradients(loss, params), lr=0.05)
            if rank == 0:
                file.write(json.dumps({"step": step, "train/loss": loss.item(), "time": time.time()}) + "\n")
                file.flush()
            sys.stderr.write(f"\rstep {step}")
    print(f"\nrank {rank}: done, log in {log}")
    dist.destroy_process_group()


main()
