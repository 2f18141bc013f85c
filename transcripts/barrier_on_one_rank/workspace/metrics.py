import torch
import torch.distributed as dist


class Mean:
    """Running mean; `synced` combines it over the ranks."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n):
        self.total += float(value) * n
        self.count += n

    @property
    def local(self):
        return self.total / max(self.count, 1)

    def synced(self):
        t = torch.tensor([self.total, float(self.count)], dtype=torch.float64)
        dist.all_reduce(t)
        return (t[0] / t[1].clamp(min=1)).item()


class Patience:
    def __init__(self, patience, min_delta):
        self.best, self.bad = float("inf"), 0
        self.patience, self.min_delta = patience, min_delta

    def update(self, value):
        """True when it is time to stop."""
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience
