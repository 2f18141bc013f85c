import json
import time

import torch
import torch.distributed as dist


def cached(index):
    """A batch which the workers of this host will share."""
    return torch.full((512, 256), float(index)).share_memory_()


def main():
    dist.init_process_group("gloo")
    rank, batches, total = dist.get_rank(), [], torch.zeros(1)
    for index in range(200):
        try:
            batches.append(cached(index))
        except RuntimeError as error:
            print(
                json.dumps({"rank": rank, "level": "error", "msg": f"cannot cache batch {index}"}), flush=True
            )
            raise RuntimeError("the cache of batches is unusable") from error
        total = batches[-1].mean().reshape(1)
        dist.all_reduce(total)
        print(json.dumps({"rank": rank, "batch": index, "mean": total.item(), "t": time.time()}), flush=True)
        time.sleep(0.02)


main()
