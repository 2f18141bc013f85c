"""Memory for bytes that are sent: used again when they have left, so that what a source holds does not grow
with what is read of it, nor with how many read.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import weakref
from contextlib import suppress
from typing import Final

import anyio

__all__ = ["MOST_OUT", "Outgoing"]

MOST_OUT: Final = 16 * 1024 * 1024
"""Bytes that may be on their way; more only where none of them leaves for a second."""
_SLAB = 4 * 1024 * 1024
_LEAST = 256 * 1024
_WAIT_S = 1.0
_IDLE_S = 1.0


class Outgoing:
    """Of one loop; what it gave may be let go in any thread."""

    def __init__(self) -> None:
        self.out = 0
        self._free: list[mmap.mmap] = []
        self._left = anyio.Event()
        self._loop = asyncio.get_running_loop()

    async def take(self, size: int) -> memoryview:
        """Memory of `size` bytes, with anything in it, free again when no view of it is left."""
        if not _LEAST <= size <= _SLAB:
            return memoryview(bytearray(size))
        with anyio.move_on_after(_WAIT_S):  # a host that takes nothing more is not to hold up the others
            while self.out + _SLAB > MOST_OUT:
                await self._left.wait()
        mapping = self._free.pop() if self._free else mmap.mmap(-1, _SLAB, mmap.MAP_PRIVATE)
        self.out += _SLAB
        lent = (ctypes.c_char * size).from_buffer(mapping)
        weakref.finalize(lent, self._let_go, mapping).atexit = False
        return memoryview(lent).cast("B")

    def _let_go(self, mapping: mmap.mmap) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._back, mapping)

    def _back(self, mapping: mmap.mmap) -> None:
        self.out -= _SLAB
        if self.out + _SLAB <= MOST_OUT:
            self._free.append(mapping)
        left, self._left = self._left, anyio.Event()
        left.set()
        if not self.out:
            self._loop.call_later(_IDLE_S, self._rest)

    def _rest(self) -> None:
        if not self.out:
            self._free.clear()
