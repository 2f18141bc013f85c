"""Files of a host for fetching, asked of itself: large ranges by one-sided memory, hashes compared."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256

from anyio import to_thread

from ..errors import InvalidArgument, MilkweedError, NotFound, Unavailable
from ..mounts import Landings
from ..names import quoted
from ..origins import PART, SMALL, Bytes, Changed, Content, Entry, Origin
from ..services.opening import kind_of
from ..tasks import background_tasks
from .attributes import Attributes, Page, is_same_content
from .remote_host import RemoteHost, Unanswered

__all__ = ["Direct", "open_origins"]

_EXTENTS = 1000


class Direct:
    """Over a session of our own, large ranges by one-sided memory."""

    part = PART

    def __init__(self, host: RemoteHost) -> None:
        self._host = host

    async def entries(self, path: str, most: int) -> list[Entry] | None:
        found: list[tuple[bytes, Attributes]] = []
        page = Page([], True)
        while page.more and len(found) <= most:
            after = found[-1][0] if found else b""
            try:
                page = await self._host.page(_bytes(path)[1:], after)
            except Unanswered as error:
                raise self._error(error, path) from None
            found += page.entries
        return None if len(found) > most else [_entry(name, one) for name, one in found]

    async def content(self, path: str) -> Content:
        try:
            return _content(await self._host.version(_bytes(path)))
        except Unanswered as error:
            raise self._error(error, path) from None

    async def require(self, path: str, content: Content) -> None:
        if not is_same_content((await self.content(path)).key, content.key):
            raise Changed

    async def extents(self, path: str, content: Content, offset: int) -> list[tuple[int, int]]:
        try:
            return await self._host.extents(_bytes(path), content.key, offset, _EXTENTS)
        except Unanswered as error:
            raise self._changed_or(error, path) from None

    async def read(self, path: str, content: Content, offset: int, length: int) -> Bytes:
        try:
            data, digest = await self._host.part(_bytes(path), content.key, offset, length)
        except Unanswered as error:
            raise self._changed_or(error, path) from None
        await self._compare(path, data, digest)
        return data

    async def digest(self, path: str, content: Content, offset: int, length: int) -> bytes:
        try:
            return await self._host.digest(_bytes(path), content.key, offset, length)
        except Unanswered as error:
            raise self._changed_or(error, path) from None

    async def small(self, paths: Sequence[str]) -> list[tuple[Content, Bytes] | None]:
        found: list[tuple[Content, Bytes] | None] = []
        try:
            answers = await self._host.whole([_bytes(path) for path in paths])
        except Unanswered as error:
            raise self._error(error, paths[0]) from None
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, int) or len(answer[1]) != answer[0].size or not answer[0].size:
                found.append(None)
                continue
            attributes, data, digest = answer
            await self._compare(path, data, digest)
            found.append((_content(attributes), data))
        return found

    async def _compare(self, path: str, data: Bytes, digest: bytes) -> None:
        """
        Raises:
            Unavailable: transfer_failed, the bytes are not those that were read there.
        """
        large = len(data) > SMALL
        ours = await to_thread.run_sync(_digest, data) if large else _digest(data)
        if ours != digest:
            raise Unavailable(
                "transfer_failed",
                f"{quoted(path)} of host {self._host.number} did not arrive as it was read there",
                "Fetch it again; see check_mesh if that repeats.",
            )

    def _changed_or(self, error: Unanswered, path: str) -> Exception:
        return Changed() if error.errno in (errno.ESTALE, errno.ENOENT) else self._error(error, path)

    def _error(self, error: Unanswered, path: str) -> MilkweedError:
        where = f"{quoted(path)} on host {self._host.number}"
        if error.errno == errno.EIO and self._host.problem:
            return Unavailable(
                "host_lost",
                f"host {self._host.number} does not answer: {self._host.problem}",
                "See mesh_status; the same call goes on from here when it is back.",
            )
        if error.errno == errno.ENOENT:
            return NotFound("file_not_found", f"no {where}", "List what is above it.")
        why = "it is no regular file" if error.errno == errno.ENXIO else os.strerror(error.errno or errno.EIO)
        return InvalidArgument(
            "invalid_path", f"cannot read {where}: {why}", "Look at it with list_remote_files."
        )


@asynccontextmanager
async def open_origins(addresses: Mapping[int, str]) -> AsyncIterator[dict[int, Origin]]:
    """Those of hosts, by their numbers, that can be asked directly."""
    landings = Landings()
    landings.begin()
    try:
        async with background_tasks() as tasks:
            hosts = [RemoteHost(host, address, "/", landings) for host, address in addresses.items()]
            for one in hosts:
                await tasks.start(one.run)
            yield {one.number: Direct(one) for one in hosts if await one.tried()}
    finally:
        landings.close()


def _digest(data: Bytes) -> bytes:
    return sha256(data).digest()


def _bytes(path: str) -> bytes:
    return os.fsencode(path)


def _entry(name: bytes, one: Attributes) -> Entry:
    return Entry(os.fsdecode(name), kind_of(one.mode), one.size, one.mtime_ns, os.fsdecode(one.target))


def _content(one: Attributes) -> Content:
    return Content(one.size, one.mtime_ns, one.version)
