"""What a source knows of its directory, and that a barrier misses nothing."""

from __future__ import annotations

import errno
import mmap
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, chdir
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from milkweed.runtime.errors import NotFound, Unavailable
from milkweed.runtime.mounts import FileRef, Gone, Manifest, Unreadable, Workspace, open_workspace
from milkweed.runtime.mounts.deltas import Delta, apply
from milkweed.runtime.mounts.inotify import Inotify
from milkweed.runtime.mounts.manifest import DIRECTORY, LINK, Entry

from .stage import disturb, names_of_every_kind, replace_as_editors_do, write

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(path: Path, **more: object) -> AsyncIterator[Workspace]:
    with anyio.fail_after(100):
        async with open_workspace(path, **more) as workspace:  # type: ignore[arg-type]
            yield workspace


def _shown(workspace: Workspace) -> dict[str, Entry]:
    return {os.fsdecode(path): entry for path, entry in workspace.manifest.walk()}


def _there(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


async def _content(workspace: Workspace, path: str) -> bytes:
    entry = workspace.manifest.entry(path.encode())
    assert entry is not None
    return bytes(await workspace.read(FileRef(path.encode(), entry.version, entry.size), 0, entry.size))


def _entry(workspace: Workspace, path: str) -> Entry:
    entry = workspace.manifest.entry(path.encode())
    assert entry is not None
    return entry


async def test_a_barrier_contains_every_kind_of_change(tmp_path: Path) -> None:
    def nothing() -> None: ...

    def make_tree() -> None:
        (tmp_path / "d" / "e" / "f").mkdir(parents=True)
        write(tmp_path / "d" / "e" / "f" / "deep", "at once")

    filled = {"d/e", "d/e/f", "d/e/f/deep"}
    moved = {"in/e", "in/e/f", "in/e/f/deep"}
    steps: list[tuple[Callable[[], object], set[str]]] = [
        (lambda: write(tmp_path / "a", "1"), {"a"}),
        (make_tree, {"a", "d", "d/e", "d/e/f", "d/e/f/deep"}),
        (lambda: os.rename(tmp_path / "d" / "e", tmp_path / "x"), {"a", "d", "x", "x/f", "x/f/deep"}),
        (lambda: write(tmp_path / "x" / "f" / "later", "2"), {"a", "d", "x", "x/f", "x/f/deep", "x/f/later"}),
        (lambda: os.rename(tmp_path / "x", tmp_path / "d" / "e"), {"a", "d", *filled, "d/e/f/later"}),
        (lambda: subprocess.run(["rm", "-r", tmp_path / "d"], check=True), {"a"}),
        (make_tree, {"a", "d", "d/e", "d/e/f", "d/e/f/deep"}),
        (lambda: os.rename(tmp_path / "d", tmp_path.parent / "out"), {"a"}),
        (lambda: os.rename(tmp_path.parent / "out", tmp_path / "in"), {"a", "in", *moved}),
        (lambda: write(tmp_path / "in" / "e" / "f" / "deep", "written again"), {"a", "in", *moved}),
        (nothing, {"a", "in", "in/e", "in/e/f", "in/e/f/deep"}),
    ]  # fmt: skip
    async with opened(tmp_path) as workspace:
        assert _shown(workspace) == {}
        last = workspace.manifest.revision
        for step, expected in steps:
            step()
            revision = await workspace.barrier()
            assert set(_shown(workspace)) == expected == _there(tmp_path)
            assert (revision > last) == (step is not nothing)
            last = revision
        assert await _content(workspace, "in/e/f/deep") == b"written again"


async def test_modes_links_and_replacements_of_one_kind_by_another_are_seen(tmp_path: Path) -> None:
    write(tmp_path / "a", "1")
    async with opened(tmp_path) as workspace:
        (tmp_path / "a").chmod(0o4710)
        await workspace.barrier()
        assert _entry(workspace, "a").mode == 0o4710
        (tmp_path / "a").unlink()
        os.symlink(b"to \xff", os.fsencode(tmp_path / "a"))
        await workspace.barrier()
        assert (_entry(workspace, "a").kind, _entry(workspace, "a").target) == (LINK, b"to \xff")
        (tmp_path / "a").unlink()
        (tmp_path / "a").mkdir()
        write(tmp_path / "a" / "b", "2")
        await workspace.barrier()
        assert _entry(workspace, "a").kind == DIRECTORY
        assert await _content(workspace, "a/b") == b"2"
        (tmp_path / "a" / "b").unlink()
        (tmp_path / "a").rmdir()
        os.mkfifo(tmp_path / "a")
        await workspace.barrier()
        assert _shown(workspace) == {}
        assert [(one.path, one.why) for one in workspace.excluded.values()] == [(b"a", "a FIFO")]
        (tmp_path / "a").unlink()
        write(tmp_path / "a", "a file again")
        await workspace.barrier()
        assert await _content(workspace, "a") == b"a file again"
        assert not workspace.excluded


async def test_the_same_size_and_mtime_is_still_a_change(tmp_path: Path) -> None:
    write(tmp_path / "a", "one")
    times = (5_000_000_000, 5_000_000_000)
    os.utime(tmp_path / "a", ns=times)
    async with opened(tmp_path) as workspace:
        seen = [_entry(workspace, "a")]
        for number in range(1, 20):
            write(tmp_path / "a", f"{number:03d}")
            os.utime(tmp_path / "a", ns=times)
            await workspace.barrier()
            seen.append(_entry(workspace, "a"))
            assert await _content(workspace, "a") == f"{number:03d}".encode()
        assert len({entry.version for entry in seen}) == len(seen)
        assert len({entry.mtime_ns // 1_000_000_000 for entry in seen}) == len(seen)


async def test_a_barrier_contains_all_that_was_done_while_others_write(
    tmp_path: Path, full_size: bool
) -> None:
    """Four threads write and rename without a pause; a fifth looks whether its own edits are there."""
    stop = threading.Event()

    def make_noise(number: int) -> None:
        folder = tmp_path / f"noise-{number}"
        folder.mkdir()
        count = 0
        while not stop.is_set():
            count += 1
            write(folder / f"f{count % 50}", str(count))
            replace_as_editors_do(folder / f"g{count % 50}", str(count))

    async with opened(tmp_path) as workspace, anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, make_noise, number)
        try:
            for number in range(200 if full_size else 50):
                if number % 3 == 0:
                    (tmp_path / f"d{number}" / "e").mkdir(parents=True)
                    write(tmp_path / f"d{number}" / "e" / "f", str(number))
                    path = f"d{number}/e/f"
                else:
                    path = "mine"
                    write(tmp_path / path, str(number))
                await workspace.barrier()
                assert await _content(workspace, path) == str(number).encode()
        finally:
            stop.set()
    async with opened(tmp_path) as workspace:
        assert set(_shown(workspace)) == _there(tmp_path)


async def test_a_store_through_a_mapping_is_found_by_content(tmp_path: Path) -> None:
    """The second store into a page leaves no trace in `stat`, and no event."""
    write(tmp_path / "a", b"0" * 8192)
    async with opened(tmp_path) as workspace:
        assert await _content(workspace, "a") == b"0" * 8192
        with open(tmp_path / "a", "r+b") as file, mmap.mmap(file.fileno(), 8192) as mapping:
            for number in b"12345":
                mapping[100] = number
                await workspace.barrier()
                assert (await _content(workspace, "a"))[100] == number


async def test_a_read_that_finds_another_version_makes_it_known(tmp_path: Path) -> None:
    write(tmp_path / "a", b"0" * 8192)
    async with opened(tmp_path) as workspace:
        old = _entry(workspace, "a")
        with open(tmp_path / "a", "r+b") as file, mmap.mmap(file.fileno(), 8192) as mapping:
            mapping[100] = 1  # no event, and nobody has read it
            with pytest.raises(Gone):
                await workspace.read(FileRef(b"a", old.version, old.size), 0, 10)
            await workspace.since(workspace.manifest.epoch, workspace.manifest.revision)
            assert (await _content(workspace, "a"))[100] == 1


async def test_what_is_written_through_a_name_elsewhere_is_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write(tmp_path / "outside", "one")
    os.link(tmp_path / "outside", root / "inside")
    async with opened(root) as workspace:
        assert await _content(workspace, "inside") == b"one"
        write(tmp_path / "outside", "two")
        await workspace.barrier()
        assert await _content(workspace, "inside") == b"two"


async def test_lost_events_lead_to_a_look_at_everything(tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip("the queue is too long to be filled")
    write(tmp_path / "a", "1")
    (tmp_path / "d").mkdir()
    async with opened(tmp_path) as workspace:
        assert workspace.watcher is not None
        write(tmp_path / "between", "before the flood")
        for number in range(most // 2 + 100):  # two events each that the kernel does not fold
            os.chmod(tmp_path / "a", 0o600 + number % 2)
            os.chmod(tmp_path / "d", 0o700 + number % 2)
        write(tmp_path / "d" / "lost", "its event is lost")
        await workspace.barrier()
        assert workspace.watcher.overflows
        assert await _content(workspace, "d/lost") == b"its event is lost"
        assert set(_shown(workspace)) == _there(tmp_path)
        write(tmp_path / "d" / "next", "all is well again")
        await workspace.barrier()
        assert await _content(workspace, "d/next") == b"all is well again"


async def test_changes_are_published_without_a_barrier(tmp_path: Path) -> None:
    async with opened(tmp_path) as workspace:
        mirror = Manifest(epoch=workspace.manifest.epoch, revision=workspace.manifest.revision)
        write(tmp_path / "a", "1")
        while b"a" not in mirror.directories[b""]:
            news = await workspace.since(mirror.epoch, mirror.revision)
            assert isinstance(news, Delta)
            apply(mirror, news)


async def test_changes_are_published_after_a_barrier_that_had_nothing_to_tell(tmp_path: Path) -> None:
    async with opened(tmp_path) as workspace:
        revision = await workspace.barrier()
        assert await workspace.barrier() == revision
        await anyio.wait_all_tasks_blocked()
        write(tmp_path / "a", "new")
        await workspace.since(workspace.manifest.epoch, revision)
        assert _shown(workspace).keys() == {"a"}


async def test_whoever_follows_has_the_same_tree_whatever_happens(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with opened(tmp_path) as workspace:
        mirrors = [Manifest(workspace.manifest.epoch, workspace.manifest.revision) for _ in range(2)]
        for mirror in mirrors:
            mirror.root = workspace.manifest.root
        for round_ in range(60):
            for _ in range(chance.randrange(6)):
                disturb(tmp_path, chance)
            await workspace.barrier()
            assert set(_shown(workspace)) == _there(tmp_path)
            for mirror in mirrors[: 1 + (round_ % 5 == 0)]:  # one of them is often late
                if mirror.revision < workspace.manifest.revision:
                    news = await workspace.since(mirror.epoch, mirror.revision)
                    assert isinstance(news, Delta)
                    apply(mirror, news)
                    assert mirror == workspace.manifest


async def test_versions_survive_a_restart_of_the_source_and_so_do_mtimes(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / name, name)
    async with opened(tmp_path) as workspace:
        for number in range(3):
            write(tmp_path / "a", f"{number}")  # within the same second
            await workspace.barrier()
        before, known, epoch = _shown(workspace), workspace.to_keep(), workspace.manifest.epoch
    async with opened(tmp_path, known=known) as workspace:
        assert _shown(workspace) == before
        assert workspace.manifest.epoch != epoch
        assert isinstance(await workspace.since(epoch, 1), Manifest)
        write(tmp_path / "a", "9")
        await workspace.barrier()
        assert _entry(workspace, "a").mtime_ns // 10**9 > before["a"].mtime_ns // 10**9


async def test_only_the_version_that_was_asked_for_is_given(tmp_path: Path) -> None:
    write(tmp_path / "a", "first")
    async with opened(tmp_path) as workspace:
        old = _entry(workspace, "a")
        file = FileRef(b"a", old.version, old.size)
        assert await workspace.read(file, 1, 3) == b"irs"
        write(tmp_path / "a", "other")
        with pytest.raises(Gone):  # whether it was noticed or not
            await workspace.read(file, 0, 5)
        await workspace.barrier()
        with pytest.raises(Gone):
            await workspace.read(file, 0, 5)
        for offset, length in ((0, 6), (-1, 2), (5, 1), (0, -1)):
            entry = _entry(workspace, "a")
            with pytest.raises(Gone):
                await workspace.read(FileRef(b"a", entry.version, entry.size), offset, length)
        for path in (b"../etc/passwd", b"/etc/passwd", b"", b"nothing", b"a/b"):
            with pytest.raises(Gone):
                await workspace.read(FileRef(path, 1, 5), 0, 5)


async def test_a_link_that_took_the_place_of_a_directory_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "root" / "d").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    write(tmp_path / "root" / "d" / "a", "mine!!")
    write(tmp_path / "secret" / "a", "theirs")
    async with opened(tmp_path / "root") as workspace:
        entry = _entry(workspace, "d/a")
        os.rename(tmp_path / "root" / "d", tmp_path / "root" / "e")
        os.symlink(tmp_path / "secret", tmp_path / "root" / "d")
        with pytest.raises(Gone):
            await workspace.read(FileRef(b"d/a", entry.version, entry.size), 0, entry.size)


async def test_a_version_is_found_where_its_directory_was_moved_to(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write(tmp_path / "d" / "a", "moved along")
    async with opened(tmp_path) as workspace:
        entry = _entry(workspace, "d/a")
        os.rename(tmp_path / "d", tmp_path / "e")
        await workspace.barrier()
        assert await workspace.read(FileRef(b"d/a", entry.version, entry.size), 0, 5) == b"moved"


async def test_names_of_every_kind_are_scanned_and_watched(tmp_path: Path) -> None:
    names = names_of_every_kind()
    root = os.fsencode(tmp_path)
    for name in names[::2]:
        write(root + b"/" + name, name)
    async with opened(tmp_path) as workspace:
        for name in names[1::2]:
            write(root + b"/" + name, name)
        await workspace.barrier()
        assert sorted(workspace.manifest.directories[b""]) == sorted(names)
        for name in names:
            entry = workspace.manifest.entry(name)
            assert entry is not None
            assert await workspace.read(FileRef(name, entry.version, entry.size), 0, entry.size) == name


async def test_what_is_excluded_is_told_with_counts_and_bytes(tmp_path: Path) -> None:
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    for number in range(3):
        write(tmp_path / ".git" / "objects" / str(number), "x" * 100)
    write(tmp_path / "model.ckpt", "y" * 50)
    write(tmp_path / "train.py", "z")
    write(tmp_path / ".milkweedignore", "*.ckpt\n# a comment\n")
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "data.bin", "q")
    async with opened(tmp_path, excludes=["*.bin"]) as workspace:
        assert set(_shown(workspace)) == {".milkweedignore", "more", "train.py"}
        found = {one.path: (one.why, one.files, one.size) for one in workspace.weigh_excluded()}
        assert found == {
            b".git": (".git/", 3, 300),
            b"model.ckpt": ("*.ckpt", 1, 50),
            b"more/data.bin": ("*.bin", 1, 1),
        }
        write(tmp_path / ".git" / "HEAD", "changed")
        write(tmp_path / "other.ckpt", "new")
        before = workspace.manifest.revision
        await workspace.barrier()
        assert set(_shown(workspace)) == {".milkweedignore", "more", "train.py"}
        assert b"other.ckpt" in workspace.excluded
        assert workspace.manifest.revision <= before + 1  # the root's own mtime


async def test_odd_things_are_left_out_and_loops_are_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        with chdir(tmp_path):  # the path is too long for a socket
            listener.bind("socket")
        os.symlink(".", tmp_path / "self")
        os.symlink("b", tmp_path / "a")
        os.symlink("a", tmp_path / "b")
        write(tmp_path / "empty", "")
        async with opened(tmp_path) as workspace:
            assert set(_shown(workspace)) == {"self", "a", "b", "empty"}
            assert {one.path: one.why for one in workspace.excluded.values()} == {
                b"fifo": "a FIFO",
                b"socket": "a socket",
            }
            assert await _content(workspace, "empty") == b""


# Root reads everything: it becomes somebody else first.
_UNREADABLE = """
import os, sys
import anyio
from pathlib import Path
from milkweed.runtime.mounts import FileRef, Unreadable, open_workspace

async def main():
    async with open_workspace(Path(sys.argv[1])):
        pass  # with all that is imported for it
    if os.getuid() == 0:
        os.setgid(65534), os.setuid(65534)
    async with open_workspace(Path(sys.argv[1])) as workspace:
        entry = workspace.manifest.entry(b"closed")
        print(entry.mode, workspace.unreadable, workspace.manifest.directories[b"locked"])
        try:
            await workspace.read(FileRef(b"closed", entry.version, entry.size), 0, entry.size)
        except Unreadable as error:
            print(error.errno)

anyio.run(main)
"""


async def test_what_may_not_be_read_is_listed_and_refused(directory: Path) -> None:
    directory.chmod(0o755)
    root = directory / "root"
    (root / "locked").mkdir(parents=True)
    write(root / "closed", "secret")
    (root / "closed").chmod(0)
    (root / "locked").chmod(0o300)
    done = await anyio.run_process([sys.executable, "-c", _UNREADABLE, str(root)], cwd="/", stderr=None)
    assert done.stdout.decode().splitlines() == ["0 [b'locked'] {}", str(errno.EACCES)]


async def test_a_file_that_cannot_be_read_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", "x")
    async with opened(tmp_path) as workspace:
        entry = _entry(workspace, "a")

        def refuse(*_: object) -> int:
            raise PermissionError(errno.EACCES, "no")

        monkeypatch.setattr("milkweed.runtime.mounts.contents.os.open", refuse)
        with pytest.raises(Unreadable) as caught:
            await workspace.read(FileRef(b"a", entry.version, 1), 0, 1)
        assert caught.value.errno == errno.EACCES


async def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "file", "x")
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(NotFound):
            async with opened(path):
                pass


async def test_no_watches_left_is_said_with_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Inotify, path: bytes) -> int:
        raise Unavailable("watch_unusable", "used up", "Raise it.")

    (tmp_path / "d").mkdir()
    monkeypatch.setattr(Inotify, "add", refuse)
    with pytest.raises(Unavailable, match="used up"):
        async with opened(tmp_path):
            pass


async def test_nothing_is_left_in_the_tree_or_open(tmp_path: Path) -> None:
    write(tmp_path / "a", "x")
    before = len(os.listdir("/proc/self/fd"))
    async with opened(tmp_path) as workspace:
        for _ in range(5):
            await workspace.barrier()
        assert _there(tmp_path) == {"a"}
    assert len(os.listdir("/proc/self/fd")) == before
