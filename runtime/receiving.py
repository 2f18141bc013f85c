"""Memory that payloads are received into.

A large one gets a mapping of its own. Fresh ones cost more than the copy into them: their pages are found,
zeroed and mapped, on a virtual machine perhaps for the first time ever. So they are kept for a while and used
again, though only once no buffer, array or tensor on them is left: what was received is its holder's for as
long as it is held.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["KEEP_S", "LEAST_MAPPING", "MOST_KEPT", "KeptMemory", "fresh_memory"]

LEAST_MAPPING = 4 * 1024 * 1024
"""Bytes from which on a payload has a mapping of its own."""
MOST_KEPT = 256 * 1024 * 1024
"""Bytes of mappings that are kept at most; those that somebody holds count too."""
KEEP_S = 30.0
"""For how many seconds since it was last received into a mapping is kept."""
_LOOK_S = 1.0
_HUGE_PAGE = 2 * 1024 * 1024
_FREE: int | None = getattr(mmap, "MADV_FREE", None)


def fresh_memory(size: int) -> memoryview:
    """Memory of `size` bytes. A large one gets its pages when they are written: a length that lies costs
    nothing.

    Raises:
        MemoryError: there is none.
    """
    return memoryview(bytearray(size) if size < LEAST_MAPPING else _mapped(size))


def _mapped(size: int) -> mmap.mmap:
    """On huge pages where there are any: small ones cost more to fault in than the copy does."""
    try:
        mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes to receive into") from error
    with suppress(OSError):  # a kernel without them
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


@dataclass(slots=True, eq=False)
class _Kept:
    mapping: mmap.mmap
    size: int
    used_at: float
    is_spare: bool = False
    """The kernel may take its pages, should memory run short."""

    def is_held(self) -> bool:
        """Whether anything refers to it but this: a buffer, or who found it below one (`memoryview.obj`).

        What has buffers cannot be resized, here to the size that it has.
        """
        if sys.getrefcount(self.mapping) > 2:  # ours, and that of the argument
            return True
        try:
            self.mapping.resize(self.size)
        except (BufferError, OSError, ValueError):  # whoever had it has closed it, or mapped part of it anew
            return True
        return False

    def fits(self, size: int) -> bool:
        """Not far larger: whoever holds a part of what is received holds the whole of it."""
        return 0 <= self.size - size <= max(_HUGE_PAGE, size // 4)


class KeptMemory:
    """Of one loop, whose thread alone may call it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept: list[_Kept] = []  # in the order in which they were used
        self._timer: asyncio.TimerHandle | None = None

    @property
    def kept(self) -> int:
        """Bytes of the mappings that are kept."""
        return sum(one.size for one in self._kept)

    def take(self, size: int) -> memoryview:
        """Memory of `size` bytes, with anything in it.

        Raises:
            MemoryError: there is none.
        """
        if not LEAST_MAPPING <= size <= MOST_KEPT:
            return fresh_memory(size)
        for one in reversed(self._kept):  # the last is the likeliest to be cached, and the others grow old
            if one.fits(size) and not one.is_held():
                self._kept.remove(one)
                return self._lend(one.mapping, size)
        return self._lend(_mapped(-(-size // _HUGE_PAGE) * _HUGE_PAGE), size)

    def forget(self) -> None:
        """Keeps nothing more; any thread, where the loop does not run: in a forked child."""
        self._kept = []

    def _lend(self, mapping: mmap.mmap, size: int) -> memoryview:
        self._kept.append(_Kept(mapping, len(mapping), self._loop.time()))
        while self.kept > MOST_KEPT:
            del self._kept[0]
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._look)
        return memoryview(mapping)[:size]

    def _look(self) -> None:
        now = self._loop.time()
        self._kept = [one for one in self._kept if now - one.used_at < KEEP_S]
        for one in self._kept:
            if not one.is_spare and now - one.used_at >= _LOOK_S and not one.is_held():
                one.is_spare = True
                if _FREE is not None:
                    with suppress(OSError):
                        one.mapping.madvise(_FREE)
        self._timer = self._loop.call_later(_LOOK_S, self._look) if self._kept else None
