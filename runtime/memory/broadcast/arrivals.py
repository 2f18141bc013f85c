"""Which pieces of a receiver's buffer are there, for those that wait to take them; any thread."""

from __future__ import annotations

import threading

__all__ = ["Arrivals"]


class Arrivals:
    """Pieces in the order in which they came: who waits remembers how many it was told."""

    def __init__(self) -> None:
        self._pieces: list[int] = []
        self._changed = threading.Condition()
        self.ended = False

    def add(self, piece: int) -> None:
        with self._changed:
            self._pieces.append(piece)
            self._changed.notify_all()

    def end(self) -> None:
        """Nobody is to wait any more."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def after(self, told: int, wait_s: float) -> tuple[int, ...]:
        """Those that came after the first `told`; waits for one, if there is none, for so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or len(self._pieces) > told, wait_s)
            return tuple(self._pieces[told:])
