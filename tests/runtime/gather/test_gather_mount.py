"""Hosts' files at the client, by the kernel: what it shows, and how little is moved for it."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.mounts.mountpoints import mounts_at
from tests.runtime.mounts.stage import aside, names_of_every_kind, read, write

from .stage import Host, gathered, served, staged

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fuse"), pytest.mark.timeout(120)]

_MIB = 1 << 20


def refused(function: Any) -> int:
    """The errno of what it raises."""
    try:
        function()
    except OSError as error:
        return error.errno or 0
    return 0


async def until(function: Any, within_s: float = 20.0) -> None:
    with anyio.fail_after(within_s):
        while not await aside(function):
            await anyio.sleep(0.02)


async def test_each_host_is_a_directory_with_its_own_files(directory: Path) -> None:
    async with gathered(directory) as stage:
        for host in stage.hosts:
            (host.directory / "sub").mkdir()
            write(host.directory / "sub" / "a", host.directory.name)
        assert await aside(lambda: sorted(os.listdir(stage.mount))) == ["0", "1"]
        for number in (0, 1):
            assert await aside(lambda n=number: read(stage.mount / f"{n}/sub/a")) == f"h{number}".encode()
            assert await aside(lambda n=number: os.listdir(stage.mount / f"{n}")) == ["sub"]
        found = await aside(lambda: os.stat(stage.mount / "1/sub/a"))
        real = os.stat(stage.hosts[1].directory / "sub" / "a")
        for what in ("st_size", "st_mode", "st_uid", "st_gid", "st_mtime_ns", "st_nlink", "st_blocks"):
            assert getattr(found, what) == getattr(real, what), what
        assert await aside(lambda: refused(lambda: os.stat(stage.mount / "2"))) == errno.ENOENT
        assert await aside(lambda: refused(lambda: os.stat(stage.mount / "0/none"))) == errno.ENOENT
    assert mounts_at(directory / "m") == []
    assert not (directory / "m").exists()


async def test_a_path_below_the_workspace_or_an_absolute_one_a_link_to_it_too(directory: Path) -> None:
    outside = directory / "outside"
    outside.mkdir()
    write(outside / "a", "there")
    for remote in ("sub", str(outside), "link"):
        async with staged(directory, hosts=1) as stage:
            (directory / "h0" / "sub").mkdir(exist_ok=True)
            write(directory / "h0" / "sub" / "a", "there")
            with suppress(FileExistsError):
                (directory / "h0" / "link").symlink_to(outside)
            from milkweed.runtime.mounts import open_mount

            async with open_mount(stage.config(remote)):
                assert await aside(lambda stage=stage: read(stage.mount / "0/a")) == b"there"


async def test_a_path_that_is_not_there_yet_is_shown_when_it_is(directory: Path) -> None:
    async with gathered(directory, hosts=1, remote="later") as stage:
        assert await aside(lambda: os.listdir(stage.mount)) == ["0"]
        assert await aside(lambda: refused(lambda: os.listdir(stage.mount / "0"))) == errno.ENOENT
        (directory / "h0" / "later").mkdir()
        write(directory / "h0" / "later" / "a", "x")
        assert await aside(lambda: os.listdir(stage.mount / "0")) == ["a"]


async def test_nothing_can_be_written(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        write(directory / "h0" / "a", "x")
        for change in (
            lambda: write(stage.mount / "0/a", "y"),
            lambda: write(stage.mount / "0/b", "y"),
            lambda: os.unlink(stage.mount / "0/a"),
            lambda: os.mkdir(stage.mount / "0/d"),
            lambda: os.rename(stage.mount / "0/a", stage.mount / "0/b"),
            lambda: os.truncate(stage.mount / "0/a", 0),
        ):
            assert await aside(lambda change=change: refused(change)) == errno.EROFS
        assert os.listdir(directory / "h0") == ["a"]


async def test_a_log_that_grows_is_followed_by_tail(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        log = directory / "h0" / "log"
        write(log, "line 0\n")
        async with await anyio.open_process(["tail", "-f", "-n", "+1", stage.mount / "0/log"]) as tail:
            assert tail.stdout is not None
            said = b""
            try:
                with anyio.fail_after(30):
                    for number in range(1, 6):
                        with open(log, "a") as file:
                            file.write(f"line {number}\n" + "x" * number * 3000 + "\n")
                        while f"line {number}\n".encode() not in said or not said.endswith(b"x\n"):
                            said += await tail.stdout.receive()
                    while len(said) < log.stat().st_size:
                        said += await tail.stdout.receive()
            finally:
                tail.kill()
        assert said == log.read_bytes()


async def test_what_grows_or_is_cut_is_never_padded_with_zeros(directory: Path) -> None:
    """Read all the time while it is written: what is read is a beginning of some version of it."""
    async with gathered(directory, hosts=1, life_s=0.05) as stage:
        log, over = directory / "h0" / "log", anyio.Event()
        write(log, "x")

        def look() -> int:
            data = read(stage.mount / "0/log")
            assert not data.strip(b"x"), data[:100]
            return len(data)

        async def reads() -> None:
            while not over.is_set():
                await aside(look)

        chance = random.Random(5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reads)
            tasks.start_soon(reads)
            for _ in range(150):
                with open(log, "ab") as file:
                    file.write(b"x" * chance.randrange(1, 9000))
                if not chance.randrange(10):
                    os.truncate(log, chance.randrange(1, 5000))
                await anyio.sleep(0.005)
            over.set()
        await until(lambda: look() == log.stat().st_size)


async def test_a_short_read_of_a_large_file_moves_little(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        data = random.Random(1).randbytes(8 * _MIB)
        write(directory / "h0" / "big", data)
        assert await aside(lambda: (stage.mount / "0/big").stat().st_size) == len(data)

        def at(offset: int) -> bytes:
            with open(stage.mount / "0/big", "rb", buffering=0) as file:
                return os.pread(file.fileno(), 4096, offset)

        for offset in (5 * _MIB, 3 * _MIB + 4096, 6 * _MIB, _MIB):
            assert await aside(lambda offset=offset: at(offset)) == data[offset : offset + 4096]
        assert (await stage.next_said())["moved"] == {"messages": 4 * 4096}
        assert await aside(lambda: at(0)) == data[:4096]
        assert (await stage.next_said())["moved"]["messages"] <= 4 * 4096 + 16 * 1024  # the kernel's own


async def test_a_large_file_arrives_whole_by_one_sided_memory(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        data = random.Random(2).randbytes(24 * _MIB + 4321)
        write(directory / "h0" / "big", data)
        await until(lambda: read(stage.mount / "0/big") == data)  # what that takes is imported meanwhile
        before = (await stage.next_said())["moved"]
        digest = await aside(lambda: hashlib.sha256(read(stage.mount / "0/big")).hexdigest())
        assert digest == hashlib.sha256(data).hexdigest()
        moved = (await stage.next_said())["moved"]
        by_memory = {name: moved[name] - before.get(name, 0) for name in moved if name != "messages"}
        assert sum(by_memory.values()) >= 16 * _MIB
        # In a process: who waits for a page holds the lock of the interpreter.
        mapped = (
            "import mmap, sys; file = open(sys.argv[1], 'rb');"
            "memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ);"
            "sys.stdout.buffer.write(memory[(10 << 20) - 5 : (10 << 20) + 5])"
        )
        done = await anyio.run_process([sys.executable, "-c", mapped, stage.mount / "0/big"])
        assert done.stdout == data[10 * _MIB - 5 : 10 * _MIB + 5]


async def test_sparse_checkpoints_of_hundreds_of_gigabytes_are_listed_and_read_in_part(
    directory: Path,
) -> None:
    async with gathered(directory, hosts=1) as stage:
        size = 200 * 10**9
        for number in range(10):
            with open(directory / "h0" / f"{number}.pt", "wb") as file:
                file.seek(size - 4096)
                file.write(b"%d" % number * 4096)
        shown = stage.mount / "0"
        found = await aside(lambda: {name: os.stat(shown / name) for name in os.listdir(shown)})
        assert {one.st_size for one in found.values()} == {size}
        assert sum(one.st_blocks for one in found.values()) * 512 < _MIB

        def end_of(number: int) -> bytes:
            with open(shown / f"{number}.pt", "rb", buffering=0) as file:
                return os.pread(file.fileno(), 8192, size - 4096)

        for number in range(10):
            assert await aside(lambda number=number: end_of(number)) == b"%d" % number * 4096
        assert sum((await stage.next_said())["moved"].values()) <= 10 * 8192


async def test_without_one_sided_memory_all_comes_in_messages(directory: Path) -> None:
    async with gathered(directory, hosts=1, one_sided=False) as stage:
        data = random.Random(3).randbytes(9 * _MIB)
        write(directory / "h0" / "big", data)
        assert await aside(lambda: read(stage.mount / "0/big")) == data
        assert list((await stage.next_said())["moved"]) == ["messages"]


async def test_links_are_shown_as_they_are(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        host = directory / "h0"
        write(host / "a", "x")
        for name, target in (("in", "a"), ("out", "/etc/hostname"), ("none", "nowhere"), ("loop", "loop")):
            (host / name).symlink_to(target)
        for name, target in (("in", "a"), ("out", "/etc/hostname"), ("none", "nowhere"), ("loop", "loop")):
            assert await aside(lambda name=name: os.readlink(stage.mount / "0" / name)) == target
            assert await aside(
                lambda name=name: os.lstat(stage.mount / "0" / name).st_size
            ) == len(target)  # fmt: skip
        assert await aside(lambda: read(stage.mount / "0/in")) == b"x"
        assert await aside(lambda: refused(lambda: read(stage.mount / "0/loop"))) == errno.ELOOP


async def test_special_files_are_listed_and_refused_at_once(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        host = directory / "h0"
        os.mkfifo(host / "fifo")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(host / "socket"))
        names = ["fifo", "socket"]
        with suppress(PermissionError):
            os.mknod(host / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            names.append("device")
        assert await aside(lambda: sorted(os.listdir(stage.mount / "0"))) == sorted(names)
        for name in names:
            with anyio.fail_after(10):
                number = await aside(lambda name=name: refused(lambda: read(stage.mount / "0" / name)))
            assert number in (errno.ENXIO, errno.EACCES), name
            assert not await aside(lambda name=name: stat.S_ISREG(os.lstat(stage.mount / "0" / name).st_mode))


async def test_names_of_every_kind(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        host = os.fsencode(directory / "h0")
        for name in names_of_every_kind():
            write(host + b"/" + name, name)
            os.mkdir(host + b"/" + name[:200] + b".d")
            write(host + b"/" + name[:200] + b".d/" + name, name)
        shown = os.fsencode(stage.mount / "0")

        def look() -> None:
            assert sorted(os.listdir(shown)) == sorted(os.listdir(host))
            for name in names_of_every_kind():
                assert read(shown + b"/" + name) == name
                assert read(shown + b"/" + name[:200] + b".d/" + name) == name

        await aside(look)


async def test_what_may_not_be_read_is_refused_as_on_the_host(directory: Path) -> None:
    class Denying(Host):
        """As a host whose agent is not root."""

        def _opened(self, path: bytes) -> Any:
            if path.endswith(b"secret"):
                raise PermissionError(errno.EACCES, "denied")
            return super()._opened(path)

    async with staged(directory, hosts=0) as stage:
        stage.hosts.append(host := Denying(directory / "h0"))
        write(host.directory / "secret", "x")
        from milkweed.runtime.mounts import open_mount

        async with served(host, directory / "s0"), open_mount(stage.config()):
            assert await aside(lambda: refused(lambda: read(stage.mount / "0/secret"))) == errno.EACCES
            assert await aside(lambda: os.listdir(stage.mount / "0")) == ["secret"]


async def test_ten_thousand_entries_are_a_few_questions(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        host = stage.hosts[0]
        (host.directory / "many").mkdir()

        def fill() -> None:
            for number in range(10_000):
                write(host.directory / "many" / f"{number}", "x" * (number % 7))

        await aside(fill)

        def look() -> dict[str, int]:
            with os.scandir(stage.mount / "0/many") as entries:
                return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}

        before = sum(host.asked.values())
        assert await aside(look) == {f"{number}": number % 7 for number in range(10_000)}
        first = sum(host.asked.values()) - before
        assert first <= 30, host.asked
        with anyio.fail_after(30):
            while sum(host.asked.values()) == before + first:  # none of it has grown old
                assert len(await aside(look)) == 10_000
        assert sum(host.asked.values()) - before - first <= 30, host.asked


async def test_two_hundred_small_files_are_a_few_questions(directory: Path) -> None:
    async with gathered(directory, hosts=1, life_s=20.0) as stage:
        host = stage.hosts[0]
        for number in range(200):
            write(host.directory / f"{number:03}", f"{number}" * 20)

        def look() -> None:
            for name in sorted(os.listdir(stage.mount / "0")):
                assert read(stage.mount / "0" / name) == f"{int(name)}".encode() * 20

        await aside(look)
        assert sum(host.asked.values()) <= 30, host.asked


async def test_a_directory_that_changes_while_it_is_listed_shows_what_stays_once(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        folder = directory / "h0" / "many"
        folder.mkdir()
        stays = {f"stays-{number}" for number in range(25_000)}
        names = stays | {f"goes-{number}" for number in range(500)}
        await aside(lambda: [write(folder / name, "") for name in names])

        def look() -> list[str]:
            found = []
            with os.scandir(stage.mount / "0/many") as entries:
                for number, entry in enumerate(entries):
                    found.append(entry.name)
                    if number < 500:
                        (folder / f"goes-{number}").unlink()
                        write(folder / f"comes-{number}", "")
            return found

        found = await aside(look)
        assert len(found) == len(set(found))
        assert stays <= set(found)
        assert {name for name in found if name not in stays} <= {
            f"{what}-{number}" for what in ("comes", "goes") for number in range(500)
        }
        again = set(await aside(lambda: os.listdir(stage.mount / "0/many")))
        assert again == stays | {f"comes-{number}" for number in range(500)}


async def test_a_file_that_was_replaced_is_another_one_and_open_ones_never_mix(directory: Path) -> None:
    async with gathered(directory, hosts=1, life_s=0.05) as stage:
        path, beside = directory / "h0" / "a", directory / "h0" / "b"
        write(path, b"1" * 3 * _MIB)

        def replaced_while_it_is_open() -> int:
            with open(stage.mount / "0/a", "rb", buffering=0) as file:
                assert os.pread(file.fileno(), 4096, 0) == b"1" * 4096
                write(beside, b"2" * 3 * _MIB)
                os.rename(beside, path)
                return refused(lambda: os.pread(file.fileno(), 4096, 2 * _MIB))

        assert await aside(replaced_while_it_is_open) == errno.ESTALE
        await until(lambda: read(stage.mount / "0/a") == b"2" * 3 * _MIB)


async def test_changes_are_seen_within_the_life_of_attributes(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        path = directory / "h0" / "a"
        write(path, "first")
        assert await aside(lambda: read(stage.mount / "0/a")) == b"first"
        write(path, "other")  # of the same size
        began = time.monotonic()
        await until(lambda: read(stage.mount / "0/a") == b"other")
        assert time.monotonic() - began < 10
        path.unlink()
        await until(lambda: not (stage.mount / "0/a").exists())
        write(path, "again")
        assert await aside(lambda: read(stage.mount / "0/a")) == b"again"  # what is not there is not believed


async def test_files_of_the_kernel_are_read_though_they_have_no_size(directory: Path) -> None:
    async with gathered(directory, hosts=1, remote="/proc") as stage:
        assert (await aside(lambda: read(stage.mount / "0/version"))) == read(Path("/proc/version"))
        assert b"MemTotal" in await aside(lambda: read(stage.mount / "0/meminfo"))


async def test_a_mount_does_not_lead_into_itself(directory: Path) -> None:
    """Hosts that share the client's file system see the mount in what it shows."""
    async with gathered(directory, hosts=2, remote=str(directory)) as stage:
        assert "m" in await aside(lambda: os.listdir(stage.mount / "0"))
        with anyio.fail_after(20):
            assert await aside(lambda: refused(lambda: os.listdir(stage.mount / "0/m"))) == errno.ELOOP
            found = await aside(lambda: sum(len(names) for _, _, names in os.walk(stage.mount)))
        assert found < 100


