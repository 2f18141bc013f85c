"""Buffers of more bytes than 31 bits count, without that much memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence

from milkweed.runtime import RDMABuffer
from tests.runtime.memory.peers import hold

__all__ = ["PERIOD", "SIZE", "Folded", "fold", "folded_content", "sparse"]

SIZE = 2**31 + 7
PERIOD = 7 * 1024 * 1024  # of what is folded: neither 2^31 nor 2^32 is a multiple
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000


class Folded:
    """So much address space, in which a few megabytes come again and again."""

    def __init__(self, content: bytes, size: int = SIZE) -> None:
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._area = mmap.mmap(-1, pages, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._area))
        call = ctypes.CDLL(None, use_errno=True).mmap
        call.restype = ctypes.c_void_p
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        file = os.memfd_create("folded")
        os.ftruncate(file, PERIOD)
        for at in range(0, pages, PERIOD):
            length, wanted = min(PERIOD, pages - at), address + at
            rights, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED
            assert call(wanted, length, rights, kind, file, 0) == wanted
        os.close(file)
        self.view = memoryview(self._area)[:size]
        self.view[:PERIOD] = content

    def content(self) -> bytes:
        return bytes(self.view[:PERIOD])


_folded: list[Folded] = []


def fold(content: bytes) -> RDMABuffer:
    """A buffer of SIZE bytes, in a peer."""
    _folded[:] = [Folded(content)]
    return hold(0, RDMABuffer(_folded[0].view))


def folded_content() -> bytes:
    return _folded[0].content()


def sparse(path: str | None, at: Sequence[int]) -> RDMABuffer:
    """A buffer of holes, of a file or (None) of its own, with the low byte of each place at that place."""
    if path is None:
        buffer = RDMABuffer(SIZE)
        area: memoryview | mmap.mmap = buffer.memory
    else:
        with open(path, "w+b") as file:
            file.truncate(SIZE)
            area = mmap.mmap(file.fileno(), SIZE)
        buffer = RDMABuffer(area)
    for place in at:
        area[place] = low_byte(place)
    return hold(0, buffer)


def low_byte(place: int) -> int:
    return place % 251
