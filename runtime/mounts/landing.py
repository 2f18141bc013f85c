"""Memory that others write a reader's bytes into, by themselves.

A piece of it is given to one request. Another gets it only when the answer has said that the write into it is
over, and nobody holds what was read. Where no such answer came it is dropped: a write that is late then finds
no buffer, rather than that of another request.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import pickle
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import MilkweedError

if TYPE_CHECKING:
    from ..memory import RDMABuffer
    from ..node import Future

__all__ = ["LEAST_LANDED", "Landing", "Landings"]

logger = logging.getLogger(__name__)

LEAST_LANDED = 1024 * 1024
"""Bytes from which on a range is worth a landing: fewer come as fast in the answer itself."""
_SIZES = (1024 * 1024, 4 * 1024 * 1024)
_MOST = 128 * 1024 * 1024
_MOST_IDLE = 4
_KEEP_S = 30.0
_LOOK_S = 5.0
_DROP_S = 60.0
_HUGE_PAGE = 2 * 1024 * 1024


class Landing:
    """One request's; exactly one of its methods is called, once, when that request is over."""

    def __init__(self, landings: Landings, size: int) -> None:
        """
        Raises:
            MilkweedError: no buffer can be had.
            OSError: nor memory.
        """
        from ..memory import RDMABuffer

        self.size = size
        self.used_at = 0.0
        self._mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= _HUGE_PAGE:
            with suppress(OSError):
                self._mapping.madvise(mmap.MADV_HUGEPAGE)  # pinned and copied twice as fast as small pages
        self._buffer: RDMABuffer = RDMABuffer(self._mapping, read=False)
        self.pickled = pickle.dumps(self._buffer)
        self._landings = landings

    def taken(self, length: int) -> memoryview:
        """What was written there; the landing is free when nobody holds any of it."""
        import ctypes

        array = (ctypes.c_ubyte * self.size).from_buffer(self._mapping)
        weakref.finalize(array, self._landings.give_back, self).atexit = False
        return memoryview(array).cast("B")[:length]

    def unused(self) -> None:
        """No write into it is under way, nor will be."""
        self._landings.give_back(self)

    def spoiled(self) -> None:
        """A write into it may be under way, or begin."""
        self._landings.drop(self)

    def drop(self) -> Future[None]:
        """`RDMABuffer.drop`."""
        return self._buffer.drop(timeout=_DROP_S)


class Landings:
    """Of one loop, whose thread alone may call what is not said to be for any. They are made when they are
    needed, and kept for a while.
    """

    def __init__(self, most: int = _MOST) -> None:
        """`most` bytes at once, those included that somebody holds, or may write into; 0: none."""
        self._most = most
        self._bytes = 0
        self._is_prepared = False
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._returned: deque[Landing] = deque()
        self._idle: list[Landing] = []  # who was used last is last
        self._dropping: list[tuple[Landing, Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """Bytes of all of them."""
        return self._bytes

    def prepare(self) -> None:
        """Imports what landings need, which takes some 0.1 s; any thread. Where those modules are what a
        mount is to show, its process cannot do that later.
        """
        try:
            import ctypes  # noqa: F401

            from .. import memory  # noqa: F401
        except ImportError as error:
            logger.warning("all bytes come in messages: %s", error)
            return
        self._is_prepared = True

    def begin(self) -> None:
        """Has `prepare` done in a thread; as the first `lend` does, which then has nothing yet."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            if not self._is_prepared and self._most:
                self._loop.run_in_executor(None, self.prepare)

    def lend(self, length: int) -> Landing | None:
        """One for so many bytes; None while none can be: what they need is not imported yet, there are too
        many, or that is too much for one.

        Raises:
            MilkweedError: no buffer can be had.
            OSError: nor memory.
        """
        size = next((size for size in _SIZES if size >= length), None)
        if size is None or size > self._most or self._is_closed:
            return None
        self.begin()
        if not self._is_prepared:
            return None
        self._settle()
        for one in reversed(self._idle):
            if one.size == size:
                self._idle.remove(one)
                return one
        if self._bytes + size > self._most:
            return None
        made = Landing(self, size)
        self._bytes += size
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(_LOOK_S, self._look)
        return made

    def give_back(self, landing: Landing) -> None:
        """It may be lent again; any thread, in the middle of anything: bytes are let go anywhere."""
        self._returned.append(landing)
        if self._is_closed and self._loop is not None:
            with suppress(RuntimeError):  # that loop is closed: the process ends
                self._loop.call_soon_threadsafe(self.close)

    def drop(self, landing: Landing) -> None:
        """From now on no write into it begins; it counts until none is under way."""
        with suppress(MilkweedError):  # the process ends, and all of its buffers
            self._dropping.append((landing, landing.drop()))

    def close(self) -> None:
        """Lends none any more, and keeps none that nobody holds."""
        self._is_closed = True
        self._settle()
        for one in tuple(self._idle):
            self._let_go(one)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self) -> None:
        now = time.monotonic()
        while self._returned:
            one = self._returned.popleft()
            one.used_at = now
            self._idle.append(one)
        dropping, self._dropping = self._dropping, []
        for one, dropped in dropping:
            if not dropped.done():
                self._dropping.append((one, dropped))
                continue
            try:
                dropped.get()
            except MilkweedError:  # who was to write into it has been stopped
                self.drop(one)
            else:
                self._bytes -= one.size

    def _look(self) -> None:
        self._settle()
        old = time.monotonic() - _KEEP_S
        for size in _SIZES:
            alike = [one for one in self._idle if one.size == size]
            for at, one in enumerate(alike, 1):
                if one.used_at < old or at <= len(alike) - _MOST_IDLE:
                    self._let_go(one)
        assert self._loop is not None
        self._timer = self._loop.call_later(_LOOK_S, self._look) if self._bytes else None

    def _let_go(self, one: Landing) -> None:
        self._idle.remove(one)
        self.drop(one)
