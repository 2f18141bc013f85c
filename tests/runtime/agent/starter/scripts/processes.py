"""Starts processes in every way that Python has; prints what they say."""

import multiprocessing
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, at):
        return torch.tensor(at * at)


def square(number):
    return number * number, __name__, sys.argv[1:], os.path.basename(os.getcwd())


if __name__ == "__main__":
    print(__name__, getattr(sys.modules["__main__"].__spec__, "name", None), flush=True)
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, sorted(pool.map(square, range(3))), flush=True)
        loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=method)
        print(method, [batch.tolist() for batch in loader], flush=True)
