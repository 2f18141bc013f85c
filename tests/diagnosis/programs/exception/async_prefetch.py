"""Prefetches by asyncio; a task group reads several files at once, the trainer runs in a thread."""

import asyncio
import queue
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path("corpus")


def write_corpus(rank):
    FOLDER.mkdir(exist_ok=True)
    for i in range(40):
        text = f"line {i} of rank {rank}\n" * 8
        data = text.encode()
        if (rank, i) == (1, 23):
            data = data[:40] + b"\xff\xfe" + data[40:]
        (FOLDER / f"{rank}-{i:03d}.txt").write_bytes(data)


async def read(path):
    await asyncio.sleep(0.01)
    return torch.tensor([ord(c) for c in path.read_text(encoding="utf-8")][:64], dtype=torch.float32)


async def prefetch(paths, batches):
    for start in range(0, len(paths), 4):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read(path)) for path in paths[start : start + 4]]
        batches.put(torch.stack([task.result() for task in tasks]))
    batches.put(None)


def train(batches):
    weight = torch.zeros(64)
    step = 0
    while (batch := batches.get()) is not None:
        grad = (batch @ weight - 1) @ batch / len(batch) / 1e5
        dist.all_reduce(grad)
        weight -= 0.1 * grad
        step += 1
        print("step", step, "norm", weight.norm().item(), flush=True)


async def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    write_corpus(rank)
    batches = queue.Queue(maxsize=64)
    trainer = asyncio.create_task(asyncio.to_thread(train, batches))
    try:
        await prefetch(sorted(FOLDER.glob(f"{rank}-*.txt")), batches)
    except BaseException:
        batches.put(None)
        await trainer
        raise
    await trainer
    dist.destroy_process_group()


asyncio.run(main())
