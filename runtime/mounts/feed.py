"""A source for other processes: actors that serve it, or bytes alone. The callers' end is `remote`."""

from __future__ import annotations

import errno
import pickle
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..errors import MilkweedError
from .manifest import FileRef, Manifest
from .overlay import HostCopy
from .packing import pack_delta, pack_manifest
from .source import Bytes, Gone, Reads, Source, Unreadable

if TYPE_CHECKING:
    from ..memory import RDMABuffer  # which comes with the first landing: it is not light

__all__ = ["FEED", "MOVE_S", "Chunk", "Feed", "Followers", "Landed", "NotLanded", "ReadFeed", "land"]

FEED = "feed"
"""The name of the actor on its socket."""
MOVE_S = 15.0
"""For how many seconds a range may take into a landing: less than whoever asks waits for the answer."""
_MEMORY = f"{__package__.rpartition('.')[0]}.memory"


class Chunk:
    """Bytes that cross without being copied."""

    __slots__ = ("data",)

    def __init__(self, data: Bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return Chunk, (pickle.PickleBuffer(self.data),)


@dataclass(frozen=True, slots=True)
class Landed:
    """The bytes are where the reader wanted them, by that transport; nobody writes there any more."""

    transport: str


@dataclass(frozen=True, slots=True)
class NotLanded:
    """Why they could not be written there, and the bytes. A part may be there, or come yet."""

    why: str
    chunk: Chunk


class Followers:
    """Who shows which revision."""

    def __init__(self) -> None:
        self.revisions: dict[str, int] = {}
        self._calls: dict[str, object] = {}
        self._copies: dict[str, dict[HostCopy, None]] = {}
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

    def kept(self, follower: str, copies: Iterable[HostCopy]) -> None:
        """What a host had written to what the client has changed since; known before that is acknowledged."""
        self._copies.setdefault(follower, {}).update(dict.fromkeys(copies))

    def take_kept(self, follower: str) -> tuple[HostCopy, ...]:
        """All that was not asked for yet."""
        return tuple(self._copies.pop(follower, ()))

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
    async def read_to(
        self, path: bytes, version: int, size: int, offset: int, length: int, landing: bytes
    ) -> Landed | NotLanded | int:
        """A range into an RDMABuffer of the caller's, which comes pickled; a number is the errno of why not:
        nothing was written then.

        Raises:
            Conflict: buffer_dropped, the caller does not want it any more.
        """
        try:
            data = await self._reads.read(FileRef(path, version, size), offset, length)
        except Gone:
            return errno.ESTALE
        except Unreadable as error:
            return error.errno
        return await land(data, landing)

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
    async def kept(self, follower: str, copies: list[tuple[bytes, bytes]]) -> None:
        """Conflicts of a host, which the client's side has won: paths, and where the host's is now."""
        self._followers.kept(follower, [HostCopy(*copy) for copy in copies])

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


async def _buffer(pickled: bytes) -> RDMABuffer:
    """What was pickled elsewhere; whose package may have to be imported first."""
    if _MEMORY not in sys.modules:  # which would hold up the loop for some 0.1 s
        await anyio.to_thread.run_sync(import_module, _MEMORY)
    buffer: RDMABuffer = pickle.loads(pickled)
    return buffer


async def land(data: Bytes, landing: bytes) -> Landed | NotLanded:
    """Writes bytes into an RDMABuffer of the caller's, which comes pickled.

    Raises:
        Conflict: buffer_dropped, the caller does not want them any more.
    """
    try:
        buffer = await _buffer(landing)
        await buffer.write_from(data, timeout=MOVE_S)
        return Landed(buffer.transport.name)
    except (MilkweedError, OSError, ImportError) as error:
        if isinstance(error, MilkweedError) and error.code == "buffer_dropped":
            raise
        return NotLanded(str(error), Chunk(data))
