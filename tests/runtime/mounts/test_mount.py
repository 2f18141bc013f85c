"""What a host sees of a directory, through a real mount by a real process."""

from __future__ import annotations

import errno
import os
import random
import socket
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from milkweed.runtime.mounts import open_mount

from .stage import Stage, aside, disturb, names_of_every_kind, read, replace_as_editors_do, staged, write

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fuse")]


async def test_a_tree_is_seen_as_it_is(directory: Path) -> None:
    def fill(source: Path) -> None:
        (source / "package" / "deep").mkdir(parents=True)
        write(source / "package" / "deep" / "module.py", "x = 1\n")
        write(source / "run.sh", "#!/bin/sh\necho ran\n")
        (source / "run.sh").chmod(0o755)
        os.symlink("package/deep", source / "link")
        os.symlink("/nowhere/at/all", source / "dangling")

    async with staged(directory, hosts=1, fill=fill) as stage:
        mount = stage.mount()
        assert await aside(lambda: sorted(os.listdir(mount))) == ["dangling", "link", "package", "run.sh"]
        assert await aside(lambda: read(mount / "link" / "module.py")) == b"x = 1\n"
        assert await aside(lambda: os.readlink(mount / "dangling")) == "/nowhere/at/all"
        assert await aside(lambda: subprocess.check_output([mount / "run.sh"])) == b"ran\n"
        for path in (".", "run.sh", "package/deep/module.py"):
            here = os.stat(stage.source / path)
            there = await aside(partial(os.stat, mount / path))
            assert (there.st_mode, there.st_mtime_ns) == (here.st_mode, here.st_mtime_ns)
            assert stat.S_ISDIR(here.st_mode) or there.st_size == here.st_size


@pytest.mark.skipif(os.geteuid() != 0, reason="the read-ahead of a mount is the superuser's to set")
async def test_the_kernel_asks_for_half_a_mib_at_once_of_what_is_read_in_order(directory: Path) -> None:
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", b"x" * 9_000_000)) as stage:
        device = (await aside(stage.mount().stat)).st_dev
        setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
        with anyio.fail_after(20):
            while setting.read_text() != "512\n":
                await anyio.sleep(0.005)
        assert await aside(lambda: read(stage.mount() / "a")) == b"x" * 9_000_000


async def test_names_in_every_encoding_are_seen_and_followed(directory: Path) -> None:
    names = names_of_every_kind()
    root = os.fsencode(directory / "src")

    def fill(source: Path) -> None:
        for name in names[::2]:
            write(os.fsencode(source) + b"/" + name, name)

    async with staged(directory, hosts=1, fill=fill) as stage:
        for name in names[1::2]:
            write(root + b"/" + name, name)
        os.mkdir(root + b"/\xffdir")
        write(root + b"/\xffdir/\xfe", b"inside")
        await stage.barrier()
        mount = os.fsencode(stage.mount())
        assert await aside(lambda: sorted(os.listdir(mount))) == sorted([*names, b"\xffdir"])
        for name in names:
            assert await aside(partial(read, mount + b"/" + name)) == name
        assert await aside(lambda: read(mount + b"/\xffdir/\xfe")) == b"inside"


async def test_every_kind_of_change_is_seen_after_a_barrier(directory: Path) -> None:
    def fill(source: Path) -> None:
        for name in "abcdefg":
            write(source / name, f"old {name}")
        (source / "old").mkdir()
        write(source / "old" / "inside", "moved")
        os.symlink("a", source / "link")

    async with staged(directory, hosts=2, fill=fill) as stage:
        source = stage.source
        mounts = [stage.mount(0), stage.mount(1)]
        for mount in mounts:  # the kernel knows all of it, and that `new` is not there
            await aside(lambda mount=mount: [read(mount / name) for name in "abcdefg"])  # type: ignore[misc]
            assert not await aside((mount / "new").exists)
            assert not await aside((mount / "dir").exists)
        write(source / "new", "created")
        write(source / "a", "written over")
        os.truncate(source / "b", 3)
        replace_as_editors_do(source / "c", "replaced")
        os.rename(source / "d", source / "d2")
        (source / "e").unlink()
        (source / "f").chmod(0o750)
        (source / "g").unlink()
        (source / "g").mkdir()
        write(source / "g" / "now", "a directory")
        (source / "link").unlink()
        os.symlink("new", source / "link")
        (source / "dir" / "below").mkdir(parents=True)
        write(source / "dir" / "below" / "at once", "filled")
        os.rename(source / "old", source / "renamed")
        await stage.barrier()
        for mount in mounts:
            # By name, before a listing tells the kernel anew what is there.
            for name in ("new", "a", "b", "c", "d2", "g/now", "link", "dir/below/at once", "renamed/inside"):
                assert await aside(partial(read, mount / name)) == read(source / name), name
            for name in ("d", "e", "old", "old/inside"):
                assert not await aside((mount / name).exists), name
            found = await aside(partial(_contents, mount))
            assert found == await aside(partial(_contents, source))
            assert stat.S_IMODE((await aside((mount / "f").stat)).st_mode) == 0o750


