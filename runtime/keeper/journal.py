"""Writing to the index from a keeper: a full disk or a broken index never stops the mesh."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

import anyio

from ..errors import Unavailable

__all__ = ["Journal"]

logger = logging.getLogger(__name__)

_RETRY_S = 1.0


class Journal:
    """What the index refuses is kept, newest of each key, and tried again with the next write."""

    def __init__(self) -> None:
        self._pending: dict[Hashable, Callable[[], None]] = {}

    def write(self, key: Hashable, entry: Callable[[], None]) -> None:
        """`entry` writes what is now true of `key`, and may be called later instead, or again."""
        self._pending[key] = entry
        self.flush()

    async def drain(self, index_there: Callable[[], bool]) -> None:
        """Returns when the index has everything, however long its disk is full, or when it was removed."""
        while not self.flush() and index_there():  # noqa: ASYNC110 - a disk tells nobody of its room
            await anyio.sleep(_RETRY_S)

    def flush(self) -> bool:
        """Whether the index has everything."""
        for key, entry in list(self._pending.items()):
            try:
                entry()
            except Unavailable as error:
                logger.warning("%d entries wait for the index: %s", len(self._pending), error)
                return False
            del self._pending[key]
        return True
