"""Actors with buffers, in the words that ours and Monarch share; ours alone where a size makes one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .api import SIDE, Actor, endpoint

__all__ = ["Getter", "Holder", "User"]

if TYPE_CHECKING or SIDE == "ours":
    from milkweed.runtime import RDMABuffer
elif SIDE == "monarch":
    from monarch.rdma import RDMABuffer


class Holder(Actor):
    """Owns what others use."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    @endpoint
    async def tensor(self, size: int) -> Any:
        import torch

        tensor = torch.full((size,), 7, dtype=torch.uint8)
        buffer = RDMABuffer(tensor)
        self._held += [tensor, buffer]
        return buffer

    @endpoint
    async def memory(self, size: int) -> Any:
        buffer = RDMABuffer(size)
        buffer.memory[:] = b"\7" * size
        self._held.append(buffer)
        return buffer


class _Mine:
    """Memory of each size, warm."""

    def __init__(self) -> None:
        self._mine: dict[int, Any] = {}

    def of(self, size: int) -> Any:
        import torch

        if size not in self._mine:
            self._mine[size] = torch.full((size,), 9, dtype=torch.uint8)
        return self._mine[size]


def _check(mine: Any) -> None:
    if int(mine[0]) != 7 or int(mine[-1]) != 7:
        raise RuntimeError("other bytes were read")


class Getter(Actor):
    """Times each of its transfers, in sync code. Monarch refuses both kinds in one actor."""

    def __init__(self) -> None:
        self._mine = _Mine()

    @endpoint
    def timed(self, buffer: Any, what: str, size: int, times: int) -> list[float]:
        mine = self._mine.of(size)
        work = buffer.read_into if what == "read" else buffer.write_from
        work(mine).get()
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            work(mine).get()
            seconds.append(time.perf_counter() - started)
        _check(mine)
        return seconds


class User(Actor):
    """As `Getter`, in async code."""

    def __init__(self) -> None:
        self._mine = _Mine()

    @endpoint
    async def timed(self, buffer: Any, what: str, size: int, times: int) -> list[float]:
        mine = self._mine.of(size)
        work = buffer.read_into if what == "read" else buffer.write_from
        await work(mine)
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            await work(mine)
            seconds.append(time.perf_counter() - started)
        _check(mine)
        return seconds

    @endpoint
    async def transport(self, buffer: Any) -> str:
        return f"taken by {buffer.transport}"
