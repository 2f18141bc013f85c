"""Copies files of hosts to the client, in the plain form: chunk by chunk over the control connection.

A file is written beside its place and moved there when it is whole. A file that is there already with the
same bytes is left; with other bytes it is an error, and nothing is overwritten.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from .errors import Conflict, InvalidArgument, MilkweedError, Unavailable
from .file_records import FileChunk, FileEntry, FileListing
from .names import quoted

__all__ = ["Fetched", "FileSource", "Report", "fetch"]

CHUNK = 1 << 20
MAX_FILES = 10_000

Report = Callable[[float, float | None, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One file: `copied` now, `unchanged` since it was there already, `left` for the next call when the time
    was up, or `skipped` for a `reason`: it is a device, a link to nowhere, ...
    """

    host: int
    path: str
    destination: str
    size: int
    state: Literal["copied", "unchanged", "left", "skipped"]
    reason: str = ""


class FileSource(Protocol):
    """What `fetch` needs of a mesh."""

    async def list_files(
        self, path: str, *, hosts: Sequence[int] | None = None, pattern: str | None = None, limit: int = 200
    ) -> dict[int, FileListing | MilkweedError]: ...

    async def file_chunk(self, path: str, *, host: int, offset: int, length: int) -> FileChunk: ...


@dataclass(frozen=True, slots=True)
class _Item:
    host: int
    source: str
    destination: Path
    size: int = 0
    skipped: str = ""


async def fetch(
    source: FileSource,
    path: str,
    *,
    hosts: Sequence[int],
    destination: str,
    report: Report,
    within_s: float = math.inf,
) -> tuple[Fetched, ...]:
    """Copies `path` of each host to `destination/<host>/<name>`; a folder with all that is below it.

    Stops after `within_s`; a later call goes on where it stopped, in the middle of a file too.

    Raises:
        NotFound, InvalidArgument: on the first host that does not have it, or that has too much.
        Conflict: file_exists, other content is in the way and nothing was copied; file_changed.
        Unavailable: disk_full, directory_unusable.
    """
    deadline = time.monotonic() + within_s
    folder = Path(destination)
    items = [item for host in hosts for item in await _items(source, host, path, folder / str(host))]
    total = sum(item.size for item in items)
    same = {item for item in items if os.path.lexists(item.destination) and await _is_same(source, item)}
    done = 0
    fetched = []
    for item in items:
        state: Literal["copied", "unchanged", "left", "skipped"]
        if item.skipped:
            state = "skipped"
        elif item in same:
            state = "unchanged"
        else:
            state = "copied" if await _copy(source, item, deadline) else "left"
        done += item.size if state != "left" else 0
        fetched.append(Fetched(item.host, item.source, str(item.destination), item.size, state, item.skipped))
        await report(done, total, f"{len(fetched)} of {len(items)} files")
    return tuple(fetched)


async def _items(source: FileSource, host: int, path: str, folder: Path) -> list[_Item]:
    listing = await _listing(source, host, path)
    name = PurePosixPath(listing.path).name or "root"
    if not listing.directory:
        item = await _item(source, host, listing.path, listing.entries[0], folder / name)
        if item.skipped:
            raise InvalidArgument(
                "invalid_path",
                f"{quoted(item.source)} on host {host} is {item.skipped}",
                "Name a file or a directory.",
            )
        return [item]
    found: list[_Item] = []
    todo = [(listing, folder / name)]
    while todo:
        here, target = todo.pop()
        for entry in here.entries:
            child = f"{here.path.rstrip('/')}/{entry.name}"
            if entry.kind == "directory":
                todo.append((await _listing(source, host, child), target / entry.name))
            else:
                found.append(await _item(source, host, child, entry, target / entry.name))
        if len(found) > MAX_FILES:
            raise _too_many(path, host)
    return found


async def _item(source: FileSource, host: int, path: str, entry: FileEntry, destination: Path) -> _Item:
    """A link stands for the file it leads to: `latest.pt` is wanted with its bytes."""
    if entry.kind == "file":
        return _Item(host, path, destination, entry.size)
    if entry.kind == "link":
        try:
            head = await source.file_chunk(path, host=host, offset=0, length=1)
        except MilkweedError as error:
            return _Item(host, path, destination, skipped=f"a link to {quoted(entry.target)}: {error.cause}")
        return _Item(host, path, destination, head.size)
    return _Item(host, path, destination, skipped=entry.error or f"a {entry.kind}")


async def _listing(source: FileSource, host: int, path: str) -> FileListing:
    answer = (await source.list_files(path, hosts=(host,), limit=MAX_FILES))[host]
    if isinstance(answer, MilkweedError):
        raise answer
    if answer.left_out:
        raise _too_many(path, host)
    return answer


def _too_many(path: str, host: int) -> InvalidArgument:
    return InvalidArgument(
        "invalid_argument",
        f"{quoted(path)} on host {host} holds more than {MAX_FILES:,} files",
        "Fetch a part of it, or pack it with a run of `tar` first.",
    )


async def _is_same(source: FileSource, item: _Item) -> bool:
    """Size and time tell, since a copy keeps both; where the time differs, the bytes do.

    Raises:
        Conflict: file_exists, something else is there.
    """
    if not item.skipped and item.destination.is_file() and item.destination.stat().st_size == item.size:
        if item.destination.stat().st_mtime == (await _chunk(source, item, 0, 1)).modified_at:
            return True
        theirs, ours = hashlib.sha256(), hashlib.sha256()
        with item.destination.open("rb") as file:
            while data := (await _chunk(source, item, file.tell())).data:
                theirs.update(data)
                ours.update(file.read(len(data)))
        if theirs.digest() == ours.digest():
            return True
    raise Conflict(
        "file_exists",
        f"{quoted(str(item.destination))} is there with other content",
        "Name another destination, or remove it first.",
    )


async def _copy(source: FileSource, item: _Item, deadline: float) -> bool:
    """Copies one file, or goes on with what an earlier call began; False when the time was up.

    What there is so far stays beside its place under a name with the file's size and time, so that it is
    never mixed with the bytes of another version.

    Raises:
        Conflict: file_changed, it was written while it was read.
        Unavailable: disk_full, directory_unusable.
    """
    try:
        item.destination.parent.mkdir(parents=True, exist_ok=True)
        first = await _chunk(source, item, 0, 1)
        partial = item.destination.with_name(
            f".{item.destination.name}.{first.size}-{first.modified_at}.part"
        )
        with partial.open("ab") as file:
            while True:
                chunk = await _chunk(source, item, file.tell())
                if (chunk.size, chunk.modified_at) != (first.size, first.modified_at):
                    partial.unlink()
                    raise Conflict(
                        "file_changed",
                        f"{quoted(item.source)} on host {item.host} changed while it was read",
                        "Fetch it again.",
                    )
                if not chunk.data:
                    break
                file.write(chunk.data)
                if time.monotonic() > deadline and file.tell() < chunk.size:
                    return False
        os.utime(partial, (first.modified_at, first.modified_at))
        os.replace(partial, item.destination)
    except OSError as error:
        code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "directory_unusable"
        raise Unavailable(
            code,
            f"{quoted(str(item.destination))} cannot be written: {error.strerror}",
            "Name another destination.",
        ) from None
    return True


async def _chunk(source: FileSource, item: _Item, offset: int, length: int = CHUNK) -> FileChunk:
    return await source.file_chunk(item.source, host=item.host, offset=offset, length=length)
