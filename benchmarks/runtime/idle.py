"""An actor that does nothing, in a module that imports nothing: procs are weighed by what they are."""

from __future__ import annotations

import os

from .api import Actor, endpoint

__all__ = ["Idle"]


class Idle(Actor):
    @endpoint
    async def pid(self) -> int:
        return os.getpid()
