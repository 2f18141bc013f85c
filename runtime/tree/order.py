"""The order of one sender's messages at a proc that they reach in several ways. Pure.

Each message names the one that is to be taken before it. One that comes too early is held until that one
has come. What comes behind a direct message in its connection was sent after it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from .envelope import Envelope

__all__ = ["Order"]

T = TypeVar("T")


class Order(Generic[T]):
    """`last` is the number of the last numbered message that was taken."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self._held: list[tuple[Envelope, T]] = []

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    def knows(self, number: int) -> bool:
        """Whether a message of this number has come."""
        return number <= self.last or any(one.number == number for one, _ in self._held)

    def arrived(self, envelope: Envelope, message: T) -> list[T]:
        """Those that are to be taken now, in their order. A number that is known is not to be given."""
        if envelope.previous > self.last:
            self._held.append((envelope, message))
            return []
        self.last = max(self.last, envelope.number)
        return [message, *self._released()]

    def give_up(self, number: int) -> list[T]:
        """Nothing waits for this number, nor for one before it, any more. Those to be taken now."""
        self.last = max(self.last, number)
        return self._released()

    def _released(self) -> list[T]:
        taken: list[T] = []
        at = 0
        while at < len(self._held):
            envelope, message = self._held[at]
            if envelope.previous > self.last:
                at += 1
                continue
            del self._held[at]
            self.last = max(self.last, envelope.number)
            taken.append(message)
            at = 0
        return taken
