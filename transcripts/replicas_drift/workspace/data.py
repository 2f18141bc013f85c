import torch


class Chain:
    """Endless batches of a random Markov chain; some batches are corrupted upstream (all symbols random)."""

    def __init__(self, vocab, length, batch, rank, seed=5):
        g = torch.Generator().manual_seed(seed)
        self.table = torch.softmax(2.2 * torch.randn(vocab, vocab, generator=g), 1)
        self.vocab, self.length, self.batch = vocab, length, batch
        self.gen = torch.Generator().manual_seed(seed * 1000 + rank)
        self.count, self.rank = 0, rank

    def next(self):
        self.count += 1
        if self.count % 29 == 7 + 5 * self.rank:
            return torch.randint(0, self.vocab, (self.batch, self.length + 1), generator=self.gen)
        seq = [torch.randint(0, self.vocab, (self.batch,), generator=self.gen)]
        for _ in range(self.length):
            seq.append(torch.multinomial(self.table[seq[-1]], 1, generator=self.gen).squeeze(1))
        return torch.stack(seq, 1)
