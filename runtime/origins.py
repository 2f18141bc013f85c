"""Where fetched files come from: one host's, asked directly, or chunk by chunk over its keeper."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from .errors import MilkweedError
from .file_records import FileChunk, FileEntry, FileListing
from .gather.attributes import Version as Identity

__all__ = [
    "CHUNK",
    "PART",
    "SMALL",
    "ByChunks",
    "Bytes",
    "Changed",
    "Content",
    "Entry",
    "FileSource",
    "Origin",
]

PART = 4 * 1024 * 1024
"""Bytes that `read` gives at most, of a host that is asked directly."""
SMALL = 64 * 1024
CHUNK = 1024 * 1024

Bytes = bytes | memoryview


class Changed(Exception):
    """The file has not the content any more that it had."""


class Content(NamedTuple):
    """One content of a file: `key` is what its origin knows it by."""

    size: int
    mtime_ns: int
    key: Identity


class Entry(NamedTuple):
    """One name of a directory; `link` is where one leads, `error` why there is no more to tell."""

    name: str
    kind: str
    size: int
    mtime_ns: int
    link: str = ""
    error: str = ""


class FileSource(Protocol):
    """What is needed of a mesh."""

    async def list_files(
        self, path: str, *, hosts: Sequence[int] | None = None, pattern: str | None = None, limit: int = 200
    ) -> dict[int, FileListing | MilkweedError]: ...

    async def file_chunk(self, path: str, *, host: int, offset: int, length: int) -> FileChunk: ...


class Origin(Protocol):
    """Paths are absolute. Every method raises MilkweedError where the host does not answer, or refuses."""

    part: int
    """Bytes that are best read at once."""

    async def entries(self, path: str, most: int) -> list[Entry] | None:
        """Of a directory; None where there are more than `most`."""
        ...

    async def content(self, path: str) -> Content:
        """What a file has now, a link followed; it is known to be another after any later write."""
        ...

    async def require(self, path: str, content: Content) -> None:
        """
        Raises:
            Changed: it has another content by now.
        """
        ...

    async def extents(self, path: str, content: Content, offset: int, /) -> list[tuple[int, int]]:
        """Ranges that are no holes, the next ones from an offset on; none: only a hole is left.

        Raises:
            Changed.
        """
        ...

    async def read(self, path: str, content: Content, offset: int, length: int) -> Bytes:
        """A range as it was read there: its hash was compared.

        Raises:
            Changed.
        """
        ...

    async def digest(self, path: str, content: Content, offset: int, length: int) -> bytes:
        """SHA-256 of a range, a few MB at most.

        Raises:
            Changed.
        """
        ...

    async def small(self, paths: Sequence[str]) -> list[tuple[Content, Bytes] | None]:
        """Files of up to `SMALL` bytes in one go; None for each that is to be read by itself."""
        ...


class ByChunks:
    """Over the keeper, which every client reaches."""

    part = CHUNK

    def __init__(self, source: FileSource, host: int) -> None:
        self._source = source
        self._host = host

    async def entries(self, path: str, most: int) -> list[Entry] | None:
        answer = (await self._source.list_files(path, hosts=(self._host,), limit=most))[self._host]
        if isinstance(answer, MilkweedError):
            raise answer
        return None if answer.left_out else [_entry_of(one) for one in answer.entries]

    async def content(self, path: str) -> Content:
        return _content_of(await self._chunk(path, 0, 1))

    async def require(self, path: str, content: Content) -> None:
        if _content_of(await self._chunk(path, content.size, 1)) != content:
            raise Changed

    async def extents(self, _: str, content: Content, offset: int) -> list[tuple[int, int]]:
        return [(offset, content.size)] if offset < content.size else []

    async def read(self, path: str, content: Content, offset: int, length: int) -> Bytes:
        chunk = await self._chunk(path, offset, min(length, CHUNK))
        if _content_of(chunk) != content:
            raise Changed
        return chunk.data

    async def digest(self, path: str, content: Content, offset: int, length: int) -> bytes:
        found, end = sha256(), offset + length
        while offset < end and (data := await self.read(path, content, offset, end - offset)):
            found.update(data)
            offset += len(data)
        return found.digest()

    async def small(self, paths: Sequence[str]) -> list[tuple[Content, Bytes] | None]:
        return [None for _ in paths]

    async def _chunk(self, path: str, offset: int, length: int) -> FileChunk:
        return await self._source.file_chunk(path, host=self._host, offset=offset, length=length)


def _entry_of(one: FileEntry) -> Entry:
    return Entry(one.name, one.kind, one.size, round(one.modified_at * 1e9), one.target, one.error)


def _content_of(chunk: FileChunk) -> Content:
    mtime_ns = round(chunk.modified_at * 1e9)
    return Content(chunk.size, mtime_ns, (0, 0, chunk.size, mtime_ns, mtime_ns))
