import torch

__version__ = "1.2.0"


def batches(seed, size=8, width=16):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(size, width, generator=generator)
