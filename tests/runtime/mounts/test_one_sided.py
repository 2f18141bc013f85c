"""Large ranges by one-sided memory: by what they go, and what becomes of them when an end of it fails."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import milkweed.runtime
from milkweed.runtime import RDMABuffer
from milkweed.runtime.actor import Actor, endpoint
from milkweed.runtime.call import serve
from milkweed.runtime.errors import Conflict, Unavailable
from milkweed.runtime.mounts import (
    FEED,
    FileRef,
    Gone,
    Landings,
    ReadFeed,
    RemoteReads,
    Unreadable,
    open_remote,
)
from milkweed.runtime.mounts import landing as landing_module
from milkweed.runtime.mounts import lending as lending_module
from milkweed.runtime.mounts.feed import Landed
from milkweed.runtime.mounts.source import Bytes
from milkweed.runtime.tasks import background_tasks

from .ends import CHUNK, command, file_in, prepared, read_all, started
from .stage import aside, read, staged, write

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
SIZE = 9 * MIB + 4321
DEADLINE_S = 60.0


@pytest.fixture
def data(directory: Path) -> bytes:
    """What is in the file `big` of `directory/src`."""
    (directory / "src").mkdir()
    made = os.urandom(SIZE)
    write(directory / "src" / "big", made)
    return made


def feeding(directory: Path, how: str = "") -> Any:
    return started("feed", str(directory / "src"), str(directory / "s"), *([how] if how else []))


class Held:
    """A `Reads` of one version of a file, which waits for `may_go`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked = anyio.Event()
        self.may_go = anyio.Event()

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        self.asked.set()
        await self.may_go.wait()
        return self.data[offset : offset + length]

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        return [None for _ in files]


