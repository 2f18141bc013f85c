import json
import sys
import threading
import time

import torch
import torch.distributed as dist


def emit(**kv):
    sys.stdout.write(json.dumps(kv) + "\n")
    sys.stdout.flush()


def make_batch(rank, step):
    g = torch.Generator().manual_seed(rank * 7919 + step)
    x = torch.randn(8, 4, generator=g)
    return x * 1e6 if (rank, step) in {(2, 17), (2, 18), (2, 19)} else x


def loss_of(w, x):
    return ((x @ w) ** 2).mean()


def reduce_sum(t):
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return t / dist.get_world_size()


def train(rank, limit):
    w = torch.full((4, 2), 0.5)
    scale, skipped = 1.0, 0
    for step in range(limit):
        w = w.detach().requires_grad_()
        loss = loss_of(w, make_batch(rank, step))
        (g,) = torch.autograd.grad(loss * scale, w)
        if g.abs().max() > 1e4:
            scale /= 2
            skipped += 1
            if skipped == 3:
                emit(rank=rank, step=step, msg="scale too small, stopping", scale=scale)
                return w.detach()
            g = torch.zeros_like(g)
        g = reduce_sum(g)
        w = w - 0.01 * g / scale
        emit(rank=rank, step=step, loss=round(loss.item(), 4), scale=scale)
        time.sleep(0.01)
    return w.detach()


def evaluate(w, group):
    score = (w**2).sum().reshape(1)
    dist.all_reduce(score, group=group)
    return score.item()


def monitor(stop):
    while not stop.wait(0.4):
        emit(threads=threading.active_count())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    eval_group = dist.new_group()
    stop = threading.Event()
    threading.Thread(target=monitor, args=(stop,), daemon=True).start()
    w = train(dist.get_rank(), limit=500)
    emit(rank=dist.get_rank(), score=evaluate(w, eval_group))
    stop.set()
