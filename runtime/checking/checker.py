"""The actor that a host is checked by: two of them a host, of which one offers memory and the other reads."""

from __future__ import annotations

import ctypes
import mmap
import time

from ..actor import Actor, endpoint
from ..memory import RDMABuffer
from .probes import SysfsRdma, look
from .records import HostFacts, Measured

__all__ = ["Checker"]

_FIRST = 64 * 1024
_GROWTH = 4
_REPEATS = 3
_SLACK_S = 2.5


class Checker(Actor):
    def __init__(self) -> None:
        self._offered: RDMABuffer | None = None

    @endpoint
    def facts(self) -> HostFacts:
        return look(SysfsRdma())

    @endpoint
    def offer(self, size: int) -> RDMABuffer:
        """Memory such as a program has, not such as is mapped by others, until `withdraw`."""
        area = mmap.mmap(-1, size)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(area)), 1, size)  # there before it is read
        self._offered = RDMABuffer(area, write=False)
        return self._offered

    @endpoint
    def withdraw(self) -> None:
        if self._offered is not None:
            self._offered.drop().get()
            self._offered = None

    @endpoint
    def measure(self, buffer: RDMABuffer, seconds: float) -> Measured:
        """Reads ever more of the buffer, as much as `seconds` are enough for; the whole of it several times.

        Raises:
            MilkweedError: as `RDMABuffer.read_into`; deadline_exceeded where not even the first 64 KiB came.
        """
        whole = buffer.size()
        size, best, repeats = min(_FIRST, whole), 0.0, 0
        ends = time.perf_counter() + seconds
        area = mmap.mmap(-1, whole)
        while True:
            started = time.perf_counter()
            buffer.read_into(area, 0, size, timeout=seconds + _SLACK_S).get()
            now = time.perf_counter()
            speed = size / (now - started)
            best, repeats = max(best if repeats else 0.0, speed), repeats + 1
            more = min(whole, size * _GROWTH)
            if more > size and now + more / speed <= ends:
                size, repeats = more, 0
            elif repeats >= _REPEATS or now + size / speed > ends:
                break
        way = buffer.transport
        return Measured(way.name, best / 1e9, size, way.passed_over)
