"""64 MiB as an argument and as a result."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from ..api import Actor, endpoint, spawn, start_procs, stop
from ..plan import ALL, Plan, Program, Row

__all__ = ["Measured", "plans"]

MIB = 1024 * 1024

BYTES = (
    "bytes have to be copied once more, into memory that is fresh each time; after a pause that costs much "
    "where a virtual machine gives free pages back to its host"
)


class Store(Actor):
    def __init__(self, size: int) -> None:
        self._held = np.random.default_rng(1).integers(0, 255, size, np.uint8)

    @endpoint
    async def put(self, data: Any) -> tuple[int, int]:
        return len(data), int(data[-1])

    @endpoint
    async def take(self) -> Any:
        return self._held


class Measured(Program):
    """`mib` at a time, `times` a sample."""

    def __init__(self, mib: int, times: int) -> None:
        self._size, self._times = mib * MIB, times

    async def open(self) -> None:
        self._array = np.random.default_rng(2).integers(0, 255, self._size, np.uint8)
        self._bytes = self._array.tobytes()
        self._procs = await start_procs(1)
        self._one = (await spawn(self._procs, "store", Store, self._size)).slice(gpus=0)
        await self.sample()

    async def sample(self) -> dict[str, float]:
        return {
            "array": await self._rate(self._put(self._array)),
            "bytes": await self._rate(self._put(self._bytes)),
            "result": await self._rate(self._take),
        }

    def _put(self, data: Any) -> Callable[[], Awaitable[None]]:
        async def put() -> None:
            answer = await self._one.put.call_one(data)
            if tuple(answer) != (self._size, int(data[-1])):
                raise RuntimeError(f"other data arrived: {answer}")

        return put

    async def _take(self) -> None:
        if (await self._one.take.call_one()).nbytes != self._size:
            raise RuntimeError("other data came back")

    async def _rate(self, work: Callable[[], Awaitable[None]]) -> float:
        started = time.perf_counter()
        for _ in range(self._times):
            await work()
        return self._size * self._times / (time.perf_counter() - started) / 1e6

    async def close(self) -> None:
        await stop(self._procs)


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("array", "64 MiB numpy array as argument", "MB/s", times=2, more=True),
        Row("bytes", "64 MiB bytes as argument", "MB/s", times=2, more=True, why=BYTES),
        Row("result", "64 MiB numpy array as result", "MB/s", times=2, more=True),
    )
    return [Plan(rows, 2 if quick else 7, {"mib": 64, "times": 1 if quick else 3}, ALL)]