def _contents(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = (
            os.readlink(path) if path.is_symlink() else read(path) if path.is_file() else "directory"
        )
    return found


async def test_a_mount_is_as_the_source_whatever_is_done(directory: Path, full_size: bool) -> None:
    chance = random.Random(3)
    async with staged(directory, hosts=1) as stage:
        for _ in range(500 if full_size else 40):
            for _ in range(chance.randrange(8)):
                disturb(stage.source, chance)
            await stage.barrier()
            here = _contents(stage.source)
            # By name, then by listing, which tells the kernel anew what is there.
            for name, content in here.items():
                if isinstance(content, bytes):
                    assert await aside(partial(read, stage.mount() / name)) == content
            assert await aside(partial(_contents, stage.mount())) == here


async def test_an_edit_is_seen_without_a_barrier(directory: Path) -> None:
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "one")) as stage:
        path = stage.mount() / "a"
        assert await aside(lambda: read(path)) == b"one"
        write(stage.source / "a", "two")
        while await aside(lambda: read(path)) != b"two":
            await anyio.sleep(0.002)


# One interpreter on each mount, which imports the module anew when it is told to, and compiles it to disk.
_IMPORTER = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for line in sys.stdin:
    importlib.invalidate_caches()
    sys.modules.pop("edited", None)
    import edited
    print(edited.VALUE, flush=True)
