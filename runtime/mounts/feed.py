"""A source for other processes: an actor that serves it, and the caller's end, which is a source again."""

from __future__ import annotations

import asyncio
import errno
import pickle
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc

from ..actor import Actor, endpoint
from ..call import ActorRef, Session, connect
from ..errors import MilkweedError, Unavailable
from ..receiving import KeptMemory
from ..tasks import background_tasks
from .deltas import Delta
from .manifest import FileRef, Manifest
from .packing import pack_delta, pack_manifest, unpack, unpack_manifest
from .source import Bytes, Gone, Reads, Source, Unreadable

__all__ = ["FEED", "Chunk", "Feed", "Followers", "ReadFeed", "RemoteReads", "RemoteSource", "open_remote"]

FEED = "feed"
"""The name of the actor on its socket."""
_PATIENCE_S = 60.0
_CALL_S = 30.0
_RETRY_S = 0.05
_RETRY_MOST_S = 1.0

T = TypeVar("T")


class Chunk:
    """Bytes that cross without being copied."""

    __slots__ = ("data",)

    def __init__(self, data: Bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return Chunk, (pickle.PickleBuffer(self.data),)


class Followers:
    """Who shows which revision."""

    def __init__(self) -> None:
        self.revisions: dict[str, int] = {}
        self._calls: dict[str, object] = {}
        self._heard = anyio.Event()

    def acknowledge(self, follower: str, revision: int) -> object:
        """What names this call, for `left`."""
        self.revisions[follower] = revision
        call = self._calls[follower] = object()
        heard, self._heard = self._heard, anyio.Event()
        heard.set()
        return call

    def left(self, follower: str, call: object) -> None:
        """It is not counted any more, unless it has called again since."""
        if self._calls.get(follower) is call:
            self.revisions.pop(follower, None)
            del self._calls[follower]

    def behind(self, revision: int, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.revisions.get(name, -1) < revision]

    async def acknowledged(self, revision: int, names: Iterable[str], within_s: float) -> list[str]:
        """Waits until all of these show the revision; who does not by then."""
        wanted = tuple(names)
        with anyio.move_on_after(within_s):
            while self.behind(revision, wanted):
                await self._heard.wait()
        return self.behind(revision, wanted)


class ReadFeed(Actor):
    """Serves bytes alone: what a host is to others."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    @endpoint
    async def read(self, path: bytes, version: int, size: int, offset: int, length: int) -> Chunk | int:
        """A range; a number is the errno of why not."""
        try:
            return Chunk(await self._reads.read(FileRef(path, version, size), offset, length))
        except Gone:
            return errno.ESTALE
        except Unreadable as error:
            return error.errno

    @endpoint
    async def read_whole(self, files: list[tuple[bytes, int, int]]) -> Chunk:
        """Small files in one go: a length each (-1: cannot be had here), then all their bytes."""
        found = await self._reads.read_whole([FileRef(*file) for file in files])
        lengths = array("q", [-1 if data is None else len(data) for data in found])
        return Chunk(b"".join([lengths.tobytes(), *(data for data in found if data is not None)]))


class Feed(ReadFeed):
    """Serves a source, and hears who shows what."""

    def __init__(self, source: Source, followers: Followers) -> None:
        super().__init__(source)
        self._source = source
        self._followers = followers
        self._packed: tuple[int, int, bytes] = (0, -1, b"")

    @endpoint
    async def open(self) -> Chunk:
        """The packed manifest."""
        manifest = await self._source.open()
        if self._packed[:2] != (manifest.epoch, manifest.revision):
            self._packed = (manifest.epoch, manifest.revision, pack_manifest(manifest))
        return Chunk(self._packed[2])

    @endpoint
    async def follow(self, follower: str, epoch: int, revision: int) -> Chunk:
        """Says that `follower` shows a revision, and waits for what comes after it: packed."""
        manifest = await self._source.open()
        call = self._followers.acknowledge(follower, revision if manifest.epoch == epoch else -1)
        try:
            news = await self._source.since(epoch, revision)
        except BaseException:
            self._followers.left(follower, call)
            raise
        return await self.open() if isinstance(news, Manifest) else Chunk(pack_delta(news))


class _Link:
    """A session that is made again when it ends."""

    def __init__(self, address: Path, role: str, peer: str, patience_s: float) -> None:
        self._address = address
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
                sock = await connect(self._address, self._peer)
                session = Session(sock, role=self._role, peer=self._peer, memory=memory.take)
                async with background_tasks() as tasks:
                    await tasks.start(session.run)
                    wait_s = _RETRY_S
                    self._session = session
                    self._linked.set()
                    await session.closed.wait()
            except MilkweedError:
                pass
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
                    f"{self._peer} was not there for {patience_s:.0f} s",
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
    """Somebody's bytes: a `Reads`. Nobody there for `patience_s`: Unavailable."""

    def __init__(self, address: Path, peer: str, patience_s: float = 0.0) -> None:
        self._link = _Link(address, "reader", peer, patience_s)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        await self._link.run(task_status=task_status)

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        async def question(session: Session) -> Chunk | int:
            feed: ActorRef[ReadFeed] = session.actor(FEED, ReadFeed).within(_CALL_S)
            return await feed.call_one(ReadFeed.read, file.path, file.version, file.size, offset, length)

        answer = await self._link.ask(question)
        if isinstance(answer, Chunk):
            return memoryview(answer.data)
        if answer == errno.ESTALE:
            raise Gone
        raise Unreadable(answer)

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        async def question(session: Session) -> Chunk:
            feed: ActorRef[ReadFeed] = session.actor(FEED, ReadFeed).within(_CALL_S)
            return await feed.call_one(ReadFeed.read_whole, [(*file,) for file in files])

        data = memoryview((await self._link.ask(question)).data)
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
        self, address: Path, follower: str, *, peer: str = "the client", patience_s: float = _PATIENCE_S
    ) -> None:
        super().__init__(address, peer, patience_s)
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


@asynccontextmanager
async def open_remote(
    address: Path, follower: str, *, patience_s: float = _PATIENCE_S
) -> AsyncIterator[RemoteSource]:
    """A `RemoteSource` for the length of a `with` block."""
    source = RemoteSource(address, follower, patience_s=patience_s)
    async with background_tasks() as tasks:
        await tasks.start(source.run)
        yield source
