"""How pyfuse3 waits for the kernel's requests on an asyncio loop.

Imported in the mount process alone, and before anything else there that imports pyfuse3.
"""

from __future__ import annotations

import asyncio
import select
import sys
from types import ModuleType

# pyfuse3 imports trio, and uses asyncio in its place once it is told to: a quarter of this process's start.
sys.modules.setdefault("trio", ModuleType("trio"))

import pyfuse3.asyncio  # noqa: E402 - see above

__all__ = ["use_asyncio"]

_MOST_IN_A_ROW = 16


def use_asyncio() -> None:
    """Has pyfuse3 run on asyncio, and look for the next request before it waits for one, which is dear.

    Must be called before `pyfuse3.init`.
    """
    pyfuse3.asyncio.enable()
    pyfuse3.asyncio.wait_readable = _Requests().wait


class _Requests:
    def __init__(self) -> None:
        self._poll: select.poll | None = None
        self._in_a_row = 0

    async def wait(self, fd: int) -> None:
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(fd, select.POLLIN)
        self._in_a_row += 1
        if self._in_a_row >= _MOST_IN_A_ROW:  # others on this loop want their turn too
            self._in_a_row = 0
            await asyncio.sleep(0)
        if self._poll.poll(0):
            return
        self._in_a_row = 0
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(fd)


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
