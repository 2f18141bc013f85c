import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = None
        self.dim, self.vocab = dim, vocab

    def add_head(self, dropout=0.1):
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.dim, self.dim), nn.ReLU(), nn.Linear(self.dim, self.vocab))
        return self

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens))
        return self.head(h)
