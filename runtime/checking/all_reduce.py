"""The program that takes part in an all-reduce between hosts: a workspace's interpreter runs its text, so
it imports nothing of ours. Arguments: rank, world size, address, port, bytes, seconds. It prints a line of
JSON.
"""

import datetime as dt
import importlib
import json
import sys
import time


def main(rank: int, world: int, address: str, port: int, size: int, seconds: float) -> dict[str, object]:
    try:
        torch = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}"}
    limit = dt.timedelta(seconds=seconds)
    try:
        dist.init_process_group(
            "gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=world, timeout=limit
        )
        data = torch.ones(size // 4)
        dist.all_reduce(data[: 1024 * 64])  # connects
        times = []
        for _ in range(3):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(data)
            times.append(time.perf_counter() - began)
        dist.barrier()
        return {"seconds": min(times), "torch": torch.__version__}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    _, one, all_, host, number, count, time_ = sys.argv
    told = main(int(one), int(all_), host, int(number), int(count), float(time_))
    sys.stdout.write(json.dumps(told) + "\n")
