"""What procs run while they are measured; in a module of its own, since each of them imports it."""

from __future__ import annotations

from milkweed.runtime import Actor, endpoint

__all__ = ["Echo"]


class Echo(Actor):
    @endpoint
    async def echo(self, value: int) -> int:
        return value
