import torch
from torch import nn

from ops import masked_softmax, softplus


class AttentionPool(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, h, lengths):
        w = masked_softmax(self.score(torch.tanh(h)).squeeze(-1), lengths)
        return (w.unsqueeze(-1) * h).sum(1)


class EventClassifier(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.pool = AttentionPool(hidden)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, x, lengths):
        h = softplus(self.embed(x))
        return self.head(self.norm(self.pool(h, lengths))).squeeze(-1)
