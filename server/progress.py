"""Progress of one call: what the tool reports, and a heartbeat while it has nothing to report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

__all__ = ["Progress"]

Send = Callable[[float, float | None, str | None], Awaitable[None]]


class Progress:
    """Forwards reports to `send`, always with a value above the one before, as the protocol demands."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._last = -1.0
        self._total: float | None = None
        self._message = ""
        self._reports = 0

    async def report(self, done: float, total: float | None, message: str) -> None:
        self._reports += 1
        self._total, self._message = total, message
        await self._advance(done, message)

    @asynccontextmanager
    async def heartbeat(self, interval_s: float) -> AsyncIterator[None]:
        """While open, sends something at least every `interval_s` seconds."""
        async with anyio.create_task_group() as beats:
            beats.start_soon(self._beat, interval_s)
            yield
            beats.cancel_scope.cancel()

    async def _beat(self, interval_s: float) -> None:
        started = anyio.current_time()
        while True:
            seen = self._reports
            await anyio.sleep(interval_s)
            if seen == self._reports:
                elapsed = anyio.current_time() - started
                done = elapsed if self._total is None else 0.0
                words = f"{self._message}, " if self._message else ""
                await self._advance(done, f"{words}{elapsed:.0f} s so far")

    async def _advance(self, done: float, message: str) -> None:
        self._last = done if done > self._last else self._last + 0.001
        await self._send(self._last, self._total, message)
