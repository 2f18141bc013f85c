"""How pyfuse3 waits for the kernel's requests on an asyncio loop.

Imported in the mount process alone, and before anything else there that imports pyfuse3.
"""

from __future__ import annotations

import asyncio
import select
import sys
from types import ModuleType


def _stand_in(name: str, **content: object) -> bool:
    """Whether a module that is dear to import had to be put in its place."""
    if name in sys.modules:
        return False
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(content)
    return True


# pyfuse3 imports trio, and uses asyncio in its place once it is told to; its version it looks up in files:
# together a third of this process's start.
_stand_in("trio")
_is_ours = _stand_in("importlib.metadata", version=str, PackageNotFoundError=LookupError)

import pyfuse3.asyncio  # noqa: E402 - see above

if _is_ours:
    del sys.modules["importlib.metadata"]

__all__ = ["use_asyncio"]

_MOST_IN_A_ROW = 16


def use_asyncio() -> None:
    """Has pyfuse3 run on asyncio, and look for the next request before it waits for one, which is dear.

    Must be called before `pyfuse3.init`.
    """
    pyfuse3.asyncio.enable()
    pyfuse3.asyncio.wait_readable = _Requests().wait


class _Requests:
    """Waits for the next request. The descriptor stays with the loop between waits: to add and to remove it
    costs more than many a request."""

    def __init__(self) -> None:
        self._poll: select.poll | None = None
        self._in_a_row = 0
        self._is_watched = False
        self._waiting: asyncio.Future[None] | None = None

    async def wait(self, fd: int) -> None:
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(fd, select.POLLIN)
        self._in_a_row += 1
        if self._in_a_row >= _MOST_IN_A_ROW:  # others on this loop want their turn too
            self._in_a_row = 0
            await asyncio.sleep(0)
        # Looked at again after the loop has told: it may tell of a request that was read since, and a read
        # with no request blocks for ever.
        while not self._poll.poll(0):
            self._in_a_row = 0
            await self._told_by_loop(fd)

    async def _told_by_loop(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        if not self._is_watched:
            loop.add_reader(fd, self._tell, loop, fd)
            self._is_watched = True
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _tell(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        if self._waiting is None:  # nobody reads now: level-triggered, it would be told in every turn
            loop.remove_reader(fd)
            self._is_watched = False
        elif not self._waiting.done():
            self._waiting.set_result(None)
