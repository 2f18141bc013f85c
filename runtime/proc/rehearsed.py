"""The actor of a rehearsal, in a module of its own: it is imported as a user's is."""

from __future__ import annotations

from ..actor import Actor, endpoint

__all__ = ["Rehearsed"]


class Rehearsed(Actor):
    def __init__(self, word: str) -> None:
        self._word = word

    @endpoint
    def on_main(self) -> str:
        return self._word

    @endpoint
    async def on_loop(self) -> str:
        return self._word
