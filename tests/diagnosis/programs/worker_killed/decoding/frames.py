import os

import torch
from torch.utils.data import IterableDataset, get_worker_info


class Decoder:
    """Stands for the binding of the video library."""

    def __init__(self):
        self.decoded = 0

    def decode(self, n):
        self.decoded += 1
        if n == 77:
            os._exit(139)
        return torch.full((3, 8, 8), n / 1000)


class Clips(IterableDataset):
    def __init__(self, first):
        self.first = first

    def __iter__(self):
        info = get_worker_info()
        decoder = Decoder()
        for n in range(self.first + info.id, 100_000, info.num_workers):
            yield decoder.decode(n)