"""


async def test_every_import_after_an_edit_is_of_the_edit(directory: Path) -> None:
    """Half of the edits are within the same second and of the same size as the one before: what is compiled
    of one would pass for the other by Python's own rules.
    """
    rounds = 500
    async with staged(
        directory, hosts=2, fill=lambda source: write(source / "edited.py", "VALUE = 0\n")
    ) as stage:
        importers = []
        for number in range(2):
            env = {**os.environ, "PYTHONPYCACHEPREFIX": str(directory / f"pyc{number}")}
            env.pop("PYTHONDONTWRITEBYTECODE", None)
            process = await anyio.open_process(
                [sys.executable, "-c", _IMPORTER, str(stage.mount(number))], env=env, stderr=None
            )
            assert process.stdout is not None
            importers.append((process, BufferedByteReceiveStream(process.stdout)))
        try:
            module = stage.source / "edited.py"
            for value in range(1, rounds + 1):
                text = f"VALUE = {value:06d}\n".replace("= 0", "= 1")
                if value % 4 < 2:
                    write(module, text)
                    os.utime(module, (1_700_000_000, 1_700_000_000))  # the same second, and the same size
                else:
                    replace_as_editors_do(module, text)
                await stage.barrier()
                for process, output in importers:
                    assert process.stdin is not None
                    await process.stdin.send(b"\n")
                    told = await output.receive_until(b"\n", 100)
                    assert f"VALUE = {int(told):06d}\n" == text, value
        finally:
            for process, _ in importers:
                process.kill()
                await process.wait()
        assert list((directory / "pyc0").rglob("edited*.pyc"))


async def test_a_read_in_flight_during_rewrites_is_never_a_mix(directory: Path) -> None:
    """A file of 3 MB, all of one letter, is written over, in place and by renaming, while it is read."""
    size, rewrites = 3_000_000, 200
    fill = partial(_write_letter, size=size, number=0)
    async with staged(directory, hosts=1, fill=lambda source: fill(source / "big")) as stage:
        path = stage.mount() / "big"
        done = threading.Event()
        whole = [0]

        def keep_reading() -> None:
            while not done.is_set():
                try:
                    data = read(path)
                except OSError as error:
                    if error.errno not in {errno.ESTALE, errno.ENOENT}:
                        raise
                    continue
                assert not data or data.count(data[:1]) == len(data), "a mix"
                whole[0] += len(data) == size

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(aside, keep_reading)
            for number in range(1, rewrites + 1):
                await aside(partial(_write_letter, stage.source / "big", size=size, number=number))
                await anyio.lowlevel.checkpoint()
            await stage.barrier()
            seen = whole[0]
            while whole[0] == seen:
                await anyio.sleep(0.01)
            done.set()
        last = await aside(lambda: read(path))
        assert last[:1] == bytes([97 + rewrites % 26])
        assert whole[0]


def _write_letter(path: Path, *, size: int, number: int) -> None:
    data = bytes([97 + number % 26]) * size
    if number % 2:
        replace_as_editors_do(path, data)
    else:
        write(path, data)


async def test_an_open_file_keeps_its_version(directory: Path) -> None:
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "the first")) as stage:
        with await aside(lambda: open(stage.mount() / "a", "rb", buffering=0)) as file:
            replace_as_editors_do(stage.source / "a", "the second, which is longer")
            await stage.barrier()
            assert await aside(file.read) == b"the first"
        assert await aside(lambda: read(stage.mount() / "a")) == b"the second, which is longer"


async def test_what_was_not_fetched_of_a_version_that_went_is_stale(directory: Path) -> None:
    size = 40 * 1024 * 1024
    async with staged(directory, hosts=1, fill=lambda source: write(source / "big", b"1" * size)) as stage:
        descriptor = await aside(lambda: os.open(stage.mount() / "big", os.O_RDONLY))
        try:
            assert await aside(lambda: os.pread(descriptor, 4096, 0)) == b"1" * 4096
            write(stage.source / "big", b"2" * size)
            await stage.barrier()
            assert await aside(lambda: os.pread(descriptor, 4096, 0)) == b"1" * 4096
            with pytest.raises(OSError, match=r"[Ss]tale"):
                await aside(lambda: os.pread(descriptor, 4096, size - 4096))
        finally:
            os.close(descriptor)
        assert await aside(lambda: read(stage.mount() / "big")) == b"2" * size


async def test_a_checkout_of_two_thousand_files_is_seen(directory: Path) -> None:
    def fill(source: Path) -> None:
        _git(source, "init", "--quiet")
        for branch in ("one", "two"):
            _git(source, "checkout", "--quiet", "--orphan", branch)
            for number in range(2000):
                folder = source / f"d{number % 40}"
                folder.mkdir(exist_ok=True)
                write(folder / f"f{number}", f"{branch} {number}")
            _git(source, "add", "--all")
            _git(source, "commit", "--quiet", "--message", branch)

    async with staged(directory, hosts=1, fill=fill) as stage:
        assert await aside(lambda: read(stage.mount() / "d1" / "f1")) == b"two 1"
        await aside(partial(_git, stage.source, "checkout", "--quiet", "one"))
        await stage.barrier()
        mount = stage.mount()
        found = await aside(lambda: [read(mount / f"d{one % 40}" / f"f{one}") for one in range(2000)])
        assert found == [f"one {number}".encode() for number in range(2000)]
        assert not await aside((mount / ".git").exists)


def _git(directory: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", directory, *identity, *words], check=True, capture_output=True)


async def test_odd_things_are_left_out_or_harmless(directory: Path) -> None:
    def fill(source: Path) -> None:
        os.mkfifo(source / "fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(source / "socket"))
        os.symlink("loop", source / "loop")
        os.symlink(".", source / "self")
        write(source / "empty", "")

    async with staged(directory, hosts=1, fill=fill) as stage:
        mount = stage.mount()
        assert await aside(lambda: sorted(os.listdir(mount))) == ["empty", "loop", "self"]
        assert await aside(lambda: read(mount / "empty")) == b""
        with pytest.raises(OSError, match="symbolic links"):
            await aside(lambda: read(mount / "loop"))
        assert await aside(lambda: os.listdir(mount / "self")) == await aside(lambda: os.listdir(mount))
        said = {one.path: one.why for one in stage.workspace.weigh_excluded()}
        assert said == {b"fifo": "a FIFO", b"socket": "a socket"}


async def test_a_sparse_file_of_five_gigabytes_is_read_where_it_is_asked(directory: Path) -> None:
    size = 5 * 1024**3

    def fill(source: Path) -> None:
        with open(source / "sparse", "wb") as file:
            file.truncate(size)
            file.seek(size - 6)
            file.write(b"at end")

    async with staged(directory, hosts=1, fill=fill) as stage:
        path = stage.mount() / "sparse"
        assert (await aside(path.stat)).st_size == size
        descriptor = await aside(lambda: os.open(path, os.O_RDONLY))
        try:
            assert await aside(lambda: os.pread(descriptor, 100, size - 6)) == b"at end"
            assert await aside(lambda: os.pread(descriptor, 4096, size // 2)) == bytes(4096)
        finally:
            os.close(descriptor)
        assert stage.workspace.bytes_read < 64 * 1024**2


async def test_a_directory_of_a_hundred_thousand_entries_is_listed(directory: Path, full_size: bool) -> None:
    count = 100_000 if full_size else 20_000

    def fill(source: Path) -> None:
        (source / "many").mkdir()
        for number in range(count):
            os.close(os.open(source / "many" / f"entry-{number:06d}", os.O_CREAT | os.O_WRONLY))

    async with staged(directory, hosts=1, fill=fill) as stage:
        many = stage.mount() / "many"
        assert len(await aside(lambda: os.listdir(many))) == count
        write(stage.source / "many" / "one more", "x")
        (stage.source / "many" / "entry-000007").unlink()
        await stage.barrier()
        names = set(await aside(lambda: os.listdir(many)))
        assert len(names) == count
        assert "one more" in names
        assert "entry-000007" not in names


async def test_a_mount_cannot_be_written_to(directory: Path) -> None:
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "x")) as stage:
        for attempt in (
            lambda: write(stage.mount() / "a", "y"),
            lambda: write(stage.mount() / "new", "y"),
            lambda: os.unlink(stage.mount() / "a"),
            lambda: os.mkdir(stage.mount() / "d"),
        ):
            with pytest.raises(OSError, match="Read-only file system"):
                await aside(attempt)


async def test_hosts_fetch_from_their_parent_and_the_client_sends_once(directory: Path) -> None:
    size = 8 * 1024 * 1024
    data = os.urandom(size)
    async with staged(directory, fill=lambda source: write(source / "data", data)) as stage:
        await _in_a_tree(stage, data)
        assert stage.workspace.bytes_read < 1.5 * size


async def _in_a_tree(stage: Stage, data: bytes) -> None:
    serve = str(stage.directory / "p")
    async with open_mount(stage.config(0, serve=serve)) as parent:
        stage.hosts.append(parent)
        async with (
            open_mount(stage.config(1, parents=(serve,))),
            open_mount(stage.config(2, parents=(serve,))),
        ):
            for number in (1, 2, 0):
                assert await aside(lambda number=number: read(stage.mount(number) / "data")) == data  # type: ignore[misc]


async def test_a_parent_that_is_not_there_is_passed_over(directory: Path) -> None:
    async with (
        staged(directory, fill=lambda source: write(source / "data", "here")) as stage,
        open_mount(stage.config(0, parents=(str(directory / "nobody"),))),
    ):
        assert await aside(lambda: read(stage.mount() / "data")) == b"here"


async def test_a_full_disk_for_the_cache_costs_nothing_but_speed(directory: Path) -> None:
    cache = directory / "small"
    cache.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", cache], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    data = os.urandom(12_000_000)
    try:
        async with staged(directory, fill=lambda source: write(source / "data", data)) as stage:
            for number in range(30):
                write(stage.source / f"small-{number}", f"{number:060000d}")
            await stage.workspace.barrier()
            async with open_mount(stage.config(0, cache=str(cache / "c"))):
                assert await aside(lambda: read(stage.mount() / "data")) == data
                for number in range(30):
                    found = await aside(lambda number=number: read(stage.mount() / f"small-{number}"))  # type: ignore[misc]
                    assert found == f"{number:060000d}".encode()
    finally:
        subprocess.run(["umount", cache], check=False)


# What a host agent in a mount namespace of its own does: it shows the directory in its own place.
_IN_A_NAMESPACE = """
import sys, anyio
from milkweed.runtime.mounts import HostConfig, open_mount

