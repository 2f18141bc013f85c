import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


class Bar:
    def __init__(self, total):
        self.total, self.done = total, 0

    def tick(self):
        self.done += 1
        sys.stderr.write(f"\r{self.done * 100 // self.total:3d}%|{'█' * (self.done * 20 // self.total):20}|")
        sys.stderr.flush()


def gather_scores(score, rank, world):
    everyone = [torch.zeros_like(score) for _ in range(world)]
    dist.all_gather(everyone, score)
    return torch.stack(everyone)


def total_score(score):
    dist.reduce(score, dst=0)
    return score


def evaluate(rank, world):
    bar = Bar(40)
    for batch in range(40):
        score = torch.full((16,), float(rank + batch))
        try:
            if score.sum() == 528 and rank == 2:
                summary = total_score(score)
            else:
                summary = gather_scores(score, rank, world)
        except RuntimeError as error:
            print(f"evaluation of batch {batch} failed: {error}", file=sys.stderr)
            raise SystemExit(1) from error
        bar.tick()
        time.sleep(0.01)
        if batch % 8 == 0:
            print(f"\nbatch {batch} mean {summary.mean():.2f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    evaluate(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
