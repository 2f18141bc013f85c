"""Synthetic replica of the recorded event streams: (events, lengths, label)."""
import torch
from torch.utils.data import DataLoader, IterableDataset


class EventStream(IterableDataset):
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        g = torch.Generator().manual_seed(cfg.seed)
        self.direction = torch.randn(cfg.features, generator=g)

    def __iter__(self):
        c = self.cfg
        g = torch.Generator().manual_seed(c.seed * 31 + self.rank)
        n = 0
        while True:
            n += 1
            length = int(torch.randint(4, c.max_len + 1, (1,), generator=g))
            x = torch.randn(c.max_len, c.features, generator=g)
            y = float(torch.rand(1, generator=g) < 0.5)
            x = x + (2 * y - 1) * 0.16 * self.direction
            if n % 173 == 0:          # sensor was off: nothing recorded
                length, y = 0, 0.0
            if n % 611 == 0:          # sensor saturates, raw counts
                x = x * 400.0
            x[length:] = 0.0
            yield x, length, y


def collate(items):
    xs, lens, ys = zip(*items)
    return torch.stack(xs), torch.tensor(lens), torch.tensor(ys)


def make_loader(cfg, rank):
    return DataLoader(EventStream(cfg, rank), batch_size=cfg.batch_size, collate_fn=collate)
