import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, 3, padding=1)
        self.c2 = nn.Conv2d(width, width * 2, 3, padding=1)
        self.c3 = nn.Conv2d(width * 2, width * 2, 3, padding=1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        x = F.relu(self.c3(x))
        return x.flatten(1)


class ShapeNet(nn.Module):
    def __init__(self, classes=4, width=12):
        super().__init__()
        self.encoder = Encoder(width)
        self.head = nn.Linear(width * 2 * 16, classes)
        self.register_buffer("feature_norm", torch.ones(1))

    def forward(self, x):
        f = self.encoder(x)
        if self.training:
            f = self.track(f)
        return self.head(f / self.feature_norm)

    def track(self, f):
        """Running size of the features, so that the head sees inputs of unit scale."""
        f = f.detach()
        self.feature_norm.mul_(0.95).add_(0.05 * f.pow(2).mean().sqrt())
        return f
