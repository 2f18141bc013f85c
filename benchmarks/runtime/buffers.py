"""Actors with buffers, in the words that ours and Monarch share; ours alone where a size makes one."""

from __future__ import annotations

import os
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from .api import SIDE, Actor, endpoint
from .raw_memory import kernel_call

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
    async def array(self, size: int) -> Any:
        array = np.full(size, 7, np.uint8)
        buffer = RDMABuffer(memoryview(array))
        self._held += [array, buffer]
        return buffer

    @endpoint
    async def place(self) -> tuple[int, int]:
        """This process, and where the first array lies."""
        return os.getpid(), self._held[0].ctypes.data

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
        if size not in self._mine:
            self._mine[size] = memoryview(np.full(size, 9, np.uint8))
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

    @endpoint
    def beside_kernel(self, buffer: Any, pid: int, there: int, size: int, times: int) -> dict[str, float]:
        """How many times as fast as one call of the kernel, which moves the same bytes in turns with it."""
        mine = self._mine.of(size)
        here = np.frombuffer(mine, np.uint8).ctypes.data
        kernel = {
            "read": (kernel_call("process_vm_readv", pid, here, there), buffer.read_into),
            "write": (kernel_call("process_vm_writev", pid, here, there), buffer.write_from),
        }
        found = {}
        for what, (call, work) in kernel.items():
            ratios = []
            for _ in range(times):
                started = time.perf_counter()
                call(size)
                between = time.perf_counter()
                work(mine).get()
                ratios.append((between - started) / (time.perf_counter() - between))
            found[what] = median(ratios)
        _check(mine)
        return found


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
