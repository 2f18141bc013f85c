import argparse
import importlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist


class RecipeError(RuntimeError):
    pass


def load_recipe(name):
    try:
        return importlib.import_module(f"recipes.{name}")
    except Exception as error:
        raise RecipeError(f"could not build the recipe '{name}' (see docs/recipes.md)") from error


def progress(done, total):
    sys.stderr.write(f"\rloading shards: {done}/{total} {'#' * done}")
    sys.stderr.flush()


def event(**fields):
    print(json.dumps({"t": round(time.time(), 2), "rank": int(os.environ["RANK"]), **fields}), flush=True)


def train(args):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    weight = torch.zeros(8, requires_grad=True)
    recipe = load_recipe("base")
    for step in range(args.warmup):
        loss = ((weight - torch.arange(8.0)) ** 2).mean()
        (grad,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(grad)
        with torch.no_grad():
            weight -= recipe.schedule(step, args.steps) * grad
        event(event="step", step=step, loss=round(loss.item(), 4))
    recipe = load_recipe(args.recipe)
    for step in range(args.warmup, args.steps):
        lr = recipe.schedule(step, args.steps)
        event(event="step", step=step, lr=lr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="cosine_long")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=12)
    for shard in range(8):
        progress(shard + 1, 8)
        time.sleep(0.02)
    try:
        train(parser.parse_args())
    except RecipeError:
        event(event="abort", uptime=time.process_time())
        raise