async def test_a_host_that_is_gone_fails_for_its_part_alone_and_comes_back(directory: Path) -> None:
    async with gathered(directory) as stage:
        for host in stage.hosts:
            write(host.directory / "a", host.directory.name)
        for number in (0, 1):
            assert await aside(lambda n=number: read(stage.mount / f"{n}/a")) == f"h{number}".encode()
        stage.doors[1].cancel()
        await until(lambda: refused(lambda: read(stage.mount / "1/a")) == errno.EIO)
        with anyio.fail_after(2):  # at once, now that it is known
            assert await aside(lambda: refused(lambda: os.listdir(stage.mount / "1"))) == errno.EIO
        assert await aside(lambda: sorted(os.listdir(stage.mount))) == ["0", "1"]
        assert await aside(lambda: read(stage.mount / "0/a")) == b"h0"
        assert list((await stage.next_said())["gone"]) == ["1"]
        async with served(stage.hosts[1], directory / "s1"):
            await until(lambda: refused(lambda: read(stage.mount / "1/a")) == 0)
            assert (await stage.next_said())["gone"] == {}


async def test_a_host_that_was_never_there_fails_in_a_few_seconds(directory: Path) -> None:
    async with staged(directory, hosts=1) as stage:
        stage.hosts.append(Host(directory / "h1"))  # nobody serves it
        from milkweed.runtime.mounts import open_mount

        async with open_mount(stage.config()):
            write(directory / "h0" / "a", "x")
            with anyio.fail_after(10):
                assert await aside(lambda: refused(lambda: os.listdir(stage.mount / "1"))) == errno.EIO
            assert await aside(lambda: read(stage.mount / "0/a")) == b"x"


