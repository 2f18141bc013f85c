"""What a host writes, in view, log and files: without a mount."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from milkweed.runtime.errors import Unavailable
from milkweed.runtime.mounts import FileRef, Gone, Manifest
from milkweed.runtime.mounts.conflicts import Settler
from milkweed.runtime.mounts.host_changes import LOG, HostChanges
from milkweed.runtime.mounts.manifest import DIRECTORY, FILE, LINK, Change, Entry, join
from milkweed.runtime.mounts.overlay import HostCopy, Overlay
from milkweed.runtime.mounts.source import Bytes
from milkweed.runtime.mounts.upper import TREE, Upper

from ..nobody import as_nobody

pytestmark = pytest.mark.anyio

_PIECE = 4 * 1024 * 1024
_SIZE = 2 * _PIECE + 5


class _Client:
    """Has the bytes of one large file, as long as it answers."""

    def __init__(self) -> None:
        self.data = os.urandom(_SIZE)
        self.is_there = True
        self.asked = 0
        self.on_read = lambda: None

    async def read(self, file: FileRef, offset: int, length: int) -> Bytes:
        self.asked += length
        await anyio.lowlevel.checkpoint()
        self.on_read()
        if not self.is_there and offset:
            raise Unavailable("connection_lost", "it went", "")
        return self.data[offset : offset + length]

    async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
        raise NotImplementedError


@pytest.fixture
def manifest() -> Manifest:
    made = Manifest()
    made.put(b"d", Entry(DIRECTORY, 0o750, 0, 3_000_000_000, 0))
    made.put(b"d/big", Entry(FILE, 0o640, _SIZE, 5_000_000_000, 7))
    made.put(b"d/link", Entry(LINK, 0o777, 3, 5, 8, b"big"))
    return made


@pytest.fixture
def client() -> _Client:
    return _Client()


@pytest.fixture
def changes(tmp_path: Path, manifest: Manifest, client: _Client) -> HostChanges:
    return HostChanges(tmp_path, Overlay(manifest), client)


async def test_a_copied_file_is_as_the_clients(tmp_path: Path, changes: HostChanges, client: _Client) -> None:
    copied: list[bytes] = []
    changes.on_copied = copied.append
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(changes.copy_up, b"d/big")
    await changes.copy_up(b"d/link")
    place = tmp_path / TREE / "d"
    assert (place / "big").read_bytes() == client.data
    assert client.asked == _SIZE  # once, whoever asked
    assert (place / "big").stat().st_mode & 0o777 == 0o640
    assert (place / "big").stat().st_mtime_ns == 5_000_000_000
    assert os.readlink(place / "link") == "big"
    assert place.stat().st_mode & 0o777 == 0o750
    assert place.stat().st_mtime_ns == 3_000_000_000
    assert copied == [b"d", b"d/big", b"d/link"]


async def test_no_more_is_copied_than_will_be_left(
    tmp_path: Path, changes: HostChanges, client: _Client
) -> None:
    await changes.copy_up(b"d/big", 10)
    assert (tmp_path / TREE / "d" / "big").read_bytes() == client.data[:10]
    assert client.asked == 10


async def test_a_copy_that_fails_or_is_left_leaves_nothing(
    tmp_path: Path, changes: HostChanges, client: _Client
) -> None:
    client.is_there = False
    with pytest.raises(Unavailable):
        await changes.copy_up(b"d/big")
    scope = anyio.CancelScope()
    client.on_read = scope.cancel
    with scope:
        await changes.copy_up(b"d/big")
    assert scope.cancelled_caught
    assert list(tmp_path.rglob("*/*")) == []
    assert changes.overlay.known() == []
    client.is_there = True
    client.on_read = lambda: None
    await changes.copy_up(b"d/big")
    assert (tmp_path / TREE / "d" / "big").read_bytes() == client.data


async def test_what_the_client_changes_meanwhile_is_not_copied(
    tmp_path: Path, changes: HostChanges, client: _Client, manifest: Manifest
) -> None:
    client.on_read = lambda: manifest.put(b"d/big", Entry(FILE, 0o640, 1, 5, 9))  # type: ignore[func-returns-value]
    with pytest.raises(Gone):
        await changes.copy_up(b"d/big")
    assert list(tmp_path.rglob("*/*")) == []


async def test_a_log_of_the_same_names_does_not_grow_for_ever(
    tmp_path: Path, changes: HostChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milkweed.runtime.mounts.host_changes._MOST_NOTED", 2_000)
    for _ in range(3_000):
        changes.remove(b"d/link")
        changes.make_link(b"d/link", b"nowhere")
    assert (tmp_path / LOG).stat().st_size < 100_000
    changes.close()
    again = HostChanges(tmp_path, Overlay(changes.overlay.manifest), _Client())
    assert again.overlay.names(b"d") == [b"big", b"link"]
    assert again.overlay.base(b"d/link") == 8
    again.close()


async def test_a_full_disk_is_asked_for_room_once(
    changes: HostChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    changes.give_way = lambda: asked.append("room")

    def full(path: bytes, mode: int) -> int:
        if len(asked) < needed:
            raise OSError(28, "No space left on device")
        return -1

    monkeypatch.setattr(changes.upper, "create", full)
    for needed in (1, 3):
        if needed == 3:
            with pytest.raises(OSError, match="No space"):
                changes.create(b"new", 0o600)
        else:
            assert changes.create(b"first", 0o600) == -1
    assert asked == ["room", "room"]


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """What lies in it goes, whatever a test leaves: nobody else can remove it."""
    yield tmp_path / "deep"
    subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)


async def test_no_tree_of_a_host_is_too_deep(deep: Path, client: _Client) -> None:
    depth = sys.getrecursionlimit() + 100
    changes = HostChanges(deep, Overlay(Manifest()), client)
    path = b""
    for _ in range(depth):
        path = join(path, b"d")
        changes.make_directory(path, 0o755)
    await changes.copy_up_all(b"d")
    changes.rename(b"d", b"e")
    changes.close()
    manifest = Manifest()
    manifest.put(b"e", Entry(FILE, 0o644, 3, 5, 7))
    again = HostChanges(deep, Overlay(manifest), client)
    assert sum(1 for _ in again.overlay.below(b"")) == depth
    settled = await Settler(again, client).settle(None)
    assert settled.copies == [HostCopy(b"e", b"e.host-copy")]
    Settler(again, client).discard(())
    assert (await Settler(again, client).discarded()).files == 0
    assert os.listdir(deep / TREE) == []
    again.close()


def test_a_folder_that_nobody_may_list_is_remembered(tmp_path: Path) -> None:
    place = tmp_path / "overlay"
    place.mkdir()
    as_nobody(
        place,
        "os.makedirs('tree/a/b'); os.chmod('tree/a', 0)\n"
        "assert sorted(Upper(Path('.')).scan()) == [(b'a', DIRECTORY), (b'a/b', DIRECTORY)]\n"
        "assert os.stat('tree/a').st_mode & 0o777 == 0\n",
        DIRECTORY=DIRECTORY,
        Upper=Upper,
        Path=Path,
    )


async def test_what_both_sides_made_alike_is_compared_many_at_a_time(tmp_path: Path) -> None:
    class Client(_Client):
        async def read_whole(self, files: Sequence[FileRef]) -> list[Bytes | None]:
            self.asked += 1
            return [None if file.path == b"lost" else b"data" for file in files]

    manifest, client = Manifest(), Client()
    changes = HostChanges(tmp_path, Overlay(manifest), client)
    names = [*(b"%d" % number for number in range(500)), b"other", b"lost"]
    for name in names:
        os.close(changes.create(name, 0o644))
        (tmp_path / TREE / os.fsdecode(name)).write_text("mine" if name == b"other" else "data")
        manifest.put(name, Entry(FILE, 0o644, 4, 5, 7))
    settled = await Settler(changes, client).settle([Change(b"", name, None, None) for name in names])
    assert sorted(settled.copies) == [
        HostCopy(b"lost", b"lost.host-copy"),
        HostCopy(b"other", b"other.host-copy"),
    ]
    assert client.asked < 20
    changes.close()
