"""The result of a broadcast: nothing of it is under way when a waiter goes on, though that was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from anyio import CancelScope

from ...errors import Unavailable
from ...node import Future, Node

__all__ = ["Broadcasting"]

T = TypeVar("T")


class Broadcasting(Future[T]):
    __slots__ = ("_work",)

    def __init__(self, here: Node, work: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._work: Future[None] = here.start(self._settled_by(work))

    async def _settled_by(self, work: Coroutine[Any, Any, T]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                task.cancel()
        self.settle(_cancelled if task.cancelled() else task.result)

    def _on_cancel(self) -> None:
        self._work.cancel()

    def get(self, timeout_s: float | None = None) -> T:
        try:
            return super().get(timeout_s)
        except TimeoutError:
            raise
        except BaseException:
            while not self.done():
                with suppress(TimeoutError):
                    super().get(None)
            raise

    async def _until_done(self) -> None:
        try:
            await super()._until_done()
        except asyncio.CancelledError:
            with CancelScope(shield=True):  # a scope that is cancelled cancels again and again
                while not self.done():
                    with suppress(asyncio.CancelledError):
                        await super()._until_done()
            raise


def _cancelled() -> NoReturn:
    raise Unavailable("cancelled", "the broadcast was cancelled", "Some receivers may have a part of it.")