class Ready(Held):
    """One that does not wait."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.may_go.set()


class Refusing(Ready):
    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        raise Unreadable(errno.EACCES)


@asynccontextmanager
async def read_from(
    directory: Path, actor: Actor, *, patience_s: float = 20.0, landings: Landings | None = None
) -> AsyncIterator[RemoteReads]:
    with anyio.fail_after(DEADLINE_S):
        async with background_tasks() as tasks:
            socket = directory / "f"
            await tasks.start(
                lambda task_status: serve(socket, {FEED: actor}, role="host", task_status=task_status)
            )
            reads = RemoteReads(socket, "another host", patience_s, landings or prepared())
            await tasks.start(reads.run)
            yield reads


async def test_large_ranges_are_written_by_whoever_has_them_and_small_ones_come_in_messages(
    directory: Path, data: bytes
) -> None:
    with feeding(directory):
        async with open_remote(directory / "s", "me", landings=prepared()) as source:
            file = await file_in(source, b"big")
            assert await read_all(source, file) == data
            assert source.moved == {"process_vm": 2 * CHUNK + (SIZE - 2 * CHUNK)}
            assert await source.read(file, 5, 70_000) == data[5:70_005]
            assert await source.read_whole([file]) == [data]
            assert source.moved["messages"] > 70_000 + SIZE
            assert source.in_messages == ""


async def test_a_file_that_went_or_cannot_be_read_is_said_and_costs_no_landing(
    directory: Path, data: bytes
) -> None:
    landings = prepared()
    with feeding(directory):
        async with open_remote(directory / "s", "me", landings=landings) as source:
            file = await file_in(source, b"big")
            for _ in range(3):
                with pytest.raises(Gone):
                    await source.read(file._replace(version=1), 0, CHUNK)
            assert landings.held == CHUNK

    async with read_from(directory, ReadFeed(Refusing(b""))) as reads:
        with pytest.raises(Unreadable) as caught:
            await reads.read(FileRef(b"big", 1, SIZE), 0, CHUNK)
        assert caught.value.errno == errno.EACCES


async def test_where_processes_may_not_be_looked_into_the_bytes_go_by_a_socket(
    directory: Path, data: bytes
) -> None:
    with feeding(directory, "forbid_process_vm"):
        async with open_remote(directory / "s", "me", landings=prepared()) as source:
            assert await read_all(source, await file_in(source, b"big")) == data
            assert source.moved == {"unix": SIZE}


async def test_where_no_transport_leads_bytes_come_in_messages_which_is_said_once(
    directory: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def as_if_from_another_host(buffer: RDMABuffer) -> bytes:
        owner = buffer.handle.owner
        elsewhere = replace(owner, machine=replace(owner.machine, boot="another"), tcp=None)
        moved = RDMABuffer.__new__(RDMABuffer)
        moved.handle, moved.only = replace(buffer.handle, owner=elsewhere), None
        return pickle.dumps(moved)

    monkeypatch.setattr(landing_module, "pickle", SimpleNamespace(dumps=as_if_from_another_host))
    monkeypatch.setattr(lending_module, "_CLOSED_S", 0.0)  # it is tried for each
    landings = prepared()
    with feeding(directory), caplog.at_level(logging.WARNING):
        async with open_remote(directory / "s", "me", landings=landings) as source:
            assert await read_all(source, await file_in(source, b"big")) == data
            assert source.moved == {"messages": SIZE}
            assert "transport_unusable" in source.in_messages
            assert "its owner is on another host" in source.in_messages
            said = [one for one in caplog.messages if "come in messages" in one]
            assert len(said) == 1


async def test_a_way_that_is_closed_is_tried_again_after_a_while_alone(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refused(buffer: RDMABuffer, *_: Any, **__: Any) -> Any:
        tried.append(buffer)
        raise Unavailable("transport_unusable", "no way leads there", "Mend one.")

    monkeypatch.setattr(RDMABuffer, "write_from", refused)
    data = os.urandom(SIZE)
    async with read_from(directory, ReadFeed(Ready(data))) as reads:
        file = FileRef(b"big", 1, SIZE)
        for offset in (0, MIB, 2 * MIB):
            assert await reads.read(file, offset, MIB) == data[offset : offset + MIB]
        assert len(tried) == 1
        assert reads.moved == {"messages": 3 * MIB}
        assert "no way leads there" in reads.in_messages
        monkeypatch.undo()
        reads._lending._closed_until = anyio.current_time()
        assert await reads.read(file, 5 * MIB, MIB) == data[5 * MIB : 6 * MIB]
        assert reads.moved["local"] == MIB
        assert reads.in_messages == ""


async def test_without_the_modules_of_buffers_bytes_come_in_messages(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "milkweed.runtime.memory", None)
    monkeypatch.delattr(milkweed.runtime, "memory")
    with caplog.at_level(logging.WARNING):
        landings = prepared()
    assert any("all bytes come in messages" in one for one in caplog.messages)
    data = os.urandom(SIZE)
    async with read_from(directory, ReadFeed(Ready(data)), landings=landings) as reads:
        assert await reads.read(FileRef(b"big", 1, SIZE), 0, CHUNK) == data[:CHUNK]
        assert reads.moved == {"messages": CHUNK}


class Careless(Actor):
    """Fails once, and does not say whether it will write yet: later it does, beside what it was asked for."""

    def __init__(self) -> None:
        self.landings: list[Any] = []

    @endpoint
    async def read_to(
        self, path: bytes, version: int, size: int, offset: int, length: int, landing: bytes
    ) -> Landed:
        self.landings.append(pickle.loads(landing))
        if len(self.landings) == 1:
            raise Unavailable("deadline_exceeded", "it took too long", "Ask again.")
        with pytest.raises(Conflict, match="buffer_dropped"):
            await self.landings[0].write_from(b"late" * (length // 4))
        await self.landings[-1].write_from(b"good" * (length // 4))
        return Landed("local")


async def test_a_write_that_is_late_reaches_no_other_request(directory: Path) -> None:
    actor = Careless()
    async with read_from(directory, actor) as reads:
        assert await reads.read(FileRef(b"big", 1, SIZE), 0, MIB) == b"good" * (MIB // 4)
        assert len(actor.landings) == 2


async def test_who_leaves_in_the_middle_leaves_nothing_to_be_written_into(
    directory: Path, data: bytes
) -> None:
    reading, landings = Held(data), prepared()
    async with read_from(directory, ReadFeed(reading), landings=landings) as reads:
        file = FileRef(b"big", 1, SIZE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reads.read, file, 0, CHUNK)
            await reading.asked.wait()
            tasks.cancel_scope.cancel()
        (dropped, _), *_ = landings._dropping
        with pytest.raises(Conflict, match="buffer_dropped"):
            await pickle.loads(dropped.pickled).write_from(b"late")
        reading.may_go.set()
        assert await reads.read(file, MIB, CHUNK) == data[MIB : MIB + CHUNK]


async def test_a_feed_that_is_killed_while_it_writes_is_asked_again_when_it_is_back(
    directory: Path, data: bytes
) -> None:
    landings = prepared()
    found: list[bytes] = []
    with anyio.fail_after(DEADLINE_S):
        async with open_remote(directory / "s", "me", landings=landings) as source:
            with feeding(directory, "hang") as feed:
                file = await file_in(source, b"big")

                async def read_it() -> None:
                    found.append(bytes(await source.read(file, MIB, CHUNK)))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read_it)
                    assert await aside(feed.heard) == "in a transfer"
                    feed.process.kill()
                    with feeding(directory):
                        while not found:
                            await anyio.sleep(0.001)
            assert found == [data[MIB : MIB + CHUNK]]
            while landings.held > CHUNK:  # that of the killed one is let go
                await anyio.sleep(0.001)
                if (one := landings.lend(1)) is not None:
                    one.unused()


async def test_readers_that_are_killed_while_they_are_written_to_keep_no_feed_from_others(
    directory: Path,
) -> None:
    data = os.urandom(SIZE)
    async with staged(directory, fill=lambda source: write(source / "big", data)) as stage:
        for _ in range(2):
            reader = await anyio.open_process(
                command("read", str(stage.socket), "big", "1000000"), stdout=subprocess.PIPE
            )
            async with reader:
                assert reader.stdout is not None
                await reader.stdout.receive(1)  # it reads on and on
                reader.send_signal(signal.SIGKILL)
        async with open_remote(stage.socket, "me", landings=prepared()) as source:
            assert await read_all(source, await file_in(source, b"big")) == data
        while stage.workspace._readers.borrowed_tokens:
            await anyio.sleep(0.001)


async def test_a_file_that_changes_while_it_is_read_is_never_a_mix(directory: Path) -> None:
    (directory / "src").mkdir()
    write(directory / "src" / "big", b"o" * CHUNK)
    with anyio.fail_after(DEADLINE_S), feeding(directory, "tear") as feed:
        async with open_remote(directory / "s", "me", landings=prepared()) as source:
            old = await file_in(source, b"big")
            with pytest.raises(Gone):
                await source.read(old, 0, CHUNK)
            assert await aside(feed.heard) == "torn"
            while (new := await file_in(source, b"big")).version == old.version:
                await anyio.sleep(0.001)
            assert await source.read(new, 0, CHUNK) == b"n" * CHUNK
            assert source.moved == {"process_vm": CHUNK}


@pytest.mark.usefixtures("fuse")
async def test_a_mount_says_by_what_its_bytes_came(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(SIZE)
    async with staged(directory, hosts=1) as stage:
        state, numbers = stage.hosts[0].state, itertools.count()
        while not (state.said or {}).get("moved", {}).get("process_vm"):
            # What is read first comes in messages: what landings need is imported meanwhile.
            name = f"big-{next(numbers)}"
            write(stage.source / name, data)
            await stage.barrier()
            assert await aside(partial(read, stage.mount() / name)) == data
        assert state.said is not None
        assert state.said["in_messages"] == ""

        def refused(*_: Any, **__: Any) -> Any:
            raise Unavailable("transport_unusable", "no way leads there", "Mend one.")

        monkeypatch.setattr(RDMABuffer, "write_from", refused)
        write(stage.source / "other", data)
        await stage.barrier()
        assert await aside(lambda: read(stage.mount() / "other")) == data
        while "no way leads there" not in (state.said or {}).get("in_messages", ""):
            await anyio.sleep(0.01)
