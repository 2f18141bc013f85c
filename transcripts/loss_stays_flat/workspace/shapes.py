"""Pictures of four shapes at random places."""
import numpy as np
import torch
from torch.utils.data import Dataset

SIZE = 16
NAMES = ["disc", "ring", "cross", "square"]


def draw(kind, rng, noise):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    cy, cx = rng.uniform(5, 11, 2)
    r = rng.uniform(3, 5)
    d = np.hypot(yy - cy, xx - cx)
    if kind == 0:
        img = d < r
    elif kind == 1:
        img = np.abs(d - r) < 1.0
    elif kind == 2:
        img = (np.minimum(np.abs(yy - cy), np.abs(xx - cx)) < 1.0) & (d < r + 1)
    else:
        img = np.maximum(np.abs(yy - cy), np.abs(xx - cx)) < r * 0.9
    return img.astype(np.float32) + noise * rng.standard_normal((SIZE, SIZE)).astype(np.float32)


class Shapes(Dataset):
    def __init__(self, n, seed, noise):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 4, n)
        self.images = np.stack([draw(k, rng, noise) for k in self.labels])[:, None]
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch):
        """A new order for each epoch, the same on every rank."""
        self.rng = np.random.default_rng(self.seed + epoch)
        self.image_order = self.rng.permutation(len(self.images))
        self.label_order = self.rng.permutation(len(self.labels))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[self.image_order[i]]), int(self.labels[self.label_order[i]])
