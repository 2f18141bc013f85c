"""Fetching from hosts that are asked themselves: what moves, what is in place then, and what never is."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime import arriving
from milkweed.runtime.errors import Conflict, MilkweedError, Unavailable
from milkweed.runtime.fetching import Fetched, fetch
from milkweed.runtime.file_records import FileChunk, FileListing
from milkweed.runtime.gather.direct import Direct, open_origins
from milkweed.runtime.origins import PART, Origin
from milkweed.runtime.services.listing import list_path
from milkweed.runtime.services.opening import open_regular
from tests.runtime.mounts.stage import names_of_every_kind, read, write

from .stage import Host, served

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

_MIB = 1 << 20


@dataclass
class Keeper:
    """What the keeper answers of its hosts; `chunks` were asked of it."""

    hosts: list[Path]
    chunks: int = 0

    async def list_files(
        self, path: str, *, hosts: Sequence[int] | None = None, pattern: str | None = None, limit: int = 200
    ) -> dict[int, FileListing | MilkweedError]:
        found: dict[int, FileListing | MilkweedError] = {}
        for host in hosts or ():
            try:
                found[host] = list_path(os.path.join(self.hosts[host], path), pattern, limit, 1e18)
            except MilkweedError as error:
                found[host] = error
        return found

    async def file_chunk(self, path: str, *, host: int, offset: int, length: int) -> FileChunk:
        self.chunks += 1
        with open_regular(path) as (fd, status):
            return FileChunk(offset, os.pread(fd, length, offset), status.st_size, status.st_mtime)


@dataclass
class Stage:
    directory: Path
    host: Host
    keeper: Keeper
    origins: dict[int, Origin]
    reports: list[tuple[float, float]] = field(default_factory=list)

    @property
    def moved(self) -> dict[str, int]:
        origin = self.origins[0]
        assert isinstance(origin, Direct)
        return dict(origin._host.moved)

    @property
    def target(self) -> Path:
        return self.directory / "target" / "0"

    async def fetch(self, path: str, within_s: float = 60.0) -> tuple[Fetched, ...]:
        async def report(done: float, total: float | None, message: str) -> None:
            self.reports.append((done, total or 0))

        return await fetch(
            self.keeper,
            path,
            hosts=(0,),
            destination=str(self.directory / "target"),
            report=report,
            within_s=within_s,
            direct=self.origins,
        )

    def left_beside(self) -> list[str]:
        return [path.name for path in self.target.rglob("*.part")]


@asynccontextmanager
async def staged(directory: Path, kind: type[Host] = Host) -> AsyncIterator[Stage]:
    host = kind(directory / "h0")
    with anyio.fail_after(100):
        async with (
            served(host, directory / "s0"),
            open_origins({0: str(directory / "s0")}) as origins,
        ):
            assert list(origins) == [0]
            yield Stage(directory, host, Keeper([host.directory]), origins)


async def test_a_folder_arrives_as_it_is(directory: Path) -> None:
    async with staged(directory) as stage:
        source = stage.host.directory / "out"
        (source / "sub" / "deep").mkdir(parents=True)
        for name in names_of_every_kind():
            if len(name) < 200:
                write(os.fsencode(source / "sub") + b"/" + name, name)
        write(source / "empty", "")
        write(source / "sub" / "deep" / "large", random.Random(1).randbytes(3 * PART + 77))
        write(source / "medium", random.Random(2).randbytes(300_000))
        os.utime(source / "medium", ns=(1_234_567_890_123_456_789, 1_234_567_890_123_456_789))
        (source / "latest").symlink_to("medium")
        (source / "nowhere").symlink_to("missing")
        os.mkfifo(source / "fifo")
        found = await stage.fetch("out")
        states = {os.path.basename(one.path): one.state for one in found}
        assert {name for name, state in states.items() if state == "skipped"} == {"nowhere", "fifo"}
        assert set(states.values()) == {"skipped", "copied"}
        for path in source.rglob("*"):
            place = stage.target / "out" / path.relative_to(source)
            if path.is_file():
                assert read(place) == read(path), path
                assert place.stat().st_mtime_ns == path.stat().st_mtime_ns
        assert (stage.target / "out" / "latest").is_file()
        assert not (stage.target / "out" / "latest").is_symlink()
        assert stage.left_beside() == []
        assert stage.keeper.chunks == 0
        again = await stage.fetch("out")
        assert {one.state for one in again} == {"skipped", "unchanged"}


async def test_what_is_there_with_the_same_bytes_is_left_and_never_overwritten(directory: Path) -> None:
    async with staged(directory) as stage:
        data = random.Random(1).randbytes(9 * _MIB)
        write(stage.host.directory / "a", data)
        await stage.fetch("a")
        before = stage.moved
        os.utime(stage.target / "a", (1, 1))
        (one,) = await stage.fetch("a")
        assert (one.state, stage.moved) == ("unchanged", before)  # hashes alone were compared
        with open(stage.target / "a", "r+b") as file:
            file.seek(5 * _MIB)
            file.write(b"mine")
        os.utime(stage.target / "a", (1, 1))
        with pytest.raises(Conflict, match="file_exists"):
            await stage.fetch("a")
        assert read(stage.target / "a")[5 * _MIB : 5 * _MIB + 4] == b"mine"


async def test_large_files_come_by_one_sided_memory_and_progress_is_told(directory: Path) -> None:
    async with staged(directory) as stage:
        data = random.Random(3).randbytes(40 * _MIB + 3)
        write(stage.host.directory / "big", data)
        while True:  # until what landings need is imported
            await stage.fetch("big")
            assert read(stage.target / "big") == data
            if set(stage.moved) != {"messages"}:
                break
            (stage.target / "big").unlink()
        assert stage.reports[-1] == (len(data), len(data))
        assert all(done <= total for done, total in stage.reports)


async def test_holes_are_not_moved_and_stay_holes(directory: Path) -> None:
    async with staged(directory) as stage:
        size = 200 * 10**9
        pieces = {0: b"head" * 1000, 7 * 10**9: b"middle" * 100_000, size - 5: b"tail."}
        with open(stage.host.directory / "sparse", "wb") as file:
            for offset, data in pieces.items():
                file.seek(offset)
                file.write(data)
        with open(stage.host.directory / "hole", "wb") as file:
            file.truncate(10**12)
        for name in ("sparse", "hole"):
            (one,) = await stage.fetch(name)
            assert one.state == "copied"
        found = (stage.target / "sparse").stat()
        assert (found.st_size, (stage.target / "hole").stat().st_size) == (size, 10**12)
        assert found.st_blocks * 512 < 2 * _MIB
        assert (stage.target / "hole").stat().st_blocks == 0
        with open(stage.target / "sparse", "rb") as file:
            for offset, data in pieces.items():
                assert os.pread(file.fileno(), len(data), offset) == data
            assert os.pread(file.fileno(), 4096, 10**9) == bytes(4096)
        assert sum(stage.moved.values()) < 2 * _MIB


async def test_two_calls_at_once_fetch_the_same_one_after_the_other(directory: Path) -> None:
    async with staged(directory) as stage:
        source = stage.host.directory / "out"
        source.mkdir()
        for number in range(3):
            write(source / f"small-{number}", b"small")
            with open(source / f"large-{number}", "wb") as file:
                file.write(random.Random(number).randbytes(3 * PART))
                file.seek(6 * PART)
                file.write(random.Random(number).randbytes(3 * PART))
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(stage.fetch, "out")
        for path in source.iterdir():
            assert read(stage.target / "out" / path.name) == read(path), path.name
        assert stage.left_beside() == []
        assert sum(stage.moved.values()) < 4 * 6 * PART


async def test_a_file_that_was_left_in_its_middle_goes_on_from_there(directory: Path) -> None:
    async with staged(directory) as stage:
        data = random.Random(4).randbytes(10 * PART + 5)
        write(stage.host.directory / "big", data)
        calls = 0
        while (await stage.fetch("big", within_s=0.0))[0].state == "left":
            assert not (stage.target / "big").exists()
            assert len(stage.left_beside()) == 1
            calls += 1
            assert calls <= 20
        assert calls >= 5
        assert read(stage.target / "big") == data
        assert stage.left_beside() == []


async def test_what_was_left_is_not_believed_where_it_is_not_what_was_read(directory: Path) -> None:
    async with staged(directory) as stage:
        data = random.Random(5).randbytes(6 * PART)
        write(stage.host.directory / "big", data)
        assert (await stage.fetch("big", within_s=0.0))[0].state == "left"
        (partial,) = stage.target.glob(".big.*.part")
        with open(partial, "r+b") as file:
            file.seek(-100, os.SEEK_END)
            file.write(b"torn")
        await stage.fetch("big")
        assert read(stage.target / "big") == data


async def test_what_was_left_of_another_version_is_not_taken(directory: Path) -> None:
    async with staged(directory) as stage:
        write(stage.host.directory / "big", b"1" * 6 * PART)
        assert (await stage.fetch("big", within_s=0.0))[0].state == "left"
        write(stage.host.directory / "big", b"2" * 6 * PART)
        await stage.fetch("big")
        assert read(stage.target / "big") == b"2" * 6 * PART


async def test_of_many_files_those_that_were_not_begun_are_left(directory: Path) -> None:
    async with staged(directory) as stage:
        (stage.host.directory / "out").mkdir()
        for number in range(20):
            write(stage.host.directory / "out" / f"{number}", b"x" * 100_000)
        found = await stage.fetch("out", within_s=0.0)
        copied = [one for one in found if one.state == "copied"]
        assert 1 <= len(copied) < 20
        assert len([one for one in found if one.state == "left"]) == 20 - len(copied)
        assert {one.state for one in await stage.fetch("out")} == {"unchanged", "copied"}


class Writing(Host):
    """Whose file is written again by somebody after some parts were read of it."""

    parts = 0
    rewritten_at = (2,)

    async def part(self, path: bytes, *more: Any) -> Any:
        self.parts += 1
        if self.parts in self.rewritten_at:
            write(path, b"%d" % (self.parts % 10) * 6 * PART)
        return await super().part(path, *more)

    part.__dict__.update(Host.part.__dict__)


async def test_a_file_that_changes_while_it_is_fetched_arrives_in_one_version(directory: Path) -> None:
    async with staged(directory, Writing) as stage:
        write(stage.host.directory / "big", b"0" * 6 * PART)
        (one,) = await stage.fetch("big")
        assert one.state == "copied"
        assert read(stage.target / "big") == b"2" * 6 * PART
        assert stage.left_beside() == []


async def test_a_file_that_changes_all_the_time_is_refused_and_not_there(directory: Path) -> None:
    class Always(Writing):
        rewritten_at = range(10**6)  # type: ignore[assignment]

    async with staged(directory, Always) as stage:
        write(stage.host.directory / "big", b"x" * 6 * PART)
        with pytest.raises(Conflict, match=r"file_changed: .*big on host 0 changed"):
            await stage.fetch("big")
        assert list(stage.target.iterdir()) == []


class Garbling(Host):
    """Whose bytes are others on arrival than they were."""

    async def part(self, *arguments: Any) -> Any:
        answer = await super().part(*arguments[:-1], None)
        chunk, length, digest = answer
        return type(chunk)(b"\0" + bytes(chunk.data[1:])), length, digest

    async def whole(self, below: list[bytes]) -> Any:
        return [(one[0], type(one[1])(bytes(len(one[1].data))), one[2]) for one in await super().whole(below)]  # type: ignore[union-attr,index]

    part.__dict__.update(Host.part.__dict__)
    whole.__dict__.update(Host.whole.__dict__)


@pytest.mark.parametrize("size", [1000, 3 * PART])
async def test_bytes_that_are_not_what_was_read_are_refused(directory: Path, size: int) -> None:
    async with staged(directory, Garbling) as stage:
        write(stage.host.directory / "a", random.Random(6).randbytes(size))
        with pytest.raises(Unavailable, match="transfer_failed"):
            await stage.fetch("a")
        assert not (stage.target / "a").exists()


@pytest.mark.parametrize("size", [1000, 3 * PART])
async def test_a_full_disk_is_said_and_nothing_is_in_place(
    directory: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    room = size // 2

    def until_it_is_full(fd: int, data: Any, offset: int) -> None:
        if offset + len(data) > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_(fd, data, offset)

    write_ = arriving._write
    monkeypatch.setattr(arriving, "_write", until_it_is_full)
    async with staged(directory) as stage:
        data = random.Random(7).randbytes(size)
        write(stage.host.directory / "a", data)
        with pytest.raises(Unavailable, match=r"disk_full: .*No space left"):
            await stage.fetch("a")
        assert not (stage.target / "a").exists()
        room = 10 * size  # somebody has made room
        await stage.fetch("a")
        assert read(stage.target / "a") == data


async def test_two_hundred_small_files_are_a_few_questions(directory: Path) -> None:
    async with staged(directory) as stage:
        (stage.host.directory / "out").mkdir()
        for number in range(200):
            write(stage.host.directory / "out" / f"{number}", f"{number}" * 50)
        await stage.fetch("out")
        assert sum(stage.host.asked.values()) <= 12, stage.host.asked
        for number in range(200):
            assert read(stage.target / "out" / f"{number}") == f"{number}".encode() * 50


async def test_what_may_not_be_written_is_said(directory: Path) -> None:
    async with staged(directory) as stage:
        write(stage.host.directory / "a", "x")
        stage.target.parent.mkdir()
        write(stage.target, "a file in its way")
        with pytest.raises(Unavailable, match="directory_unusable"):
            await stage.fetch("a")


async def test_a_host_that_goes_is_said_and_the_next_call_goes_on(directory: Path) -> None:
    host = Host(directory / "h0")
    keeper = Keeper([host.directory])
    data = random.Random(8).randbytes(12 * PART)
    write(host.directory / "big", data)
    with anyio.fail_after(60):
        async with open_origins({0: str(directory / "s0")}) as nobody:
            assert nobody == {}  # who is not there is asked by the keeper
        async with served(host, directory / "s0"), open_origins({0: str(directory / "s0")}) as origins:
            stage = Stage(directory, host, keeper, origins)
            assert (await stage.fetch("big", within_s=0.0))[0].state == "left"
            hangs = host.hangs = anyio.Event()

            async def ends() -> None:
                while not host.asked["part"]:
                    await anyio.sleep(0.01)

            await ends()
            with pytest.raises(Unavailable, match="host_lost: host 0 does not answer"):
                await stage.fetch("big")
            hangs.set()
            host.hangs = None
        async with served(host, directory / "s0"), open_origins({0: str(directory / "s0")}) as origins:
            stage = Stage(directory, host, keeper, origins)
            await stage.fetch("big")
            assert read(stage.target / "big") == data
            assert sum(stage.moved.values()) < len(data)  # not from its beginning


async def test_without_a_way_to_the_host_bytes_come_over_the_keeper(directory: Path) -> None:
    async with staged(directory) as stage:
        stage.origins.clear()
        (stage.host.directory / "out").mkdir()
        data = random.Random(9).randbytes(5 * _MIB + 1)
        write(stage.host.directory / "out" / "big", data)
        write(stage.host.directory / "out" / "small", "x")
        await stage.fetch("out")
        assert read(stage.target / "out" / "big") == data
        assert read(stage.target / "out" / "small") == b"x"
        assert stage.keeper.chunks > 5
        assert {one.state for one in await stage.fetch("out")} == {"unchanged"}


async def test_files_of_the_kernel_are_fetched_though_they_have_no_size(directory: Path) -> None:
    async with staged(directory) as stage:
        await stage.fetch("/proc/version")
        assert read(stage.target / "version") == read(Path("/proc/version"))
        assert stat.S_ISREG((stage.target / "version").stat().st_mode)
