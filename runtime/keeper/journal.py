"""Writing to the index from a keeper: a full disk or a broken index never stops the mesh."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from ..errors import Unavailable

__all__ = ["Journal"]

logger = logging.getLogger(__name__)


class Journal:
    """What the index refuses is kept, newest of each key, and tried again with the next write."""

    def __init__(self) -> None:
        self._pending: dict[Hashable, Callable[[], None]] = {}

    def write(self, key: Hashable, entry: Callable[[], None]) -> None:
        """`entry` writes what is now true of `key`, and may be called later instead, or again."""
        self._pending[key] = entry
        self.flush()

    def flush(self) -> None:
        for key, entry in list(self._pending.items()):
            try:
                entry()
            except Unavailable as error:
                logger.warning("%d entries wait for the index: %s", len(self._pending), error)
                return
            del self._pending[key]
