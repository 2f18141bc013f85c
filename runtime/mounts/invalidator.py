"""The thread that tells the kernel what to forget.

To forget a name the kernel takes the lock of its directory, which a look-up there may hold that waits for us:
called on the loop's thread this would never end, and not even SIGKILL would end it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from .nodes import Invalid

__all__ = ["Invalidator", "Kernel"]

logger = logging.getLogger(__name__)


class Kernel(Protocol):
    """What pyfuse3 offers."""

    def invalidate_inode(self, inode: int, attr_only: bool = ...) -> None: ...
    def invalidate_entry(self, inode_p: int, name: bytes, deleted: int = ...) -> None: ...


class Invalidator:
    """Made on the loop; `close` lets the thread end after what it has been given."""

    def __init__(self, kernel: Kernel) -> None:
        self.told = 0
        self._kernel = kernel
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Sequence[Invalid], asyncio.Future[None]] | None] = SimpleQueue()
        # A thread that hangs in the kernel must not keep the process from ending.
        self._thread = Thread(target=self._run, name="invalidator", daemon=True)
        self._thread.start()

    async def tell(self, invalid: Sequence[Invalid]) -> None:
        """Returns when the kernel has forgotten all of it. Never to be awaited by a handler."""
        if not invalid:
            return
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((invalid, done))
        await done

    def close(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            invalid, done = job
            for one in invalid:
                try:
                    if one.name:
                        self._kernel.invalidate_entry(one.number, one.name)
                    else:
                        self._kernel.invalidate_inode(one.number, attr_only=True)
                except FileNotFoundError:  # it had forgotten by itself
                    pass
                except OSError as error:
                    logger.warning("the kernel did not take an invalidation: %s", error)
                self.told += 1
            try:
                self._loop.call_soon_threadsafe(_finish, done)
            except RuntimeError:  # the loop has ended
                return


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