async def test_a_host_that_hangs_fails_for_its_part_alone_and_comes_back(directory: Path) -> None:
    async with gathered(directory) as stage:
        for host in stage.hosts:
            write(host.directory / "a", "x")
            write(host.directory / "b", "x")
        hanging = stage.hosts[1]
        hanging.hangs = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b"):

                async def fails(name: str = name) -> None:
                    with anyio.fail_after(15):
                        number = await aside(lambda: refused(lambda: read(stage.mount / "1" / name)))
                    assert number == errno.EIO

                tasks.start_soon(fails)
            with anyio.fail_after(10):
                assert await aside(lambda: read(stage.mount / "0/a")) == b"x"
        assert "did not answer" in (await stage.next_said())["gone"]["1"]
        hanging.hangs.set()
        hanging.hangs = None
        await until(lambda: refused(lambda: read(stage.mount / "1/a")) == 0)


async def test_a_file_system_that_hangs_on_a_host_is_an_error_of_what_is_asked_there(directory: Path) -> None:
    over = threading.Event()

    class Slow(Host):
        def _opened(self, path: bytes) -> Any:
            if path.endswith(b"slow"):
                over.wait(60)
            return super()._opened(path)

    async with staged(directory, hosts=0) as stage:
        stage.hosts.append(host := Slow(directory / "h0", timeout_s=1.0))
        write(host.directory / "slow", "x")
        write(host.directory / "fast", "x")
        from milkweed.runtime.mounts import open_mount

        async with served(host, directory / "s0"), open_mount(stage.config()) as process:
            try:
                assert await aside(lambda: refused(lambda: read(stage.mount / "0/slow"))) == errno.EIO
                assert await aside(lambda: read(stage.mount / "0/fast")) == b"x"
                assert not (process.state.said or {}).get("gone")
            finally:
                over.set()


async def test_a_killed_process_comes_again_and_the_mount_with_it(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        write(directory / "h0" / "a", "x")
        assert stage.process is not None
        first = stage.process.state.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: refused(lambda: read(stage.mount / "0/a")) == 0)
        assert stage.process.state.pid != first
        assert len(mounts_at(stage.mount)) == 1


async def test_who_is_in_it_keeps_what_is_open_and_is_named(directory: Path) -> None:
    async with gathered(directory, hosts=1) as stage:
        write(directory / "h0" / "a", "x")
        sleeper = await anyio.open_process(
            ["sh", "-c", 'cd "$0" && echo there && exec sleep 60', stage.mount / "0"], stdout=subprocess.PIPE
        )
        assert sleeper.stdout is not None
        await sleeper.stdout.receive()
        assert stage.process is not None
        held = await stage.process.stop()
        assert [one.pid for one in held] == [sleeper.pid]
        assert mounts_at(stage.mount) == []
        sleeper.kill()
        await sleeper.wait()
