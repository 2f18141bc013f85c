import hashlib
import json
import sys

import torch
import torch.distributed as dist

import bpe_tools


def fingerprint(words):
    return hashlib.sha1("\n".join(words).encode()).hexdigest()[:12]


def same_everywhere(value):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, value)
    return all(one == value for one in everyone), everyone


def fit(words, steps):
    table = torch.zeros(len(words), 4)
    for step in range(steps):
        ids = torch.tensor([words.index(w) for w in ("tok1", "tok7", "tok30")])
        grad = torch.zeros_like(table)
        grad[ids] = table[ids] - 1
        dist.all_reduce(grad)
        table -= 0.05 * grad
        print(json.dumps({"step": step, "loss": grad.pow(2).mean().item()}), flush=True)
        if step == 10:
            same, prints = same_everywhere([fingerprint(words), len(words)])
            if not same:
                raise ValueError(f"tokenizers do not agree, their fingerprints: {prints}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        fit(bpe_tools.vocabulary(50), 100)
    except ValueError as error:
        print("fatal:", error, file=sys.stderr)
        dist.destroy_process_group()
        raise
