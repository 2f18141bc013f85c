"""Gradients and metrics have a group each; hooks run in the order in which they were registered."""

import os
import time

import torch
import torch.distributed as dist


class Hooks:
    def __init__(self):
        self.at_end_of_step = []

    def register(self, hook):
        self.at_end_of_step.append(hook)

    def run(self, step):
        for hook in self.at_end_of_step:
            hook(step)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gradients, metrics = dist.new_group(), dist.new_group()
    weight, grad = torch.zeros(32), torch.zeros(32)
    tokens = torch.zeros(1)

    def reduce_gradients(step):
        dist.all_reduce(grad, group=gradients)

    def count_tokens(step):
        if step % 10 == 9:
            dist.all_reduce(tokens, group=metrics)

    hooks = Hooks()
    hooks.register(reduce_gradients)
    if os.environ.get("COUNT_FIRST", "1") == "1" and rank == 1:  # the one that writes the log
        hooks.at_end_of_step.insert(0, count_tokens)
    else:
        hooks.register(count_tokens)
    for step in range(100):
        x = torch.randn(16, 32)
        grad.copy_(x.t() @ (x @ weight - x.sum(1)) / 16)
        tokens.fill_(16.0)
        hooks.run(step)
        weight -= 0.05 * grad / world
        if rank == 0:
            print("step", step, "weight", round(weight.norm().item(), 3), flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


main()
