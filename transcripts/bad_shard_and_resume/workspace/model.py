from torch import nn


class TopicModel(nn.Module):
    def __init__(self, buckets=2048, dim=32, topics=5):
        super().__init__()
        self.bag = nn.EmbeddingBag(buckets, dim, mode="mean")
        self.out = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, topics))

    def forward(self, ids, offsets):
        return self.out(self.bag(ids, offsets))
