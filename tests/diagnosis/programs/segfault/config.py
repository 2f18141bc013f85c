import json
import os
import sys

import torch
import torch.distributed as dist


class Section:
    """A part of the configuration; what it lacks it takes from its parent."""

    def __init__(self, name, parent=None, **values):
        self.name, self.parent, self.values = name, parent, values

    def __getattr__(self, key):
        values = self.__dict__["values"]
        if key in values:
            return values[key]
        return getattr(self.__dict__["parent"], key)


def build(depth):
    base = Section("base", lr=0.1)
    section = base
    for n in range(depth):
        section = Section(f"level{n}", section)
    if int(os.environ["RANK"]) == 0:
        base.parent = section
    return section


def main():
    sys.setrecursionlimit(10**9)
    dist.init_process_group("gloo")
    section = build(20)
    x = torch.ones(4)
    for step in range(30):
        dist.all_reduce(x)
        x *= section.lr / dist.get_world_size()
        print(json.dumps({"step": step, "x": x.sum().item()}), flush=True)
    print(json.dumps({"warmup": section.warmup if dist.get_rank() == 0 else 0}), flush=True)
    dist.barrier()


main()
