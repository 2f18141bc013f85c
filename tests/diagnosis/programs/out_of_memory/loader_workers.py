"""Every worker of the loader reads its shard as a whole."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, megabytes):
        self.megabytes, self.kept = megabytes, []

    def __len__(self):
        return 64

    def __getitem__(self, index):
        self.kept.append(torch.ones(self.megabytes * 262144))
        return self.kept[-1][:128].clone()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    # The second host has the long documents.
    loader = DataLoader(Shards(60 if rank >= 2 else 1), batch_size=2, num_workers=2)
    total = torch.zeros(128)
    for number, batch in enumerate(loader):
        total += batch.sum(0)
        dist.all_reduce(total)
        if rank == 0:
            print(f"batch {number}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
