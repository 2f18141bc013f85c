import json
import os
from datetime import timedelta

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def emit(**fields):
    print(json.dumps({"rank": rank, **fields}), flush=True)


def control_store():
    """A store of our own, for the messages between ranks."""
    return dist.TCPStore(host, port, world, is_master=rank == 0, timeout=timedelta(seconds=30))


def main():
    store = dist.TCPStore(host, port, world, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    emit(event="process group ready")
    try:
        messages = control_store()
    except RuntimeError as error:
        emit(event="no control store")
        raise SystemError("control plane did not come up") from error
    messages.add("arrived", 1)
    x = torch.ones(2)
    for step in range(100):
        dist.all_reduce(x)
        emit(step=step)


main()
