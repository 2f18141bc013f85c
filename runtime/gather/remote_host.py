"""One host of a gather mount: asked over a session of its own, which is made again when it ends.

A host that is gone is known to be: what is asked of it fails at once, until it answers again. One that does
not answer is asked whether it is there; if it does not say so either, it counts as gone.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.abc

from ..call import ActorRef, Session
from ..errors import MilkweedError
from ..mounts.doors import connect_feed
from ..mounts.feed import Chunk
from ..mounts.landing import Landing, Landings
from ..mounts.lending import Lending
from ..receiving import KeptMemory
from ..tasks import background_tasks
from .attributes import Attributes, Page, Version, unpack, unpack_one

if TYPE_CHECKING:
    from ..services.live_files import LiveFiles

__all__ = ["RemoteHost", "Unanswered"]

logger = logging.getLogger(__name__)

FILES = "LiveFiles"
_FIRST_S = 3.0
_CALL_S = 20.0
_LOOK_S = 0.5
_QUIET_S = 1.0
_PING_S = 4.0
_RETRY_S = 0.05
_RETRY_MOST_S = 2.0

T = TypeVar("T")
Bytes = bytes | memoryview


class Unanswered(OSError):
    """What a host answered in place of what was asked, or EIO where it did not answer."""

    def __init__(self, number: int) -> None:
        super().__init__(number, errno.errorcode.get(number, ""))


class RemoteHost:
    """`problem` says why it is gone; empty while it answers. `moved` is how many bytes came by what."""

    def __init__(self, number: int, address: str, root: str, landings: Landings) -> None:
        self.number = number
        self.problem = ""
        self._lending = Lending(landings, f"host {number}")
        self._address = address
        self._root = root
        self._session: Session | None = None
        self._tried = anyio.Event()
        self._asked: dict[object, float] = {}

    @property
    def moved(self) -> Counter[str]:
        return self._lending.moved

    async def tried(self) -> bool:
        """Whether it answers, once that is known; after a few seconds in any case."""
        with anyio.move_on_after(_FIRST_S):
            await self._tried.wait()
        return self._session is not None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keeps the session; reports started at once."""
        task_status.started()
        wait_s = _RETRY_S
        memory = KeptMemory(asyncio.get_running_loop())
        peer = f"host {self.number}"
        while True:
            try:
                sock = await connect_feed(self._address, peer)
                session = Session(sock, role="gather", peer=peer, memory=memory.take)
                async with background_tasks() as tasks:
                    await tasks.start(session.run)
                    await self._ping(session)
                    self._session, self.problem, wait_s = session, "", _RETRY_S
                    self._tried.set()
                    tasks.start_soon(self._look_after, session)
                    await session.closed.wait()
                self.problem = self.problem or session.reason or "its connection ended"
            except MilkweedError as error:
                self.problem = error.cause
            finally:
                self._session = None
            self._tried.set()
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, _RETRY_MOST_S)

    async def _look_after(self, session: Session) -> None:
        """Closes the session of a host that has not answered something for a while, nor a ping."""
        while True:
            await anyio.sleep(_LOOK_S)
            if not self._asked or min(self._asked.values()) > anyio.current_time() - _QUIET_S:
                continue
            try:
                await self._ping(session)
            except MilkweedError as error:
                self.problem = error.cause
                session.close()
                return

    async def _ping(self, session: Session) -> None:
        from ..services.live_files import LiveFiles

        await session.actor(FILES, LiveFiles).within(_PING_S).call_one(LiveFiles.ping)

    async def _ask(self, question: Callable[[ActorRef[LiveFiles]], Awaitable[T | int]]) -> T:
        """
        Raises:
            Unanswered: what the host says, or EIO: it is gone, or too slow.
        """
        from ..services.live_files import LiveFiles

        if not self._tried.is_set():
            await self.tried()
        session, asked = self._session, object()
        if session is None:
            raise Unanswered(errno.EIO)
        self._asked[asked] = anyio.current_time()
        try:
            answer = await question(session.actor(FILES, LiveFiles).within(_CALL_S))
        except MilkweedError as error:
            logger.warning("host %d: %s", self.number, error)
            raise Unanswered(errno.EIO) from None
        finally:
            del self._asked[asked]
        if isinstance(answer, int):
            raise Unanswered(answer)
        return answer

    async def attributes(self, path: bytes) -> Attributes:
        from ..services.live_files import LiveFiles

        answer = await self._ask(lambda files: files.call_one(LiveFiles.attributes, self._root, path))
        return unpack_one(answer.data)

    async def page(self, path: bytes, after: bytes = b"") -> Page:
        from ..services.live_files import LiveFiles

        answer = await self._ask(lambda files: files.call_one(LiveFiles.entries, self._root, path, after))
        return unpack(answer.data)

    async def open(self, path: bytes, whole: int) -> tuple[Attributes, Bytes | None]:
        """Attributes of a regular file, and all its bytes where they are few."""
        from ..services.live_files import LiveFiles

        answer = await self._ask(lambda files: files.call_one(LiveFiles.open, self._root, path, whole))
        return self._opened(*answer)

    async def open_several(
        self, paths: list[bytes], whole: int
    ) -> list[tuple[Attributes, Bytes | None] | None]:
        """`open` of each; None where that cannot be."""
        from ..services.live_files import LiveFiles

        answers = await self._ask(
            lambda files: files.call_one(LiveFiles.open_several, self._root, paths, whole)
        )
        return [None if isinstance(one, int) else self._opened(*one) for one in answers]

    def _opened(self, attributes: Chunk, data: Chunk | None) -> tuple[Attributes, Bytes | None]:
        return unpack_one(attributes.data), None if data is None else self._lending.counted(data.data)

    async def read(self, path: bytes, version: Version, offset: int, length: int) -> Bytes:
        """A range, shorter at the end; large ones are written into a landing by the host."""
        from ..services.live_files import LiveFiles

        if (landing := self._lending.lend(length)) is not None:
            return await self._landed(landing, path, version, offset, length)
        answer = await self._ask(
            lambda files: files.call_one(LiveFiles.read, self._root, path, version, offset, length)
        )
        return self._lending.counted(answer.data)

    async def whole(self, paths: list[bytes]) -> list[tuple[Attributes, Bytes, bytes] | int]:
        """Small files by absolute paths: attributes, bytes, their SHA-256; an errno where that cannot be."""
        from ..services.live_files import LiveFiles

        answers = await self._ask(lambda files: files.call_one(LiveFiles.whole, paths))
        return [
            one
            if isinstance(one, int)
            else (unpack_one(one[0].data), self._lending.counted(one[1].data), one[2])
            for one in answers
        ]

    async def version(self, path: bytes) -> Attributes:
        from ..services.live_files import LiveFiles

        return unpack_one((await self._ask(lambda files: files.call_one(LiveFiles.version, path))).data)

    async def extents(self, path: bytes, version: Version, offset: int, most: int) -> list[tuple[int, int]]:
        from ..services.live_files import LiveFiles

        return await self._ask(lambda files: files.call_one(LiveFiles.extents, path, version, offset, most))

    async def digest(self, path: bytes, version: Version, offset: int, length: int) -> bytes:
        from ..services.live_files import LiveFiles

        return await self._ask(lambda files: files.call_one(LiveFiles.digest, path, version, offset, length))

    async def part(self, path: bytes, version: Version, offset: int, length: int) -> tuple[Bytes, bytes]:
        """A range of one version, by its absolute path, and the SHA-256 of what was read there."""
        from ..services.live_files import LiveFiles

        landing = self._lending.lend(length)
        pickled = None if landing is None else landing.pickled
        try:
            answer, length, digest = await self._ask(
                lambda files: files.call_one(LiveFiles.part, path, version, offset, length, pickled)
            )
        except BaseException:
            if landing is not None:
                landing.spoiled()
            raise
        return self._lending.received(landing, answer, length), digest

    async def _landed(
        self, landing: Landing, path: bytes, version: Version, offset: int, length: int
    ) -> Bytes:
        from ..services.live_files import LiveFiles

        try:
            answer, length = await self._ask(
                lambda files: files.call_one(
                    LiveFiles.read_to, self._root, path, version, offset, length, landing.pickled
                )
            )
        except BaseException:
            landing.spoiled()
            raise
        return self._lending.received(landing, answer, length)
