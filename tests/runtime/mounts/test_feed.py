"""A source in another place: followed, acknowledged, lost and found again."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.call import open_connection, serve
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.mounts import (
    FEED,
    Feed,
    FileRef,
    Followers,
    Gone,
    Manifest,
    ReadFeed,
    RemoteReads,
    Unreadable,
    open_remote,
    open_workspace,
)
from milkweed.runtime.mounts.deltas import Delta, apply
from milkweed.runtime.mounts.source import Bytes
from milkweed.runtime.tasks import background_tasks

from .stage import serving, staged, write

pytestmark = pytest.mark.anyio


async def test_a_remote_source_is_as_the_source_itself(directory: Path) -> None:
    data = os.urandom(5_000_000)
    async with (
        staged(directory, fill=lambda source: write(source / "a", data)) as stage,
        open_remote(stage.socket, "me") as remote,
    ):
        manifest = await remote.open()
        assert manifest == stage.workspace.manifest
        entry = manifest.entry(b"a")
        assert entry is not None
        file = FileRef(b"a", entry.version, entry.size)
        assert await remote.read(file, 7, 4_500_000) == data[7:4_500_007]
        write(stage.source / "b", "new")
        news = await remote.since(manifest.epoch, manifest.revision)
        assert isinstance(news, Delta)
        apply(manifest, news)
        await stage.workspace.barrier()
        while manifest.revision < stage.workspace.manifest.revision:
            news = await remote.since(manifest.epoch, manifest.revision)
            assert isinstance(news, Delta)
            apply(manifest, news)
        assert manifest == stage.workspace.manifest
        with pytest.raises(Gone):
            await remote.read(file._replace(version=1), 0, 1)


async def test_small_files_come_together_and_what_went_is_none(directory: Path) -> None:
    def fill(source: Path) -> None:
        for number in range(5):
            write(source / f"f{number}", f"{number}" * number)

    async with (
        staged(directory, fill=fill) as stage,
        open_remote(stage.socket, "me") as remote,
    ):
        content = stage.workspace.manifest.directories[b""]
        files = [FileRef(name, entry.version, entry.size) for name, entry in sorted(content.items())]
        files[2] = files[2]._replace(version=1)
        found = await remote.read_whole(files)
        assert [None if data is None else bytes(data) for data in found] == [b"", b"1", None, b"333", b"4444"]
        assert await remote.read_whole([]) == []


async def test_a_revision_is_acknowledged_when_the_next_one_is_asked_for(directory: Path) -> None:
    async with staged(directory) as stage, open_remote(stage.socket, "me") as remote:
        followers = stage.followers
        manifest = await remote.open()
        assert await followers.acknowledged(manifest.revision, ["me"], within_s=0.01) == ["me"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(remote.since, manifest.epoch, manifest.revision)
            assert await followers.acknowledged(manifest.revision, ["me"], within_s=20.0) == []
            assert followers.behind(manifest.revision, ["me", "other"]) == ["other"]
            assert followers.behind(manifest.revision + 1, ["me"]) == ["me"]
            tasks.cancel_scope.cancel()
        while followers.revisions:  # whoever left is not counted
            await anyio.sleep(0.001)


async def test_who_left_and_came_back_is_counted_by_its_last_call() -> None:
    followers = Followers()
    old = followers.acknowledge("me", 3)
    new = followers.acknowledge("me", 4)
    followers.left("me", old)
    assert followers.revisions == {"me": 4}
    followers.left("me", new)
    assert followers.revisions == {}


async def test_a_source_that_comes_back_is_followed_from_where_it_is(directory: Path) -> None:
    source = directory / "src"
    source.mkdir()
    write(source / "a", "1")
    with anyio.fail_after(60):
        async with open_remote(directory / "s", "me") as remote:
            async with open_workspace(source) as workspace, serving(workspace, directory / "s"):
                manifest = await remote.open()
            write(source / "b", "2")
            async with open_workspace(source) as workspace, serving(workspace, directory / "s") as followers:
                news = await remote.since(manifest.epoch, manifest.revision)
                assert isinstance(news, Manifest)
                assert news == workspace.manifest
                async with background_tasks() as tasks:
                    tasks.start_soon(remote.since, news.epoch, news.revision)
                    assert await followers.acknowledged(news.revision, ["me"], within_s=20.0) == []


async def test_nobody_there_is_told_after_a_while(directory: Path) -> None:
    file = FileRef(b"a", 1, 1)
    with anyio.fail_after(60):
        async with open_remote(directory / "s", "me", patience_s=0.1) as remote:
            with pytest.raises(Unavailable, match="the client was not there") as caught:
                await remote.read(file, 0, 1)
            assert caught.value.code == "connection_lost"
        reads = RemoteReads(directory / "s", "another host")
        async with background_tasks() as tasks:
            await tasks.start(reads.run)
            with pytest.raises(Unavailable, match="another host"):
                await reads.read(file, 0, 1)


class _Refusing:
    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        raise Unreadable(errno.EACCES)

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        return [None for _ in files]


async def test_a_file_that_cannot_be_read_is_told_with_its_errno(directory: Path) -> None:
    with anyio.fail_after(60):
        async with background_tasks() as tasks:
            actors = {FEED: ReadFeed(_Refusing())}
            await tasks.start(
                lambda task_status: serve(directory / "s", actors, role="host", task_status=task_status)
            )
            reads = RemoteReads(directory / "s", "another host", patience_s=20.0)
            await tasks.start(reads.run)
            with pytest.raises(Unreadable) as caught:
                await reads.read(FileRef(b"a", 1, 1), 0, 1)
            assert caught.value.errno == errno.EACCES


async def test_a_manifest_is_packed_once_for_all_hosts(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(directory, fill=lambda source: write(source / "a", "x")) as stage:
        packed = []
        from milkweed.runtime.mounts import feed as module

        real = module.pack_manifest
        monkeypatch.setattr(module, "pack_manifest", lambda manifest: packed.append(1) or real(manifest))
        for _ in range(3):
            async with open_connection(stage.socket, role="host") as session:
                await session.actor(FEED, Feed).call_one(Feed.open)
        assert len(packed) == 1
