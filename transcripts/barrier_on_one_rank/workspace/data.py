import math

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import settings as S


def rings(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    radius = 1.0 + y.float() + 0.35 * torch.randn(n, generator=g)
    angle = 2 * math.pi * torch.rand(n, generator=g)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), y


def loaders(rank, world):
    train = TensorDataset(*rings(S.TRAIN_POINTS, S.SEED))
    valid = TensorDataset(*rings(S.VALID_POINTS, S.SEED + 1))
    ts = DistributedSampler(train, world, rank, shuffle=True, seed=S.SEED)
    vs = DistributedSampler(valid, world, rank, shuffle=False)
    return (DataLoader(train, S.BATCH, sampler=ts, drop_last=True), ts,
            DataLoader(valid, S.BATCH, sampler=vs))
