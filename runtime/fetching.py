"""Copies files of hosts to the client, in the plain form: chunk by chunk over the control connection.

A file is written beside its place and moved there when it is whole. A file that is there already with the same
bytes is left; with other bytes it is an error, and nothing is overwritten.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import anyio

from .errors import Conflict, InvalidArgument, MilkweedError, NotFound
from .file_records import FileChunk, FileDigest, FileListing

__all__ = ["Fetched", "FileSource", "Report", "fetch"]

CHUNK = 1 << 20
MAX_FILES = 10_000

Report = Callable[[float, float | None, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One file on the client. `unchanged`: it was there already with the same bytes."""

    host: int
    path: str
    destination: str
    size: int
    unchanged: bool = False


class FileSource(Protocol):
    """What `fetch` needs of a mesh."""

    async def list_files(
        self, path: str, *, hosts: Sequence[int] | None = None, pattern: str | None = None, limit: int = 200
    ) -> dict[int, FileListing | MilkweedError]: ...

    async def file_digests(
        self, path: str, *, hosts: Sequence[int] | None = None
    ) -> dict[int, FileDigest | MilkweedError]: ...

    async def file_chunk(self, path: str, *, host: int, offset: int, length: int) -> FileChunk: ...


@dataclass(frozen=True, slots=True)
class _Item:
    host: int
    source: str
    destination: Path
    size: int


async def fetch(
    source: FileSource, path: str, *, hosts: Sequence[int], destination: str, report: Report
) -> tuple[Fetched, ...]:
    """Copies `path` of each host to `destination/<host>/<name>`; a folder with all that is below it.

    Raises:
        NotFound, InvalidArgument: on the first host that does not have it, or has something that is no file.
        Conflict: file_exists, a file with other content is in the way; nothing was copied.
    """
    items = [
        item for host in hosts for item in await _items(source, host, path, Path(destination) / str(host))
    ]
    total = sum(item.size for item in items)
    same = {item for item in items if item.destination.exists() and await _is_same(source, item)}
    done = 0
    fetched = []
    for item in items:
        if item not in same:
            await _copy(source, item)
        done += item.size
        fetched.append(Fetched(item.host, item.source, str(item.destination), item.size, item in same))
        await report(done, total, f"{len(fetched)} of {len(items)} files")
    return tuple(fetched)


async def _items(source: FileSource, host: int, path: str, folder: Path) -> list[_Item]:
    listing = await _listing(source, host, path)
    name = PurePosixPath(listing.path).name or "root"
    if len(listing.entries) == 1 and listing.entries[0].kind == "file" and _is_the_file(listing):
        return [_Item(host, listing.path, folder / name, listing.entries[0].size)]
    found: list[_Item] = []
    todo = [(listing, folder / name)]
    while todo:
        here, target = todo.pop()
        for entry in here.entries:
            child = f"{here.path.rstrip('/')}/{entry.name}"
            if entry.kind == "directory":
                todo.append((await _listing(source, host, child), target / entry.name))
            elif entry.kind == "file":
                found.append(_Item(host, child, target / entry.name, entry.size))
        if len(found) > MAX_FILES:
            raise InvalidArgument(
                "invalid_argument",
                f"{path} on host {host} holds more than {MAX_FILES:,} files",
                "Fetch a part of it, or pack it with a run of `tar` first.",
            )
    return found


def _is_the_file(listing: FileListing) -> bool:
    """A listing of a file has the file itself as its one entry."""
    return listing.entries[0].name in (listing.path, PurePosixPath(listing.path).name)


async def _listing(source: FileSource, host: int, path: str) -> FileListing:
    answer = (await source.list_files(path, hosts=(host,), limit=MAX_FILES))[host]
    if isinstance(answer, MilkweedError):
        raise answer
    if answer.left_out:
        raise InvalidArgument(
            "invalid_argument",
            f"{path} on host {host} holds more than {MAX_FILES:,} entries",
            "Fetch a part of it.",
        )
    return answer


async def _is_same(source: FileSource, item: _Item) -> bool:
    """
    Raises:
        Conflict: something else is there.
    """
    if item.destination.is_file() and item.destination.stat().st_size == item.size:
        theirs, ours = hashlib.sha256(), hashlib.sha256()
        with item.destination.open("rb") as file:
            offset = 0
            while chunk := (
                await source.file_chunk(item.source, host=item.host, offset=offset, length=CHUNK)
            ).data:
                theirs.update(chunk)
                ours.update(file.read(len(chunk)))
                offset += len(chunk)
        if theirs.digest() == ours.digest():
            return True
    raise Conflict(
        "file_exists",
        f"{item.destination} is there with other content",
        "Name another destination, or remove it first.",
    )


async def _copy(source: FileSource, item: _Item) -> None:
    """
    Raises:
        Conflict: file_changed, it was written while it was read. Unavailable: disk_full.
    """
    item.destination.parent.mkdir(parents=True, exist_ok=True)
    partial = item.destination.with_name(f".{item.destination.name}.part-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            first: FileChunk | None = None
            while True:
                chunk = await source.file_chunk(item.source, host=item.host, offset=file.tell(), length=CHUNK)
                first = first or chunk
                if chunk.modified_at != first.modified_at:
                    raise Conflict(
                        "file_changed",
                        f"{item.source} on host {item.host} changed while it was read",
                        "Fetch it again.",
                    )
                if not chunk.data:
                    break
                file.write(chunk.data)
        os.replace(partial, item.destination)
    except OSError as error:
        raise NotFound("file_not_found", f"{item.destination} cannot be written: {error.strerror}") from None
    finally:
        with anyio.CancelScope(shield=True):
            partial.unlink(missing_ok=True)
