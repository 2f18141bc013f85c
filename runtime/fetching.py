"""Copies files of hosts to the client: several at once, each as it was read there, its hash compared.

A file is written beside its place and moved there when it is whole. A file that is there already with the
same bytes is left; with other bytes it is an error, and nothing is overwritten.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Literal

import anyio
from anyio import to_thread

from .arriving import Arriving, put_whole, unwritable
from .errors import Conflict, InvalidArgument, MilkweedError
from .file_records import FileListing
from .names import quoted
from .origins import CHUNK, SMALL, ByChunks, Changed, Entry, FileSource, Origin
from .tasks import background_tasks

__all__ = ["CHUNK", "Fetched", "FileSource", "Report", "fetch"]

MAX_FILES = 10_000
_AT_ONCE = 4
_BATCH = 64
_ATTEMPTS = 3
_REPORT_S = 0.5
_COMPARED = 4 * 1024 * 1024
_TOLERANCE_NS = 1_000
"""By which times may differ that have been floats on their way."""

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


@dataclass(frozen=True, slots=True)
class _Item:
    host: int
    source: str
    destination: Path
    size: int = 0
    mtime_ns: int = 0
    skipped: str = ""


async def fetch(
    source: FileSource,
    path: str,
    *,
    hosts: Sequence[int],
    destination: str,
    report: Report,
    within_s: float = math.inf,
    direct: Mapping[int, Origin] | None = None,
) -> tuple[Fetched, ...]:
    """Copies `path` of each host to `destination/<host>/<name>`; a folder with all that is below it.

    Stops after `within_s`; a later call goes on where it stopped, in the middle of a file too. Hosts that can
    be asked themselves are in `direct`; of the others bytes come chunk by chunk from the source.

    Raises:
        NotFound, InvalidArgument: on the first host that does not have it, or that has too much.
        Conflict: file_exists, other content is in the way and nothing was copied; file_changed.
        Unavailable: disk_full, directory_unusable, transfer_failed, host_lost.
    """
    folder, direct = Path(destination), direct or {}
    origins = {host: direct.get(host) or ByChunks(source, host) for host in hosts}
    items = [
        item for host in hosts for item in await _items(source, origins[host], host, path, folder / str(host))
    ]
    same = {item for item in items if await _is_same(origins[item.host], item)}
    work = _Work(origins, items, same, time.monotonic() + within_s)
    async with work.reported(report):
        await work.run()
    return tuple(work.fetched(item) for item in items)


class _Work:
    """What is to be copied, and how far it is."""

    def __init__(
        self, origins: Mapping[int, Origin], items: Sequence[_Item], same: set[_Item], deadline: float
    ) -> None:
        self._origins = origins
        self._items = items
        self._deadline = deadline
        self._states: dict[_Item, Literal["copied", "unchanged", "left", "skipped"]] = {}
        for item in items:
            if item.skipped:
                self._states[item] = "skipped"
            elif item in same:
                self._states[item] = "unchanged"
        self._todo = [item for item in items if item not in self._states]
        self._done = sum(item.size for item in self._states)
        self._total = sum(item.size for item in items)
        self._is_begun = False

    def fetched(self, item: _Item) -> Fetched:
        state = self._states.get(item, "left")
        return Fetched(item.host, item.source, str(item.destination), item.size, state, item.skipped)

    @asynccontextmanager
    async def reported(self, report: Report) -> AsyncIterator[None]:
        """Tells how far it is now and then, and at the end."""

        async def tell() -> None:
            # A file may have grown since it was listed.
            await report(
                min(self._done, self._total), self._total, f"{len(self._states)} of {len(self._items)} files"
            )

        async def tell_for_ever() -> None:
            while True:
                await anyio.sleep(_REPORT_S)
                await tell()

        async with background_tasks() as tasks:
            tasks.start_soon(tell_for_ever)
            yield
        await tell()

    async def run(self) -> None:
        """
        Raises:
            MilkweedError: the first thing that went wrong; what was copied by then is there.
        """
        others = [item for item in self._todo if not 0 < item.size <= SMALL]
        jobs: Iterator[_Item | list[_Item]] = chain(self._batches(), others)
        failures: list[MilkweedError] = []

        async def work(scope: anyio.CancelScope) -> None:
            try:
                for job in jobs:
                    if self._is_begun and not self._goes_on():
                        return
                    self._is_begun = True
                    await (self._copy(job) if isinstance(job, _Item) else self._copy_small(job))
            except MilkweedError as error:
                failures.append(error)
                scope.cancel()

        async with anyio.create_task_group() as tasks:
            for _ in range(_AT_ONCE):
                tasks.start_soon(work, tasks.cancel_scope)
        if failures:
            raise failures[0]

    def _goes_on(self) -> bool:
        return time.monotonic() < self._deadline

    def _batches(self) -> list[list[_Item]]:
        """Small files, those of one host together."""
        found: list[list[_Item]] = []
        for host in self._origins:
            small = [item for item in self._todo if item.host == host and 0 < item.size <= SMALL]
            found += [small[at : at + _BATCH] for at in range(0, len(small), _BATCH)]
        return found

    async def _copy_small(self, items: Sequence[_Item]) -> None:
        answers = await self._origins[items[0].host].small([item.source for item in items])
        rest = []
        for item, answer in zip(items, answers, strict=True):
            if answer is None:
                rest.append(item)
                continue
            await to_thread.run_sync(put_whole, item.destination, *answer)
            self._copied(item, item.size)
        for item in rest:
            if not self._goes_on() and item is not rest[0]:
                return
            await self._copy(item)

    def _copied(self, item: _Item, size: int) -> None:
        self._states[item] = "copied"
        self._done += size

    async def _copy(self, item: _Item) -> None:
        """
        Raises:
            Conflict: file_changed, it was written while it was read, each time.
        """
        origin = self._origins[item.host]
        for _ in range(_ATTEMPTS):
            before = self._done

            def moved(size: int) -> None:
                self._done += size

            arriving = Arriving(origin, item.source, item.destination, await origin.content(item.source))
            try:
                if await arriving.copy(self._goes_on, moved):
                    self._copied(item, 0)
                return
            except Changed:
                self._done = min(self._done, before)
        raise Conflict(
            "file_changed",
            f"{quoted(item.source)} on host {item.host} changed while it was read",
            "Fetch it again when nothing writes to it.",
        )


async def _items(source: FileSource, origin: Origin, host: int, path: str, folder: Path) -> list[_Item]:
    listing = await _listing(source, host, path)
    name = PurePosixPath(listing.path).name or "root"
    if not listing.directory:
        one = listing.entries[0]
        entry = Entry(one.name, one.kind, one.size, round(one.modified_at * 1e9), one.target, one.error)
        item = await _item(origin, host, listing.path, entry, folder / name)
        if item.skipped:
            raise InvalidArgument(
                "invalid_path",
                f"{quoted(item.source)} on host {host} is {item.skipped}",
                "Name a file or a directory.",
            )
        return [item]
    found: list[_Item] = []
    todo = [(listing.path, folder / name)]
    while todo:
        here, target = todo.pop()
        entries = await origin.entries(here, MAX_FILES)
        if entries is None:
            raise _too_many(path, host)
        for entry in entries:
            child = f"{here.rstrip('/')}/{entry.name}"
            if entry.kind == "directory":
                todo.append((child, target / entry.name))
            else:
                found.append(await _item(origin, host, child, entry, target / entry.name))
        if len(found) > MAX_FILES:
            raise _too_many(path, host)
    return found


async def _item(origin: Origin, host: int, path: str, entry: Entry, destination: Path) -> _Item:
    """A link stands for the file it leads to: `latest.pt` is wanted with its bytes."""
    if entry.kind == "file":
        return _Item(host, path, destination, entry.size, entry.mtime_ns)
    if entry.kind == "link":
        try:
            content = await origin.content(path)
        except MilkweedError as error:
            return _Item(host, path, destination, skipped=f"a link to {quoted(entry.link)}: {error.cause}")
        return _Item(host, path, destination, content.size, content.mtime_ns)
    return _Item(host, path, destination, skipped=entry.error or f"a {entry.kind}")


async def _listing(source: FileSource, host: int, path: str) -> FileListing:
    """What the path is: its entries are asked for by themselves."""
    answer = (await source.list_files(path, hosts=(host,), limit=1))[host]
    if isinstance(answer, MilkweedError):
        raise answer
    return answer


def _too_many(path: str, host: int) -> InvalidArgument:
    return InvalidArgument(
        "invalid_argument",
        f"{quoted(path)} on host {host} holds more than {MAX_FILES:,} files",
        "Fetch a part of it, or pack it with a run of `tar` first.",
    )


async def _is_same(origin: Origin, item: _Item) -> bool:
    """Size and time tell, since a copy keeps both; where the time differs, the bytes do. False where nothing
    is there.

    Raises:
        Conflict: file_exists, something else is there.
    """
    place = item.destination
    if item.skipped or not os.path.lexists(place):
        return False
    if place.is_file() and place.stat().st_size == item.size:
        if abs(place.stat().st_mtime_ns - item.mtime_ns) < _TOLERANCE_NS:
            return True
        if await _has_same_bytes(origin, item):
            return True
    raise Conflict(
        "file_exists",
        f"{quoted(str(place))} is there with other content",
        "Name another destination, or remove it first.",
    )


async def _has_same_bytes(origin: Origin, item: _Item) -> bool:
    content = await origin.content(item.source)
    try:
        with item.destination.open("rb") as file:
            for at in range(0, item.size, _COMPARED):
                length = min(_COMPARED, item.size - at)
                theirs = await origin.digest(item.source, content, at, length)
                if sha256(await to_thread.run_sync(file.read, length)).digest() != theirs:
                    return False
    except Changed:
        return False
    except OSError as error:
        raise unwritable(item.destination, error) from None
    return content.size == item.size
