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
from contextlib import asynccontextmanager, chdir, closing, suppress
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from milkweed.runtime.errors import NotFound, Unavailable
from milkweed.runtime.mounts import FileRef, Gone, Manifest, Unreadable, Workspace, open_workspace
from milkweed.runtime.mounts.deltas import Delta, apply, difference
from milkweed.runtime.mounts.inotify import Inotify
from milkweed.runtime.mounts.manifest import DIRECTORY, LINK, Entry
from milkweed.runtime.mounts.versions import mark_of
from milkweed.runtime.mounts.watcher import Watcher

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
            assert workspace.state[1] == digest(workspace)


def digest(workspace: Workspace) -> int:
    found = 0
    for path, entry in workspace.manifest.walk():
        found ^= mark_of(path, entry)
    return found


async def test_revisions_go_on_after_a_restart_of_the_source(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / name, name)
    async with opened(tmp_path) as workspace:
        for number in range(3):
            write(tmp_path / "a", f"{number}")
            await workspace.barrier()
        known, last = workspace.to_keep(), workspace.state
        assert last[0] >= 4
    async with opened(tmp_path, known=known, last=last) as workspace:
        assert workspace.state == last  # nothing was edited meanwhile
    (tmp_path / "b").chmod(0o600)
    async with opened(tmp_path, known=known, last=last) as workspace:
        assert workspace.manifest.revision == last[0] + 1
        assert workspace.state[1] == digest(workspace)


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


_MADE_READABLE = """
import os, sys
import anyio
from pathlib import Path
from milkweed.runtime.mounts import open_workspace

async def main():
    async with open_workspace(Path(sys.argv[1])):
        pass  # with all that is imported for it
    if os.getuid() == 0:
        os.setgid(65534), os.setuid(65534)
    root = Path(sys.argv[1])
    for name, mode in (("closed", 0), ("listed", 0o600)):
        (root / name / "in").mkdir(parents=True)
        (root / name / "in" / "x").write_text("1")
        (root / name).chmod(mode)
    async with open_workspace(root) as workspace:
        print(sorted(workspace.manifest.directories))
        for name in ("closed", "listed"):
            (root / name).chmod(0o755)
        await workspace.barrier()
        (root / "closed" / "in" / "y").touch()
        await workspace.barrier()
        print(sorted(path for path, _ in workspace.manifest.walk()))

anyio.run(main)
"""


async def test_what_may_be_read_from_now_on_is_seen(directory: Path) -> None:
    directory.chmod(0o755)
    root = directory / "root"
    root.mkdir()
    root.chmod(0o777)
    done = await anyio.run_process([sys.executable, "-c", _MADE_READABLE, str(root)], cwd="/", stderr=None)
    assert done.stdout.splitlines() == [
        b"[b'', b'closed', b'listed']",
        b"[b'closed', b'closed/in', b'closed/in/x', b'closed/in/y', b'listed', b'listed/in', b'listed/in/x']",
    ]


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


async def test_another_directory_in_the_place_of_the_root_is_followed(tmp_path: Path) -> None:
    """Nobody tells of it: what is watched is a directory, whatever its name."""
    root = tmp_path / "root"
    root.mkdir()
    write(root / "old", "1")
    async with opened(root) as workspace:
        for expected in ({"new", "in", "in/x"}, {"newer"}):
            os.rename(root, tmp_path / f"before {len(expected)}")
            shown = _shown(workspace)
            with pytest.raises(NotFound, match="is not there"):
                await workspace.barrier()
            assert _shown(workspace) == shown  # what runs that go on had
            for name in expected:
                path = root / name if name != "in" else root / "in" / "x"
                path.parent.mkdir(parents=True, exist_ok=True)
                write(path, name)
            await workspace.barrier()
            assert set(_shown(workspace)) == expected
        (root / "newest").mkdir()
        write(root / "newest" / "y", "2")
        write(root / "newer", "again")
        await workspace.barrier()
        assert set(_shown(workspace)) == {"newer", "newest", "newest/y"}
        assert await _content(workspace, "newer") == b"again"


async def test_a_root_that_is_a_symlink_is_what_it_names_now(tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / f"in {name}", "1")
    root = tmp_path / "root"
    root.symlink_to("v1")
    async with opened(root) as workspace:
        for name in ("v2", "nowhere", "v1", "v1/in v1", "v2"):
            os.symlink(name, tmp_path / "link")
            os.rename(tmp_path / "link", root)
            if name in ("v1", "v2"):
                await workspace.barrier()
                assert set(_shown(workspace)) == {f"in {name}"}
            else:
                with pytest.raises(NotFound, match="is not there"):
                    await workspace.barrier()


