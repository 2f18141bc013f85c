from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from milkweed.runtime.errors import Unavailable
from milkweed.runtime.mounts import FileRef, Gone, Reads, Unreadable
from milkweed.runtime.mounts.cache import ByteCache
from milkweed.runtime.mounts.cache_files import CacheFiles
from milkweed.runtime.mounts.source import Bytes

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


class Origin:
    """Has every version, made of its number; counts what it sends, and can be held or made to fail."""

    def __init__(self) -> None:
        self.sent: Counter[int] = Counter()
        self.calls = 0
        self.error: Exception | None = None
        self.whole_error: Exception | None = None
        self.held: anyio.Event | None = None

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        self.calls += 1
        if self.held is not None:
            await self.held.wait()
        if self.error is not None:
            raise self.error
        self.sent[file.version] += length
        return content(file)[offset : offset + length]

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        self.calls += 1
        if isinstance(self.whole_error, Unavailable):
            raise self.whole_error
        if self.whole_error is not None:
            return [None for _ in files]
        for file in files:
            self.sent[file.version] += file.size
        return [content(file) for file in files]


@lru_cache(maxsize=4)
def content(file: FileRef) -> bytes:
    piece = b"%016x" % file.version
    return (piece * (file.size // 16 + 1))[: file.size]


@asynccontextmanager
async def caching(directory: Path, *upstream: Reads, limit: int = 10**9) -> AsyncIterator[ByteCache]:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            cache = ByteCache(CacheFiles(directory), upstream, group, limit)
            yield cache
            group.cancel_scope.cancel()
        cache.close()


async def _whole(cache: ByteCache, file: FileRef, step: int = 128 * 1024) -> bytes:
    return b"".join([bytes(await cache.read(file, at, step)) for at in range(0, file.size, step)])


async def _stored(cache: ByteCache, size: int) -> None:
    while cache.on_disk < size:
        await anyio.sleep(0.001)


async def test_what_is_read_is_fetched_once_and_read_from_disk_later(tmp_path: Path) -> None:
    origin = Origin()
    files = [FileRef(b"big", 1, 21 * MIB + 5), FileRef(b"small", 2, 100), FileRef(b"empty", 3, 0)]
    async with caching(tmp_path, origin) as cache:
        for file in files:
            assert await _whole(cache, file) == content(file)
        await _stored(cache, sum(file.size for file in files))
        for _ in range(2):
            for file in files:
                assert await _whole(cache, file) == content(file)
    assert origin.sent == {1: files[0].size, 2: 100}


async def test_a_later_life_finds_what_is_whole_and_fetches_the_rest(tmp_path: Path) -> None:
    origin = Origin()
    whole, part = FileRef(b"whole", 1, 3 * MIB), FileRef(b"part", 2, 40 * MIB)
    async with caching(tmp_path, origin) as cache:
        await _whole(cache, whole)
        await cache.read(part, 30 * MIB, 10)
        await _stored(cache, whole.size + 128 * 1024)
    async with caching(tmp_path, origin) as cache:
        await cache.recall()
        assert cache.on_disk == whole.size
        assert await _whole(cache, whole) == content(whole)
        assert bytes(await cache.read(part, 30 * MIB, 10)) == content(part)[30 * MIB : 30 * MIB + 10]
    assert origin.sent[1] == whole.size
    assert origin.sent[2] == 2 * 128 * 1024


async def test_nothing_is_trusted_after_the_machine_was_restarted(tmp_path: Path) -> None:
    origin = Origin()
    file = FileRef(b"a", 1, 1000)
    async with caching(tmp_path, origin) as cache:
        await _whole(cache, file)
        await _stored(cache, 1000)
    (tmp_path / "boot").write_text("another life")
    async with caching(tmp_path, origin) as cache:
        assert await _whole(cache, file) == content(file)
    assert origin.sent[1] == 2000


async def test_many_readers_of_one_range_cost_one_fetch(tmp_path: Path) -> None:
    origin = Origin()
    origin.held = anyio.Event()
    file = FileRef(b"a", 1, 500_000)
    async with caching(tmp_path, origin) as cache, anyio.create_task_group() as readers:
        for _ in range(20):
            readers.start_soon(cache.read, file, 0, 1000)
        await anyio.wait_all_tasks_blocked()
        origin.held.set()
    assert (origin.calls, origin.sent[1]) == (1, 500_000)


async def test_a_reader_that_leaves_ends_nobody_elses_fetch(tmp_path: Path) -> None:
    origin = Origin()
    origin.held = anyio.Event()
    file = FileRef(b"a", 1, 1000)
    got: list[bytes] = []

    async def stay() -> None:
        got.append(bytes(await cache.read(file, 0, 1000)))

    async with caching(tmp_path, origin) as cache, anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(cache.read, file, 0, 1000)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(stay)
            await anyio.wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        origin.held.set()
    assert got == [content(file)]
    assert origin.calls == 1


@pytest.mark.parametrize("error", [Gone(), Unreadable(13), Unavailable("host_lost", "gone", "Look.")])
async def test_a_failed_fetch_is_told_to_its_readers_and_tried_again_by_the_next(
    tmp_path: Path, error: Exception
) -> None:
    origin = Origin()
    origin.error = error
    file = FileRef(b"a", 1, 30 * MIB)
    async with caching(tmp_path, origin) as cache:
        with pytest.raises(type(error)):
            await cache.read(file, 0, 1000)
        origin.error = None
        assert await _whole(cache, file) == content(file)


async def test_the_next_one_upstream_is_asked_where_the_first_has_it_not(tmp_path: Path) -> None:
    parent, origin = Origin(), Origin()
    file = FileRef(b"a", 1, 1000)
    for number, error in enumerate((Gone(), Unavailable("connection_lost", "gone", "Look."), None)):
        parent.error = error
        async with caching(tmp_path / str(number), parent, origin) as cache:
            assert await _whole(cache, file) == content(file)
    assert (parent.sent[1], origin.sent[1]) == (1000, 2000)


async def test_the_limit_is_kept_and_what_was_dropped_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Origin()
    monkeypatch.setattr("milkweed.runtime.mounts.cache._MOST_HOT", 0)
    files = [FileRef(b"%d" % number, number, MIB) for number in range(1, 41)]
    async with caching(tmp_path, origin, limit=10 * MIB) as cache:
        for _ in range(2):
            for file in files:
                assert await _whole(cache, file) == content(file)
                while cache.unwritten:
                    await anyio.sleep(0.001)
                assert cache.on_disk <= 10 * MIB
        used = sum(found.stat().st_size for found in tmp_path.rglob("*") if len(found.name) == 16)
        assert used <= 10 * MIB
    assert set(origin.sent.values()) == {2 * MIB}


async def test_a_file_larger_than_the_limit_is_read_all_the_same(tmp_path: Path) -> None:
    origin = Origin()
    file = FileRef(b"a", 1, 60 * MIB)
    async with caching(tmp_path, origin, limit=5 * MIB) as cache:
        for _ in range(2):
            assert await _whole(cache, file, MIB) == content(file)


async def test_a_full_disk_costs_fetches_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    origin = Origin()
    files = [FileRef(b"big", 1, 70 * MIB), FileRef(b"small", 2, 1000)]
    monkeypatch.setattr(os, "pwrite", _full)
    monkeypatch.setattr(CacheFiles, "put", _full)
    async with caching(tmp_path, origin) as cache:
        for _ in range(2):
            for file in files:
                assert await _whole(cache, file, MIB) == content(file)
        assert cache.refused_by_disk
        assert cache.on_disk == 0
    assert len([record for record in caplog.records if "does not take all" in record.message]) == 1


async def test_room_on_the_disk_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin()
    free = 1024 + 4  # MiB: what is to be left, and a little

    def statvfs(_: object) -> SimpleNamespace:
        used = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file())
        return SimpleNamespace(f_blocks=10**5, f_frsize=MIB, f_bavail=free - used // MIB)

    monkeypatch.setattr("milkweed.runtime.mounts.cache_files.os.statvfs", statvfs)
    async with caching(tmp_path, origin) as cache:
        for version in range(1, 9):
            file = FileRef(b"a", version, MIB)
            assert await _whole(cache, file) == content(file)
            while cache.unwritten:
                await anyio.lowlevel.checkpoint()
            assert cache.on_disk <= 4 * MIB
        assert cache.on_disk >= 2 * MIB  # old versions went for new ones
        assert not cache.refused_by_disk
        free = 1024  # others took the rest
        for version in (10, 11):
            file = FileRef(b"b", version, 20 * MIB)
            assert await _whole(cache, file) == content(file)
        while cache.unwritten:
            await anyio.lowlevel.checkpoint()
        assert cache.refused_by_disk
        assert cache.on_disk <= 4 * MIB


def _full(*_: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 10)])
async def test_cache_files_that_somebody_cut_or_removed_are_fetched_again(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    origin = Origin()
    files = [FileRef(b"large", 1, 40 * MIB), FileRef(b"small", 2, 1000)]
    async with caching(tmp_path, origin) as cache:
        for file in files:
            await _whole(cache, file, MIB)
        await _stored(cache, 40 * MIB + 1000)
    for found in tmp_path.rglob("????????????????"):
        harm(found)
    async with caching(tmp_path, origin) as cache:
        for file in files:
            assert await _whole(cache, file, MIB) == content(file)
    assert origin.sent == {1: 80 * MIB, 2: 2000}


async def test_a_cache_file_that_is_cut_while_it_is_used_is_fetched_again(tmp_path: Path) -> None:
    origin = Origin()
    file = FileRef(b"a", 1, 50 * MIB)
    async with caching(tmp_path, origin) as cache:
        await _whole(cache, file, MIB)
        await _stored(cache, file.size)
        await cache.read(file, 0, 1)
        (path,) = tmp_path.rglob("????????????????")
        os.truncate(path, MIB)
        assert await _whole(cache, file, MIB) == content(file)


async def test_files_that_are_fetched_ahead_come_together(tmp_path: Path) -> None:
    origin = Origin()
    files = [FileRef(b"%d" % number, number, 1000 + number) for number in range(1, 50)]
    async with caching(tmp_path, origin) as cache:
        cache.fetch_ahead(files[:40])
        cache.fetch_ahead(files)
        assert all(map(cache.has, files))
        for file in files:
            assert await _whole(cache, file) == content(file)
        await _stored(cache, sum(file.size for file in files))
    assert origin.calls == 2
    async with caching(tmp_path, origin) as cache:
        assert all(map(cache.has, files))


@pytest.mark.parametrize("error", [Gone(), Unavailable("host_lost", "gone", "Look.")])
async def test_a_file_that_could_not_be_fetched_ahead_is_fetched_by_its_reader(
    tmp_path: Path, error: Exception
) -> None:
    origin = Origin()
    origin.whole_error = error
    file = FileRef(b"a", 1, 1000)
    async with caching(tmp_path, origin) as cache:
        cache.fetch_ahead([file])
        assert cache.has(file)
        assert await _whole(cache, file) == content(file)
    assert origin.calls == 2
    assert origin.sent == {1: 1000}


async def test_a_disk_that_is_slower_than_the_network_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written until all was read: far more than is kept in memory."""
    origin = Origin()
    free = threading.Event()
    real = os.pwrite

    def slow(fd: int, data: bytes, offset: int) -> int:
        free.wait()
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", slow)
    files = [FileRef(b"%d" % number, number, 50 * MIB) for number in (1, 2, 3)]
    async with caching(tmp_path, origin) as cache:
        try:
            for file in files:
                assert await _whole(cache, file, MIB) == content(file)
        finally:
            free.set()
        assert cache.refused_by_disk
        for file in files:
            assert await _whole(cache, file, MIB) == content(file)


async def test_what_is_known_of_small_files_does_not_grow_with_their_number(tmp_path: Path) -> None:
    origin = Origin()
    async with caching(tmp_path, origin) as cache:
        for first in range(1, 20_001, 500):
            files = [FileRef(b"%d" % number, number, 20) for number in range(first, first + 500)]
            assert len(await cache.read_whole(files)) == 500
            await _stored(cache, 20 * (first + 499))
        assert len(cache._items) <= 8192


async def test_a_reader_of_what_is_fetched_when_the_cache_ends_is_told_so(tmp_path: Path) -> None:
    origin = Origin()
    origin.held = anyio.Event()
    failed = anyio.Event()

    async def read(cache: ByteCache) -> None:
        with pytest.raises(Gone):
            await cache.read(FileRef(b"a", 1, 5 * MIB), 0, MIB)
        failed.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as readers:
            async with anyio.create_task_group() as group:
                cache = ByteCache(CacheFiles(tmp_path), [origin], group, 10**9)
                readers.start_soon(read, cache)
                await anyio.wait_all_tasks_blocked()
                group.cancel_scope.cancel()
            await failed.wait()
        cache.close()


@pytest.mark.parametrize("limit", [10**9, 10])
async def test_of_many_small_files_not_each_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Whether the disk takes them or not. What must be remembered costs no look at it with each new one."""
    for name, value in (("_MOST_ITEMS", 64), ("_MOST_HOT_PIECES", 16)):
        monkeypatch.setattr(f"milkweed.runtime.mounts.cache.{name}", value)
    looks = 0
    look = ByteCache._forget_idle

    def counted(cache: ByteCache) -> None:
        nonlocal looks
        looks += 1
        look(cache)

    monkeypatch.setattr(ByteCache, "_forget_idle", counted)
    async with caching(tmp_path, Origin(), limit=limit) as cache:
        for version in range(1, 501):
            file = FileRef(b"f", version, 100)
            assert await cache.read(file, 0, 100) == content(file)
            while cache.unwritten:
                await anyio.lowlevel.checkpoint()
        assert len(cache._items) <= 64 + 16 + 16
        assert looks <= 500 / 16 + 1
        assert await cache.read(FileRef(b"f", 1, 100), 0, 100) == content(FileRef(b"f", 1, 100))


async def test_a_large_file_that_is_read_once_needs_little_memory_but_what_others_read_too_is_kept(
    tmp_path: Path,
) -> None:
    file, other = FileRef(b"a", 1, 24 * MIB), FileRef(b"b", 2, 24 * MIB)
    async with caching(tmp_path, Origin()) as cache:
        await _whole(cache, file)
        while cache.unwritten:
            await anyio.sleep(0.001)
        assert cache._hot_bytes < 4 * MIB
        assert await _whole(cache, file) == content(file)
        cache.pace.lent()
        await _whole(cache, other)
        while cache.unwritten:
            await anyio.sleep(0.001)
        assert cache._hot_bytes >= 24 * MIB


async def test_small_files_that_came_together_lie_together_and_go_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Origin()
    monkeypatch.setattr("milkweed.runtime.mounts.cache._MOST_HOT", 0)
    files = [FileRef(b"%d" % number, number, 1000) for number in range(1, 201)]
    async with caching(tmp_path, origin, limit=20_000) as cache:
        for first in range(0, 200, 10):
            batch = files[first : first + 10]
            assert await cache.read_whole(batch) == [content(file) for file in batch]
            while cache.unwritten:
                await anyio.sleep(0.001)
            assert cache.on_disk <= 20_000
        assert len(list((tmp_path / "packs").iterdir())) <= 3
        assert not cache.refused_by_disk
    sent = origin.sent.total()
    async with caching(tmp_path, origin, limit=20_000) as cache:
        await cache.recall()
        assert cache.on_disk <= 20_000
        for file in files[-10:]:
            assert await _whole(cache, file) == content(file)
    assert origin.sent.total() == sent


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 5000)])
@pytest.mark.parametrize("is_used", [True, False])
async def test_packs_that_somebody_cut_or_removed_are_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None], is_used: bool
) -> None:
    monkeypatch.setattr("milkweed.runtime.mounts.cache._MOST_HOT", 0)
    files = [FileRef(b"%d" % number, number, 1000) for number in range(1, 11)]

    async def harmed(cache: ByteCache) -> None:
        await cache.read_whole(files)
        while cache.unwritten:
            await anyio.sleep(0.001)
        (pack,) = (tmp_path / "packs").iterdir()
        harm(pack)

    async def read(cache: ByteCache) -> None:
        for file in files:
            assert await _whole(cache, file) == content(file)

    async with caching(tmp_path, Origin()) as cache:
        await harmed(cache)
        if is_used:
            await read(cache)
    async with caching(tmp_path, Origin()) as cache:
        await read(cache)


async def test_a_full_disk_costs_small_files_that_came_together_a_fetch_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milkweed.runtime.mounts.cache._MOST_HOT", 0)
    monkeypatch.setattr(os, "writev", _full)
    files = [FileRef(b"%d" % number, number, 1000) for number in range(1, 11)]
    async with caching(tmp_path, Origin()) as cache:
        for _ in range(2):
            assert await cache.read_whole(files) == [content(file) for file in files]
            while cache.unwritten:
                await anyio.sleep(0.001)
        assert cache.on_disk == 0
        assert cache.refused_by_disk == 20_000
    assert list((tmp_path / "packs").iterdir()) == []
