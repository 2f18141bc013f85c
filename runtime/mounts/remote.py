"""Somebody else's source, or bytes, over a socket: what calls the actors of `feed`."""

from __future__ import annotations

import asyncio
import errno
import logging
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.abc

from ..call import ActorRef, Session
from ..errors import MilkweedError, Unavailable
from ..receiving import KeptMemory
from ..tasks import background_tasks
from .deltas import Delta
from .doors import connect_feed
from .feed import FEED, Chunk, Feed, ReadFeed
from .landing import Landing, Landings
from .lending import Lending
from .manifest import FileRef, Manifest
from .overlay import HostCopy
from .packing import unpack, unpack_manifest
from .source import Bytes, Gone, Unreadable

__all__ = ["RemoteReads", "RemoteSource", "open_remote"]

logger = logging.getLogger(__name__)

_PATIENCE_S = 60.0
_CALL_S = 30.0
_RETRY_S = 0.05
_RETRY_MOST_S = 1.0

T = TypeVar("T")


class _Link:
    """A session that is made again when it ends."""

    def __init__(self, address: str | Path, role: str, peer: str, patience_s: float) -> None:
        self._address = str(address)
        self._why = ""
        self._role = role
        self._peer = peer
        self._patience_s = patience_s
        self._session: Session | None = None
        self._linked = anyio.Event()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keeps the session; reports started at once."""
        task_status.started()
        wait_s = _RETRY_S
        memory = KeptMemory(asyncio.get_running_loop())
        while True:
            try:
                sock = await connect_feed(self._address, self._peer)
                session = Session(sock, role=self._role, peer=self._peer, memory=memory.take)
                async with background_tasks() as tasks:
                    await tasks.start(session.run)
                    wait_s = _RETRY_S
                    self._session = session
                    self._linked.set()
                    await session.closed.wait()
                self._why = ""
            except MilkweedError as error:
                self._why = f": {error.cause}"
            finally:
                if self._session is not None:
                    self._session = None
                    self._linked = anyio.Event()
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, _RETRY_MOST_S)

    async def ask(self, question: Callable[[Session], Awaitable[T]], patience_s: float | None = None) -> T:
        """Asks whoever is there, again if it goes: what is asked may be repeated.

        Raises:
            Unavailable: nobody was there for so long.
        """
        patience_s = self._patience_s if patience_s is None else patience_s
        deadline = anyio.current_time() + patience_s
        while True:
            with anyio.move_on_at(deadline):
                while self._session is None:
                    await self._linked.wait()
            session = self._session
            if session is None:
                raise Unavailable(
                    "connection_lost",
                    f"{self._peer} was not there for {patience_s:.0f} s{self._why}",
                    "Look whether it runs, then read again.",
                )
            try:
                return await question(session)
            except Unavailable:
                if anyio.current_time() >= deadline:
                    raise
                if self._session is session:  # its end is about to be noticed
                    await anyio.sleep(_RETRY_S)


class RemoteReads:
    """Somebody's bytes: a `Reads`. Nobody there for `patience_s`: Unavailable.

    Large ranges are written into `landings` (its own where none are given) by whoever has them, where a
    transport does that; else they come in the answer. `moved` and `in_messages` are those of `Lending`.
    """

    def __init__(
        self, address: str | Path, peer: str, patience_s: float = 0.0, landings: Landings | None = None
    ) -> None:
        self._link = _Link(address, "reader", peer, patience_s)
        self._landings = Landings() if landings is None else landings
        self._lending = Lending(self._landings, peer)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        try:
            await self._link.run(task_status=task_status)
        finally:
            self._landings.close()

    @property
    def moved(self) -> Counter[str]:
        return self._lending.moved

    @property
    def in_messages(self) -> str:
        return self._lending.in_messages

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        async def question(session: Session) -> Bytes | int:
            feed: ActorRef[ReadFeed] = session.actor(FEED, ReadFeed).within(_CALL_S)
            if (landing := self._lending.lend(length)) is not None:
                return await self._landed(feed, landing, file, offset, length)
            answer = await feed.call_one(ReadFeed.read, *file, offset, length)
            return self._lending.counted(answer.data) if isinstance(answer, Chunk) else answer

        answer = await self._link.ask(question)
        if not isinstance(answer, int):
            return answer
        if answer == errno.ESTALE:
            raise Gone
        raise Unreadable(answer)

    async def _landed(
        self, feed: ActorRef[ReadFeed], landing: Landing, file: FileRef, offset: int, length: int
    ) -> Bytes | int:
        try:
            answer = await feed.call_one(ReadFeed.read_to, *file, offset, length, landing.pickled)
        except BaseException:
            landing.spoiled()
            raise
        if isinstance(answer, int):
            landing.unused()
            return answer
        return self._lending.received(landing, answer, length)

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        async def question(session: Session) -> Chunk:
            feed: ActorRef[ReadFeed] = session.actor(FEED, ReadFeed).within(_CALL_S)
            return await feed.call_one(ReadFeed.read_whole, [(*file,) for file in files])

        data = self._lending.counted((await self._link.ask(question)).data)
        lengths = array("q", bytes(data[: 8 * len(files)]))
        found: list[Bytes | None] = []
        at = 8 * len(files)
        for length in lengths:
            found.append(None if length < 0 else data[at : at + length])
            at += max(0, length)
        return found


class RemoteSource(RemoteReads):
    """Somebody's source, followed under a name: a `Source`."""

    def __init__(
        self,
        address: str | Path,
        follower: str,
        *,
        peer: str = "the client",
        patience_s: float = _PATIENCE_S,
        landings: Landings | None = None,
    ) -> None:
        super().__init__(address, peer, patience_s, landings)
        self._follower = follower

    async def open(self) -> Manifest:
        async def question(session: Session) -> Chunk:
            return await session.actor(FEED, Feed).within(_CALL_S).call_one(Feed.open)

        return unpack_manifest((await self._link.ask(question)).data)

    async def since(self, epoch: int, revision: int) -> Delta | Manifest:
        async def question(session: Session) -> Chunk:
            feed = session.actor(FEED, Feed).within(None)
            return await feed.call_one(Feed.follow, self._follower, epoch, revision)

        return unpack((await self._link.ask(question, float("inf"))).data)

    async def kept(self, copies: Sequence[HostCopy]) -> None:
        """Tells of conflicts, however long that takes: before what they are with is acknowledged."""

        async def question(session: Session) -> None:
            feed = session.actor(FEED, Feed).within(_CALL_S)
            await feed.call_one(Feed.kept, self._follower, [(*copy,) for copy in copies])

        await self._link.ask(question, float("inf"))


@asynccontextmanager
async def open_remote(
    address: str | Path,
    follower: str,
    *,
    patience_s: float = _PATIENCE_S,
    landings: Landings | None = None,
) -> AsyncIterator[RemoteSource]:
    """A `RemoteSource` for the length of a `with` block."""
    source = RemoteSource(address, follower, patience_s=patience_s, landings=landings)
    async with background_tasks() as tasks:
        await tasks.start(source.run)
        yield source
