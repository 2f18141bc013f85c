"""What to do while the disk of a host is slower than its network: let it be, or wait for it.

A host that reads for itself alone waits for no disk: what is not written is fetched again when it is read
again, if ever. What it lends to other hosts is asked for once more in a moment, and each time would come from
the client: then the disk is waited for, as long as it moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from .manifest import FileRef
from .source import Bytes, Reads

__all__ = ["MOST_WAITING", "Lent", "Pace"]

MOST_WAITING: Final = 64 * 1024 * 1024
"""Bytes that may wait for the disk; twice as many while it is waited for."""
_LENT_S = 30.0
_PATIENCE_S = 5.0
_GIVEN_UP_S = 60.0


class Pace:
    """`waiting`: bytes that are on their way to the disk."""

    def __init__(self) -> None:
        self.waiting = 0
        self._lent_until = 0.0
        self._given_up_until = 0.0
        self._moved = anyio.Event()

    def lent(self) -> None:
        """Another host has read here."""
        self._lent_until = anyio.current_time() + _LENT_S

    def began(self, length: int) -> bool:
        """Whether so many bytes are to be written; `ended` is to be called in any case."""
        self.waiting += length
        return self.waiting <= (2 * MOST_WAITING if self._is_patient else MOST_WAITING)

    def ended(self, length: int) -> None:
        self.waiting -= length
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    @property
    def is_lent(self) -> bool:
        """Whether other hosts read here, or did a moment ago."""
        return anyio.current_time() < self._lent_until

    @property
    def is_behind(self) -> bool:
        """Whether the disk itself should no longer be waited for, but the kernel have what is written."""
        return self.waiting > MOST_WAITING // 2

    async def follow(self) -> None:
        """Returns when more may be fetched. A disk that stands still for 5 s is given up for a minute."""
        if self.waiting <= MOST_WAITING or not self._is_patient:
            return
        while self.waiting > MOST_WAITING and self._is_patient:
            with anyio.move_on_after(_PATIENCE_S) as scope:
                await self._moved.wait()
            if scope.cancelled_caught:
                self._given_up_until = anyio.current_time() + _GIVEN_UP_S

    @property
    def _is_patient(self) -> bool:
        return self.is_lent and self._given_up_until < anyio.current_time()


class Lent:
    """A host's bytes as other hosts read them: a `Reads`."""

    def __init__(self, reads: Reads, pace: Pace) -> None:
        self._reads = reads
        self._pace = pace

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        self._pace.lent()
        return await self._reads.read(file, offset, length)

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        self._pace.lent()
        return await self._reads.read_whole(files)
