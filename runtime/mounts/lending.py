"""Landings for what one peer sends, for as long as a transport moves bytes into them."""

from __future__ import annotations

import logging
from collections import Counter

import anyio

from ..errors import MilkweedError
from .feed import Chunk, Landed, NotLanded
from .landing import LEAST_LANDED, Landing, Landings
from .source import Bytes

__all__ = ["Lending"]

logger = logging.getLogger(__name__)

_CLOSED_S = 30.0
_FRAMES = "messages"


class Lending:
    """`moved` is how many bytes came by what; `in_messages` is why no transport moves the large ranges."""

    def __init__(self, landings: Landings, peer: str) -> None:
        self.moved: Counter[str] = Counter()
        self.in_messages = ""
        self._landings = landings
        self._peer = peer
        self._closed_until = 0.0

    def lend(self, length: int) -> Landing | None:
        """None where these bytes are to come in the answer."""
        if length < LEAST_LANDED or anyio.current_time() < self._closed_until:
            return None
        try:
            return self._landings.lend(length)
        except (MilkweedError, OSError) as error:
            self._failed(str(error))
            return None

    def received(self, landing: Landing | None, answer: Chunk | Landed | NotLanded, length: int) -> Bytes:
        """The bytes, wherever they are; the landing is done with."""
        if isinstance(answer, Landed):
            assert landing is not None
            self.in_messages = ""
            self.moved[answer.transport] += length
            return landing.taken(length)
        if isinstance(answer, NotLanded) and answer.why:
            if landing is not None:
                landing.spoiled()
            self._failed(answer.why)
        elif landing is not None:
            landing.unused()
        return self.counted(answer.data if isinstance(answer, Chunk) else answer.chunk.data)

    def counted(self, data: Bytes) -> memoryview:
        """What came in an answer."""
        self.moved[_FRAMES] += len(data)
        return memoryview(data)

    def _failed(self, why: str) -> None:
        if why != self.in_messages:
            logger.warning("bytes of %s come in messages: %s", self._peer, why)
        self.in_messages = why
        self._closed_until = anyio.current_time() + _CLOSED_S
