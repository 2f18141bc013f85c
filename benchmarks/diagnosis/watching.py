"""What it costs to watch runs, and how soon a hang is seen: the lines of `benchmarks.watching`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .. import watching
from ..harness import Line

__all__ = ["run"]


async def run(*, quick: bool) -> AsyncIterator[Line]:
    async for line in watching.run(quick=quick):
        yield line
