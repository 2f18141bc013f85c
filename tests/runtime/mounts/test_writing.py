"""What programs write in a mount: to files of the host's own, over those of the client."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.mounts import open_mount
from milkweed.runtime.mounts.overlay import HostCopy
from milkweed.runtime.mounts.upper import TREE, usage

from .stage import Stage, aside, names_of_every_kind, read, replace_as_editors_do, staged, write

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fuse")]


def _fill(source: Path) -> None:
    write(source / "a", "hello")
    (source / "d" / "deep").mkdir(parents=True)
    write(source / "d" / "x", "x")
    write(source / "d" / "deep" / "y", "y")
    os.symlink("a", source / "link")
    write(source / "script", "#!/bin/sh\necho ran\n")
    (source / "script").chmod(0o755)


def _writable(
    directory: Path, fill: Callable[[Path], None] = _fill, hosts: int = 1
) -> AbstractAsyncContextManager[Stage]:
    return staged(directory, hosts, fill, is_writable=True)


def own(stage: Stage, name: str, number: int = 0) -> Path:
    """Where a file that the host wrote really is."""
    return stage.overlay(number) / TREE / name


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def taken(stage: Stage, number: int = 0) -> list[tuple[str, str]]:
    return sorted(
        (os.fsdecode(copy.path), os.fsdecode(copy.kept))
        for copy in stage.followers.take_kept(f"host-{number}")
    )


async def test_what_is_written_is_read_again_and_lies_in_plain_files(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            write(mount / "new", "new")
            (mount / "made" / "in").mkdir(parents=True)
            write(mount / "made" / "in" / "it", "it")
            append(mount / "a", b" world")

        await aside(work)
        assert await aside(lambda: read(mount / "a")) == b"hello world"
        assert await aside(lambda: sorted(os.listdir(mount))) == [
            "a", "d", "link", "made", "new", "script",
        ]  # fmt: skip
        assert read(own(stage, "a")) == b"hello world"
        assert read(own(stage, "made/in/it")) == b"it"
        assert read(stage.source / "a") == b"hello"
        assert not (stage.source / "new").exists()


async def test_names_in_every_encoding_can_be_written(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = os.fsencode(stage.mount())
        for name in names_of_every_kind():
            await aside(lambda name=name: write(mount + b"/d/" + name, name))  # type: ignore[misc]
        found = await aside(lambda: os.listdir(mount + b"/d"))
        assert set(names_of_every_kind()) < set(found)
        for name in names_of_every_kind():
            assert await aside(lambda name=name: read(mount + b"/d/" + name)) == name  # type: ignore[misc]


async def test_what_is_removed_stays_away_and_a_folder_made_anew_is_empty(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> list[str]:
            os.unlink(mount / "a")
            subprocess.run(["rm", "-r", mount / "d"], check=True)
            os.mkdir(mount / "d")
            return sorted(os.listdir(mount)) + os.listdir(mount / "d")

        assert await aside(work) == ["d", "link", "script"]
        with pytest.raises(FileNotFoundError):
            await aside(lambda: os.stat(mount / "d" / "x"))
        with pytest.raises(FileNotFoundError):
            await aside(lambda: os.stat(mount / "a"))


async def test_files_and_folders_are_renamed_over_both_layers(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            write(mount / "d" / "own", "own")
            os.rename(mount / "d", mount / "e")
            os.rename(mount / "a", mount / "e" / "x")
            os.rename(mount / "link", mount / "e" / "deep" / "link")

        await aside(work)
        assert await aside(lambda: sorted(os.listdir(mount))) == ["e", "script"]
        assert await aside(lambda: sorted(os.listdir(mount / "e"))) == ["deep", "own", "x"]
        assert await aside(lambda: read(mount / "e" / "x")) == b"hello"
        assert await aside(lambda: read(mount / "e" / "deep" / "y")) == b"y"
        assert await aside(lambda: os.readlink(mount / "e" / "deep" / "link")) == "a"
        with pytest.raises(OSError, match="not empty"):
            await aside(lambda: (os.mkdir(mount / "f"), os.rename(mount / "f", mount / "e")))
        await aside(lambda: (os.mkdir(mount / "d"), os.rename(mount / "e", mount / "d")))
        assert await aside(lambda: sorted(os.listdir(mount / "d"))) == ["deep", "own", "x"]


async def test_a_folder_that_is_too_large_is_moved_by_the_program_itself(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(source: Path) -> None:
        (source / "many").mkdir()
        for number in range(10_001):
            write(source / "many" / str(number), "")

    async with _writable(directory, fill) as stage:
        mount = stage.mount()
        with pytest.raises(OSError, match="cross-device"):
            await aside(lambda: os.rename(mount / "many", mount / "moved"))
        assert len(await aside(lambda: os.listdir(mount / "many"))) == 10_001
        assert not await aside((mount / "moved").exists)


async def test_who_has_a_file_open_to_read_sees_what_is_written_later(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> list[bytes]:
            with open(mount / "a", "rb", buffering=0) as reader:
                found = [reader.read()]
                inode = os.fstat(reader.fileno()).st_ino
                append(mount / "a", b" world")
                found.append(reader.read())
                assert os.stat(mount / "a").st_ino == inode == os.fstat(reader.fileno()).st_ino
                os.unlink(mount / "a")
                reader.seek(0)
                found.append(reader.read())
                assert os.fstat(reader.fileno()).st_nlink == 0
                return found

        assert await aside(work) == [b"hello", b" world", b"hello world"]


async def test_a_file_without_a_name_is_written_and_read_on(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            with open(mount / "gone", "w+b", buffering=0) as file:
                file.write(b"before")
                os.unlink(mount / "gone")
                file.write(b" and after")
                file.truncate(10)
                os.fchmod(file.fileno(), 0o600)
                assert os.fstat(file.fileno()).st_size == 10
                file.seek(0)
                assert file.read() == b"before and"
            with open(mount / "d" / "x", "rb", buffering=0) as file:  # the client's, never copied
                os.unlink(mount / "d" / "x")
                assert file.read() == b"x"

        await aside(work)


async def test_opening_anew_what_is_cut_off_copies_nothing(directory: Path) -> None:
    size = 8 * 1024 * 1024
    async with _writable(directory, lambda source: write(source / "big", os.urandom(size))) as stage:
        before = stage.workspace.bytes_read
        await aside(lambda: write(stage.mount() / "big", "small"))
        assert await aside(lambda: read(stage.mount() / "big")) == b"small"
        assert stage.workspace.bytes_read == before


async def test_modes_times_and_sizes_are_set_as_on_a_plain_directory(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            os.chmod(mount / "a", 0o640)
            os.utime(mount / "a", ns=(1_000_000_001, 2_000_000_002))
            os.truncate(mount / "script", 9)
            os.chmod(mount / "d", 0o700)
            os.chmod(mount, 0o711)

        await aside(work)
        found = await aside(lambda: os.stat(mount / "a"))
        assert (found.st_mode & 0o7777, found.st_mtime_ns, found.st_size) == (0o640, 2_000_000_002, 5)
        assert await aside(lambda: read(mount / "a")) == b"hello"
        assert await aside(lambda: read(mount / "script")) == b"#!/bin/sh"
        assert (await aside(lambda: os.stat(mount / "script"))).st_mode & 0o777 == 0o755
        assert (await aside(lambda: os.stat(mount / "d"))).st_mode & 0o777 == 0o700
        assert (await aside(lambda: os.stat(mount))).st_mode & 0o777 == 0o711


async def test_the_date_of_a_folder_stays_when_a_file_in_it_is_written_to(directory: Path) -> None:
    async with _writable(directory) as stage:
        folder = stage.mount() / "d"
        before = await aside(lambda: os.stat(folder).st_mtime_ns)
        await aside(lambda: append(folder / "x", b"more"))
        assert await aside(lambda: os.stat(folder).st_mtime_ns) == before
        await aside(lambda: write(folder / "new", ""))
        assert await aside(lambda: os.stat(folder).st_mtime_ns) > before


async def test_a_folder_that_is_listed_once_more_has_what_is_new(directory: Path) -> None:
    async with _writable(directory) as stage:

        def work() -> list[list[str]]:
            folder = os.open(stage.mount() / "d", os.O_RDONLY)
            found = [os.listdir(folder)]
            write(stage.mount() / "d" / "new", "")
            os.unlink(stage.mount() / "d" / "x")
            found.append(os.listdir(folder))  # rewinds
            os.close(folder)
            return found

        assert [sorted(names) for names in await aside(work)] == [["deep", "x"], ["deep", "new"]]


async def test_a_name_is_made_by_one_alone(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        for name in ("a", "link", "d"):
            with pytest.raises(FileExistsError):
                await aside(lambda name=name: os.open(mount / name, flags))  # type: ignore[misc]
        await aside(lambda: os.close(os.open(mount / "new", flags)))
        with pytest.raises(FileExistsError):
            await aside(lambda: os.open(mount / "new", flags))


async def test_stores_through_a_shared_mapping_are_read_and_those_through_a_private_one_are_not(
    directory: Path,
) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            with open(mount / "a", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
                mapped[0:1] = b"J"
                mapped.flush()
                assert read(mount / "a") == b"Jello"
            with (
                open(mount / "a", "r+b") as file,
                mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped,
            ):
                mapped[0:1] = b"B"
                assert read(mount / "a") == b"Jello"

        await aside(work)
        assert read(own(stage, "a")) == b"Jello"


async def test_hard_links_are_refused(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()
        await aside(lambda: write(mount / "own", ""))
        for name in ("a", "own"):
            with pytest.raises(PermissionError):
                await aside(lambda name=name: os.link(mount / name, mount / "second"))  # type: ignore[misc]


async def test_names_are_not_exchanged_and_not_replaced_where_that_is_asked(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()
        libc = ctypes.CDLL(None, use_errno=True)

        def rename(old: str, new: str, flags: int) -> int:
            done = libc.renameat2(-100, os.fsencode(mount / old), -100, os.fsencode(mount / new), flags)
            return ctypes.get_errno() if done else 0

        assert await aside(lambda: rename("a", "script", 1)) == errno.EEXIST
        assert await aside(lambda: rename("a", "script", 2)) == errno.EINVAL
        assert await aside(lambda: rename("a", "b", 1)) == 0


async def test_locks_hold_between_programs(directory: Path) -> None:
    async with _writable(directory) as stage:
        path = stage.mount() / "lock"
        held = await aside(lambda: open(path, "w"))  # noqa: SIM115 - closed below
        other = (
            "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\nfcntl.{}(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
        )
        for how in ("flock", "lockf"):
            await aside(lambda how=how: getattr(fcntl, how)(held, fcntl.LOCK_EX))  # type: ignore[misc]
            command = [sys.executable, "-c", other.format(how), str(path)]
            tried = await anyio.run_process(command, check=False)
            assert b"BlockingIOError" in tried.stderr
            await aside(lambda how=how: getattr(fcntl, how)(held, fcntl.LOCK_UN))  # type: ignore[misc]
            assert (await anyio.run_process(command, check=False)).returncode == 0
        await aside(held.close)


async def test_fifos_and_sockets_can_be_made(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            os.mkfifo(mount / "fifo")
            with subprocess.Popen(["cat", mount / "fifo"], stdout=subprocess.PIPE) as cat:
                write(mount / "fifo", "through")
                assert cat.communicate()[0] == b"through"
            with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as calling:
                listening.bind(str(mount / "socket"))
                listening.listen()
                calling.connect(str(mount / "socket"))
            os.rename(mount / "socket", mount / "moved")
            os.unlink(mount / "moved")

        await aside(work)


async def test_fsync_and_statfs_are_those_of_the_disk(directory: Path) -> None:
    async with _writable(directory) as stage:

        def work() -> None:
            with open(stage.mount() / "a", "r+b") as file:
                os.fsync(file.fileno())
                os.fdatasync(file.fileno())
            folder = os.open(stage.mount() / "d", os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

        await aside(work)
        assert (await aside(lambda: os.statvfs(stage.mount()))).f_blocks == os.statvfs(directory).f_blocks


async def test_two_hosts_never_see_what_the_other_writes(directory: Path) -> None:
    async with _writable(directory, hosts=2) as stage:
        for number in (0, 1):
            mount = stage.mount(number)

            def work(mount: Path = mount, number: int = number) -> None:
                write(mount / "a", f"of {number}")
                write(mount / f"new-{number}", "")
                os.unlink(mount / "d" / ("x" if number else "deep/y"))

            await aside(work)
        for number in (0, 1):
            mount = stage.mount(number)
            assert await aside(lambda mount=mount: read(mount / "a")) == f"of {number}".encode()  # type: ignore[misc]
            names = await aside(lambda mount=mount: os.listdir(mount))  # type: ignore[misc]
            assert f"new-{number}" in names
            assert f"new-{1 - number}" not in names
            assert await aside((mount / "d" / "x").exists) is (number == 0)
            assert await aside((mount / "d" / "deep" / "y").exists) is (number == 1)


async def test_kill_9_of_the_mount_process_loses_nothing_that_was_written(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount, host = stage.mount(), stage.hosts[0]
        written: list[str] = []

        def work() -> None:
            os.unlink(mount / "d" / "x")
            os.rename(mount / "d" / "deep", mount / "e")
            append(mount / "a", b" world")
            for number in range(100_000):
                try:
                    write(mount / f"n{number}", str(number))
                except OSError:
                    return
                written.append(f"n{number}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(aside, work)
            while len(written) < 50:
                await anyio.sleep(0.001)
            os.kill(host.state.pid, signal.SIGKILL)
        assert written[-1] != "n99999"
        with anyio.fail_after(20):
            while host.state.phase != "ready" or not host.state.restarts:
                await anyio.sleep(0.01)
        names = set(await aside(lambda: os.listdir(mount)))
        assert names >= {*written, "a", "d", "e", "link", "script"}
        assert await aside(lambda: read(mount / "a")) == b"hello world"
        assert await aside(lambda: os.listdir(mount / "d")) == []
        assert await aside(lambda: read(mount / "e" / "y")) == b"y"
        for name in written:
            assert await aside(lambda name=name: read(mount / name)) == name[1:].encode()  # type: ignore[misc]
        await stage.barrier()
        assert taken(stage) == []


async def test_a_full_disk_is_told_to_the_writer_and_all_else_goes_on(directory: Path) -> None:
    small = directory / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", small], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        async with staged(directory, fill=_fill) as stage:
            config = stage.config(overlay=str(small / "o"), cache=str(small / "c"))
            async with open_mount(config) as mount:
                stage.hosts.append(mount)
                write(stage.source / "large", os.urandom(2_000_000))
                await stage.barrier()
                assert len(await aside(lambda: read(stage.mount() / "large"))) == 2_000_000  # cached there
                await aside(lambda: write(stage.mount() / "own", bytes(3_000_000)))
                for attempt in (
                    lambda: write(stage.mount() / "more", bytes(3_000_000)),
                    lambda: append(stage.mount() / "large", b"x"),
                ):
                    with pytest.raises(OSError, match="No space left"):
                        await aside(attempt)
                assert await aside(lambda: read(stage.mount() / "a")) == b"hello"
                assert len(await aside(lambda: read(stage.mount() / "large"))) == 2_000_000
                write(stage.source / "a", "edited")
                await stage.barrier()
                assert await aside(lambda: read(stage.mount() / "a")) == b"edited"
                await aside(lambda: os.unlink(stage.mount() / "more"))
                await aside(lambda: write(stage.mount() / "little", "fits"))
    finally:
        subprocess.run(["umount", "-l", small], check=False)


async def test_the_client_wins_and_what_the_host_had_is_kept(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            write(mount / "a", "of the host")
            write(mount / "made", "of the host")
            write(mount / "d" / "x", "of the host")
            os.unlink(mount / "script")

        await aside(work)
        replace_as_editors_do(stage.source / "a", "edited")
        write(stage.source / "made", "made")
        os.unlink(stage.source / "d" / "x")
        write(stage.source / "script", "edited")
        await stage.barrier()
        assert taken(stage) == [
            ("a", "a.host-copy"),
            ("d/x", "d/x.host-copy"),
            ("made", "made.host-copy"),
            ("script", ""),
        ]
        assert taken(stage) == []
        assert await aside(lambda: sorted(os.listdir(mount))) == [
            "a", "a.host-copy", "d", "link", "made", "made.host-copy", "script",
        ]  # fmt: skip
        assert await aside(lambda: sorted(os.listdir(mount / "d"))) == ["deep", "x.host-copy"]
        for name in ("a", "made", "d/x"):
            assert await aside(lambda name=name: read(mount / f"{name}.host-copy")) == b"of the host"  # type: ignore[misc]
        assert await aside(lambda: read(mount / "a")) == b"edited"
        await aside(lambda: write(mount / "a", "again"))
        write(stage.source / "a", "edited again")
        await stage.barrier()
        assert taken(stage) == [("a", "a.host-copy-2")]
        assert await aside(lambda: read(mount / "a.host-copy-2")) == b"again"


async def test_the_same_on_both_sides_is_no_conflict(directory: Path) -> None:
    async with _writable(directory) as stage:
        await aside(lambda: write(stage.mount() / "a", "the same"))
        write(stage.source / "a", "the same")
        await stage.barrier()
        assert taken(stage) == []
        assert not own(stage, "a").exists()
        write(stage.source / "a", "changed")  # it is the client's again
        await stage.barrier()
        assert taken(stage) == []
        assert await aside(lambda: read(stage.mount() / "a")) == b"changed"


async def test_a_file_that_was_opened_to_be_written_and_was_not_is_no_conflict(directory: Path) -> None:
    async with _writable(directory) as stage:
        await aside(lambda: os.close(os.open(stage.mount() / "a", os.O_RDWR)))
        await aside(lambda: os.close(os.open(stage.mount() / "script", os.O_RDWR)))
        assert own(stage, "a").exists()
        write(stage.source / "a", "edited")
        os.unlink(stage.source / "script")
        await stage.barrier()
        assert taken(stage) == []
        assert await aside(lambda: read(stage.mount() / "a")) == b"edited"
        assert await aside(lambda: sorted(os.listdir(stage.mount()))) == ["a", "d", "link"]


async def test_folders_merge_and_one_that_went_stays_while_the_host_has_something_in_it(
    directory: Path,
) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            write(mount / "d" / "own", "own")
            os.mkdir(mount / "both")
            write(mount / "both" / "own", "own")
            write(mount / "d" / "deep" / "passing", "")
            os.unlink(mount / "d" / "deep" / "passing")

        await aside(work)
        (stage.source / "both").mkdir()
        write(stage.source / "both" / "theirs", "theirs")
        subprocess.run(["rm", "-r", stage.source / "d"], check=True)
        await stage.barrier()
        assert await aside(lambda: sorted(os.listdir(mount / "both"))) == ["own", "theirs"]
        assert await aside(lambda: os.listdir(mount / "d")) == ["own"]
        assert taken(stage) == []


async def test_a_file_in_place_of_a_folder_and_the_reverse_move_aside_whole(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            write(mount / "d" / "own", "own")
            os.mkdir(mount / "folder")
            write(mount / "folder" / "in it", "in it")
            write(mount / "file", "file")

        await aside(work)
        subprocess.run(["rm", "-r", stage.source / "d"], check=True)
        write(stage.source / "d", "a file now")
        write(stage.source / "folder", "a file too")
        (stage.source / "file").mkdir()
        write(stage.source / "file" / "in it", "theirs")
        await stage.barrier()
        assert taken(stage) == [
            ("d", "d.host-copy"), ("file", "file.host-copy"), ("folder", "folder.host-copy"),
        ]  # fmt: skip
        assert await aside(lambda: read(mount / "d")) == b"a file now"
        assert await aside(lambda: read(mount / "d.host-copy" / "own")) == b"own"
        assert await aside(lambda: read(mount / "folder.host-copy" / "in it")) == b"in it"
        assert await aside(lambda: read(mount / "file" / "in it")) == b"theirs"
        assert await aside(lambda: read(mount / "file.host-copy")) == b"file"


async def test_a_new_file_in_a_folder_that_the_host_removed_shows_it_alone(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()
        await aside(lambda: subprocess.run(["rm", "-r", mount / "d"], check=True))
        write(stage.source / "d" / "deep" / "new", "new")
        await stage.barrier()
        assert await aside(lambda: os.listdir(mount / "d")) == ["deep"]
        assert await aside(lambda: os.listdir(mount / "d" / "deep")) == ["new"]
        assert taken(stage) == []


async def test_who_has_the_hosts_file_open_keeps_it(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()
        file: Any = await aside(lambda: open(mount / "a", "r+b", buffering=0))  # noqa: SIM115 - closed below
        await aside(lambda: file.write(b"H"))
        write(stage.source / "a", "edited")
        await stage.barrier()
        assert await aside(lambda: read(mount / "a")) == b"edited"
        await aside(lambda: (file.seek(0, 2), file.write(b"!")))
        assert await aside(lambda: read(mount / "a.host-copy")) == b"Hello!"
        await aside(file.close)


async def test_conflicts_of_the_time_without_a_mount_are_found_at_the_next(directory: Path) -> None:
    async with staged(directory, fill=_fill) as stage:
        config = stage.config(overlay=str(stage.overlay()))
        mount = stage.mount()
        async with open_mount(config):
            await aside(
                lambda: (write(mount / "a", "host"), os.unlink(mount / "script"), os.unlink(mount / "d/x"))
            )
            await aside(lambda: write(mount / "stays", "stays"))
        write(stage.source / "a", "edited")
        write(stage.source / "script", "edited")
        await stage.workspace.barrier()
        async with open_mount(config) as host:
            stage.hosts.append(host)
            await stage.barrier()
            assert taken(stage) == [("a", "a.host-copy"), ("script", "")]
            assert await aside(lambda: read(mount / "a")) == b"edited"
            assert await aside(lambda: read(mount / "stays")) == b"stays"
            assert not await aside((mount / "d" / "x").exists)


async def test_what_the_host_wrote_is_discarded_but_for_what_is_to_be_kept(directory: Path) -> None:
    async with _writable(directory) as stage:
        mount = stage.mount()

        def work() -> None:
            write(mount / "a", "written")
            write(mount / "new", "12345")
            subprocess.run(["rm", "-r", mount / "d"], check=True)
            (mount / "ckpt" / "deep").mkdir(parents=True)
            write(mount / "ckpt" / "deep" / "kept", "kept")
            write(mount / "ckpt" / "not", "123")

        await aside(work)
        assert await aside(lambda: usage(str(stage.overlay() / TREE))) == (4, 19)
        discarded = await stage.hosts[0].discard(["ckpt/deep", "nowhere"])
        assert discarded == (3, 15)
        assert await aside(lambda: sorted(os.listdir(mount))) == ["a", "ckpt", "d", "link", "script"]
        assert await aside(lambda: read(mount / "a")) == b"hello"
        assert await aside(lambda: read(mount / "d" / "deep" / "y")) == b"y"
        assert await aside(lambda: os.listdir(mount / "ckpt")) == ["deep"]
        assert await aside(lambda: read(mount / "ckpt" / "deep" / "kept")) == b"kept"
        assert await stage.hosts[0].discard() == (1, 4)
        assert await aside(lambda: sorted(os.listdir(mount))) == ["a", "d", "link", "script"]


def test_a_conflict_is_a_path_and_where_it_is_kept() -> None:
    assert HostCopy(b"a", b"") == (b"a", b"")