async def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "file", "x")
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(NotFound):
            async with opened(path):
                pass


@pytest.mark.parametrize("how", ["cancelled", "no watches left"])
async def test_what_a_barrier_that_failed_had_taken_is_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    write(tmp_path / "a", "1")
    workspace = Workspace(tmp_path)  # nobody follows: it would take some of it
    await workspace.begin()
    with anyio.fail_after(20), closing(workspace):
        before = Manifest(workspace.manifest.epoch, workspace.manifest.revision)
        apply(before, difference(before, workspace.manifest))
        write(tmp_path / "a", "22")
        for name in ("d", "e"):
            (tmp_path / name / "in").mkdir(parents=True)
        with anyio.CancelScope() as scope, monkeypatch.context() as patched:

            def fail(*_: object) -> None:
                if how == "cancelled":
                    anyio.from_thread.run_sync(scope.cancel)
                else:
                    raise Unavailable("watch_unusable", "no", "")

            patched.setattr(Watcher, "add", fail)
            with suppress(Unavailable):
                await workspace.barrier()
                pytest.fail("it came through")
        await workspace.barrier()
        news = await workspace.since(before.epoch, before.revision)
        assert isinstance(news, Delta)
        apply(before, news)
        assert before.directories == workspace.manifest.directories
        assert set(_shown(workspace)) == {"a", "d", "d/in", "e", "e/in"}


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


async def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("root", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    left = tmp_path / "tmp" / "milkweed-watch-left"
    left.mkdir()
    write(left / "1", "")
    async with opened(tmp_path / "root") as first:
        (used,) = set((tmp_path / "tmp").iterdir()) - {left}
        for directory in (left, used):
            os.utime(directory, (0, 0))
        async with opened(tmp_path / "root"):
            assert not left.exists()
            await first.barrier()
            assert used.exists()
    assert not _there(tmp_path / "tmp")


async def test_other_rules_hold_from_the_next_barrier_on(tmp_path: Path) -> None:
    for name in ("data", "other"):
        (tmp_path / name).mkdir()
    write(tmp_path / "data" / "a", "1")
    write(tmp_path / "other" / "b", "2")
    async with open_workspace(tmp_path) as workspace:
        (tmp_path / ".milkweedignore").write_text("data/\n")
        await workspace.barrier()
        assert workspace.manifest.entry(b"data") is None
        assert [one.path for one in workspace.weigh_excluded()] == [b"data"]
        (tmp_path / ".milkweedignore").write_text("other/\n")
        await workspace.barrier()
        assert workspace.manifest.entry(b"data/a") is not None
        assert workspace.manifest.entry(b"other/b") is None
        write(tmp_path / "data" / "a", "3")
        before = workspace.manifest.entry(b"data/a")
        await workspace.barrier()
        assert workspace.manifest.entry(b"data/a") != before
        (tmp_path / ".milkweedignore").unlink()
        await workspace.barrier()
        assert workspace.manifest.entry(b"other/b") is not None
        assert workspace.weigh_excluded() == []


async def test_another_directory_in_its_place_is_shown_and_followed(tmp_path: Path) -> None:
    """None of it was watched, and nothing but its inode says that it is another one."""
    root, old = tmp_path / "root", tmp_path / "old"
    for directory in (root / "sub", root / "gone"):
        directory.mkdir(parents=True)
    for name in ("a", "sub/b", "gone/c"):
        write(root / name, "1")
    async with opened(root) as workspace:
        root.rename(old)
        (root / "sub").mkdir(parents=True)
        for name in ("a", "sub/b", "sub/new"):
            write(root / name, "22")
        await workspace.barrier()
        assert set(_shown(workspace)) == _there(root)
        assert await _content(workspace, "sub/b") == b"22"
        write(root / "sub" / "later", "3")
        write(old / "sub" / "elsewhere", "4")
        await workspace.barrier()
        assert set(_shown(workspace)) == _there(root)


async def test_a_directory_that_is_not_there_is_said_and_shown_again_when_it_is_back(tmp_path: Path) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    (root / "sub").mkdir(parents=True)
    write(root / "a", "1")
    write(root / "sub" / "b", "1")
    async with opened(root) as workspace:
        root.rename(away)
        with pytest.raises(NotFound, match="root is not there"):
            await workspace.barrier()
        assert set(_shown(workspace)) == _there(away)
        write(away / "sub" / "new", "2")
        away.rename(root)
        await workspace.barrier()
        assert set(_shown(workspace)) == _there(root)
        write(root / "sub" / "later", "3")
        await workspace.barrier()
        assert set(_shown(workspace)) == _there(root)