async def main():
    async with open_mount(HostConfig.from_json(sys.argv[1])) as mount:
        for word in ("ready", "again"):
            path = sys.argv[2]
            text = await anyio.to_thread.run_sync(lambda: open(path).read())
            lines = [line for line in open("/proc/self/mountinfo") if mount.config.mountpoint in line]
            kind = [line.split(" - ")[1].split()[0] for line in lines]
            print(word, text, kind, flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)

anyio.run(main)
"""


async def test_a_host_in_a_mount_namespace_shows_the_directory_in_its_own_place(directory: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here")
    async with staged(directory, fill=lambda source: write(source / "a", "one")) as stage:
        config = stage.config(mountpoint=str(stage.source))
        env = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{stage.source}"}
        command = ["unshare", "--mount", sys.executable, "-c", _IN_A_NAMESPACE, config.to_json()]
        async with await anyio.open_process(
            [*command, str(stage.source / "a")], stderr=None, env=env
        ) as host:
            assert host.stdin is not None
            assert host.stdout is not None
            output = BufferedByteReceiveStream(host.stdout)
            assert await output.receive_until(b"\n", 1000) == b"ready one ['fuse.milkweed']"
            write(stage.source / "a", "two")  # here it is the directory itself
            revision = await stage.workspace.barrier()
            assert await stage.followers.acknowledged(revision, ["host-0"], within_s=20.0) == []
            await host.stdin.send(b"\n")
            assert await output.receive_until(b"\n", 1000) == b"again two ['fuse.milkweed']"
            await host.stdin.send(b"\n")
            assert await host.wait() == 0
        assert read(stage.source / "a") == b"two"
