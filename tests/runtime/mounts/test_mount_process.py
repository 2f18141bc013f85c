"""Mount processes that are killed, hang, or leave something behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.children import open_children
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.mounts import HostConfig, MountProcess, open_mount, open_workspace
from milkweed.runtime.mounts.mount_process import judge
from milkweed.runtime.mounts.mountpoints import clear, find_mounts, holders, is_answering, mounts_at
from milkweed.runtime.supervision import Restart
from milkweed.runtime.tasks import background_tasks

from .stage import aside, read, replace_as_editors_do, serving, staged, write

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fuse")]


async def test_a_killed_mount_process_comes_back_and_shows_the_present(directory: Path) -> None:
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "before")) as stage:
        (host,) = stage.hosts
        mount = stage.mount()
        assert await aside(lambda: read(mount / "a")) == b"before"
        for life in (1, 2):
            os.kill(host.state.pid, signal.SIGKILL)
            while host.state.restarts < life or host.state.phase != "ready":
                await anyio.sleep(0.005)
            write(stage.source / "a", f"life {life}")
            await stage.barrier()
            assert await aside(lambda: read(mount / "a")) == f"life {life}".encode()
        assert "SIGKILL" in host.state.problem
        assert len(mounts_at(mount)) == 1


async def test_that_a_mount_was_lost_is_told_each_time_and_not_when_it_never_was(directory: Path) -> None:
    source = directory / "src"
    source.mkdir()
    config = HostConfig(
        mountpoint=str(directory / "m0"),
        source=str(directory / "s"),
        follower="h",
        cache=str(directory / "c"),
    )
    told: list[str] = []
    with anyio.fail_after(60):
        async with open_children(subreaper=False) as children, background_tasks() as tasks:
            mount = MountProcess(config, children, on_lost=told.append)
            tasks.start_soon(mount.run)
            async with open_workspace(source) as workspace, serving(workspace, directory / "s"):
                for life in (1, 2):
                    await mount.ready()
                    os.kill(mount.state.pid, signal.SIGKILL)
                    while len(told) < life or mount.state.phase != "ready":
                        await anyio.sleep(0.005)
                await mount.stop()
                assert told == ["SIGKILL", "SIGKILL"]

                blocked = HostConfig(
                    mountpoint=str(source / "no directory"),
                    source=str(directory / "s"),
                    follower="h",
                    cache=str(directory / "c"),
                )
                write(source / "no directory", "x")
                never = MountProcess(
                    blocked, children, policy=Restart(max_restarts=1, window_s=60), on_lost=told.append
                )
                tasks.start_soon(never.run)
                while never.state.phase != "given_up":
                    await anyio.sleep(0.005)
                assert len(told) == 2


async def test_what_dead_processes_left_is_cleaned_where_a_symlink_leads(directory: Path) -> None:
    (directory / "real").mkdir()
    (directory / "m0").symlink_to("real")
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "x")) as stage:
        (host,) = stage.hosts
        for life in (1, 2):
            os.kill(host.state.pid, signal.SIGKILL)
            while host.state.restarts < life or host.state.phase != "ready":
                await anyio.sleep(0.005)
        assert await aside(lambda: read(stage.mount() / "a")) == b"x"
        assert len(mounts_at(directory / "real")) == 1
        (directory / "m0").unlink()  # what is unmounted is what was mounted
        (directory / "m0").symlink_to("/proc")
    assert mounts_at(directory / "real") == []


async def test_what_was_fetched_before_a_kill_is_not_fetched_again(directory: Path) -> None:
    data = os.urandom(9_000_000)
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", data)) as stage:
        (host,) = stage.hosts
        assert await aside(lambda: read(stage.mount() / "a")) == data
        await aside(lambda: _until_quiet(directory / "c0"))
        sent = stage.workspace.bytes_read
        os.kill(host.state.pid, signal.SIGKILL)
        while host.state.restarts < 1 or host.state.phase != "ready":
            await anyio.sleep(0.005)
        assert await aside(lambda: read(stage.mount() / "a")) == data
        assert stage.workspace.bytes_read == sent


def _until_quiet(cache: Path) -> None:
    """Until no file of the cache is a part of one."""
    while list(cache.rglob("*.part")):
        pass


async def test_a_read_under_way_when_its_process_is_killed_is_an_error_and_no_hang(directory: Path) -> None:
    async with staged(
        directory, hosts=1, fill=lambda source: write(source / "a", b"x" * 50_000_000)
    ) as stage:
        (host,) = stage.hosts
        descriptor = await aside(lambda: os.open(stage.mount() / "a", os.O_RDONLY))
        os.kill(host.state.pid, signal.SIGKILL)
        try:
            with pytest.raises(OSError, match=r"connect|abort"):
                await aside(lambda: [os.pread(descriptor, 1 << 20, at << 20) for at in range(47)])
        finally:
            with suppress(OSError):  # it tells so once more
                os.close(descriptor)


async def test_a_mount_that_a_crash_left_is_cleaned_at_the_start(directory: Path) -> None:
    async with staged(directory, fill=lambda source: write(source / "a", "there")) as stage:
        config = stage.config()
        stage.mount().mkdir()
        await _crashed(config)
        assert len(mounts_at(stage.mount())) == 1
        assert not await is_answering(stage.mount())
        async with open_mount(config):
            assert await aside(lambda: read(stage.mount() / "a")) == b"there"
            assert len(mounts_at(stage.mount())) == 1
            assert await is_answering(stage.mount())
        assert mounts_at(stage.mount()) == []


async def _crashed(config: HostConfig) -> None:
    """A mount process with nobody above it, killed."""
    before = len(mounts_at(Path(config.mountpoint)))
    with subprocess.Popen(
        [sys.executable, "-m", "milkweed.runtime.mounts.host", config.to_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        await aside(process.stdout.readline)
        process.kill()
    assert len(mounts_at(Path(config.mountpoint))) == before + 1


async def test_a_stopped_mount_process_can_be_cleared_away(directory: Path) -> None:
    """Readers that wait for it are freed, though it never answers."""
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "x")) as stage:
        (host,) = stage.hosts
        os.kill(host.state.pid, signal.SIGSTOP)
        reader = await anyio.open_process(["cat", stage.mount() / "a"], stderr=None)
        while not _waits_in_the_kernel(reader.pid):
            await anyio.sleep(0.005)
        assert not await is_answering(stage.mount())
        await aside(lambda: clear(stage.mount()))
        assert await reader.wait() != 0
        os.kill(host.state.pid, signal.SIGKILL)


def _waits_in_the_kernel(pid: int) -> bool:
    return (
        "fuse" in Path(f"/proc/{pid}/wchan").read_text()
        or "request_wait" in Path(f"/proc/{pid}/wchan").read_text()
    )


async def test_a_release_unmounts_below_a_process_that_sits_there_and_says_who(directory: Path) -> None:
    async with staged(directory, fill=lambda source: write(source / "a", "x")) as stage:
        async with open_children(subreaper=False) as children, background_tasks() as tasks:
            mount = MountProcess(stage.config(), children)
            tasks.start_soon(mount.run)
            await mount.ready()
            sitting = await anyio.open_process(["sleep", "1000"], cwd=stage.mount(), stderr=None)
            try:
                assert [one.pid for one in await aside(lambda: holders(stage.mount()))] == [sitting.pid]
                held_by = await mount.stop()
            finally:
                sitting.kill()
                await sitting.wait()
        assert [(one.pid, one.command, one.what) for one in held_by] == [(sitting.pid, "sleep", "cwd")]
        assert mounts_at(stage.mount()) == []
        assert mount.state.phase == "ended"


_APART = """
from milkweed.runtime import _native
try:
    _native.unshare(_native.CLONE_NEWNS)
except OSError:
    print("refused", flush=True)
else:
    print("apart", flush=True)
    input()
"""


async def test_who_sits_at_that_path_of_another_mount_namespace_is_not_in_it(directory: Path) -> None:
    command = [sys.executable, "-c", _APART]
    async with await anyio.open_process(command, cwd=directory, stderr=None) as apart:
        assert apart.stdout is not None
        if b"apart" not in await apart.stdout.receive():
            pytest.skip("may not unshare mounts")
        async with await anyio.open_process(["sleep", "1000"], cwd=directory, stderr=None) as sitting:
            try:
                found = [one.pid for one in await aside(lambda: holders(directory))]
                assert found == [sitting.pid]
            finally:
                sitting.kill()
                apart.kill()


async def test_an_unmount_by_somebody_else_is_undone(directory: Path) -> None:
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "x")) as stage:
        (host,) = stage.hosts
        await aside(lambda: clear(stage.mount()))
        while host.state.restarts < 1 or host.state.phase != "ready":
            await anyio.sleep(0.005)
        assert await aside(lambda: read(stage.mount() / "a")) == b"x"


async def test_a_mount_process_ends_with_whoever_started_it(directory: Path) -> None:
    async with staged(directory, fill=lambda source: write(source / "a", "x")) as stage:
        config = stage.config()
        stage.mount().mkdir()
        script = (
            "import subprocess, sys; "
            f"command = [sys.executable, '-m', 'milkweed.runtime.mounts.host', {config.to_json()!r}]; "
            "p = subprocess.Popen(command,"
            " stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True); "
            "p.stdout.readline(); print(p.pid, flush=True); sys.stdin.read()"
        )
        owner = await anyio.open_process([sys.executable, "-c", script], stderr=None)
        assert owner.stdout is not None
        pid = int(await owner.stdout.receive())
        assert mounts_at(stage.mount())
        owner.kill()
        await owner.wait()
        while mounts_at(stage.mount()) or Path(f"/proc/{pid}").exists():
            await anyio.sleep(0.005)


async def test_a_mount_that_cannot_be_is_given_up_with_the_reason(directory: Path) -> None:
    async with staged(directory) as stage:
        write(directory / "file", "in the way")
        config = stage.config(mountpoint=str(directory / "file" / "below"))
        async with open_children(subreaper=False) as children, background_tasks() as tasks:
            mount = MountProcess(config, children, policy=Restart(max_restarts=1, backoff_s=0.01))
            tasks.start_soon(mount.run)
            with pytest.raises(Unavailable, match="Not a directory") as caught:
                await mount.ready()
        assert caught.value.code == "mount_unusable"


async def test_while_nobody_shows_it_the_directory_refuses_and_is_not_empty(directory: Path) -> None:
    async with staged(directory, fill=lambda source: write(source / "a", "x")) as stage:
        async with open_children(subreaper=False) as children, background_tasks() as tasks:
            mount = MountProcess(stage.config(), children, policy=Restart(max_restarts=0))
            tasks.start_soon(mount.run)
            await mount.ready()
            os.kill(mount.state.pid, signal.SIGKILL)
            while mount.state.phase != "given_up":
                await anyio.sleep(0.005)
            with pytest.raises(OSError, match="endpoint is not connected"):
                await aside(lambda: os.listdir(stage.mount()))
            assert "SIGKILL" in mount.state.problem
            await mount.stop()
        assert mounts_at(stage.mount()) == []
        assert not stage.mount().exists()  # it was made for this mount


async def test_a_mount_process_that_hangs_is_replaced(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_SILENT_S", 1.5), ("_HUNG_S", 2.5), ("_LOOK_S", 0.1)):
        monkeypatch.setattr(f"milkweed.runtime.mounts.mount_process.{name}", value)
    async with staged(directory, hosts=1, fill=lambda source: write(source / "a", "x")) as stage:
        (host,) = stage.hosts
        os.kill(host.state.pid, signal.SIGSTOP)
        reader = await anyio.open_process(["cat", stage.mount() / "a"], stderr=None)
        while host.state.restarts < 1 or host.state.phase != "ready":
            await anyio.sleep(0.005)
        assert await reader.wait() != 0
        assert await aside(lambda: read(stage.mount() / "a")) == b"x"


async def test_a_foreign_mount_is_not_unmounted(directory: Path) -> None:
    (directory / "m0").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "none", directory / "m0"], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(Unavailable, match="tmpfs"):
            clear(directory / "m0")
        assert mounts_at(directory / "m0")[0].type == "tmpfs"
    finally:
        subprocess.run(["umount", directory / "m0"], check=True)


async def test_reads_wait_for_a_source_that_comes_back(directory: Path) -> None:
    source = directory / "src"
    source.mkdir()
    write(source / "a", "first life")
    write(source / "b", "unfetched")
    config = HostConfig(
        mountpoint=str(directory / "m0"),
        source=str(directory / "s"),
        follower="h",
        cache=str(directory / "c"),
    )
    with anyio.fail_after(60):
        async with open_children(subreaper=False) as children, background_tasks() as tasks:
            mount = MountProcess(config, children)
            tasks.start_soon(mount.run)
            async with open_workspace(source) as workspace, serving(workspace, directory / "s"):
                await mount.ready()
                assert await aside(lambda: read(directory / "m0" / "a")) == b"first life"
            replace_as_editors_do(source / "a", "second life")
            got: list[bytes] = []
            async with anyio.create_task_group() as readers:

                async def read_b() -> None:
                    got.append(await aside(lambda: read(directory / "m0" / "b")))

                readers.start_soon(read_b)
                await anyio.sleep(0.1)
                assert got == []
                async with (
                    open_workspace(source) as workspace,
                    serving(workspace, directory / "s") as followers,
                ):
                    revision = await workspace.barrier()
                    assert await followers.acknowledged(revision, ["h"], within_s=20.0) == []
                    assert await aside(lambda: read(directory / "m0" / "a")) == b"second life"
                    while not got:
                        await anyio.sleep(0.005)
            assert got == [b"unfetched"]
            await mount.stop()


async def test_a_read_without_a_source_is_an_error_after_its_patience(directory: Path) -> None:
    source = directory / "src"
    source.mkdir()
    write(source / "a", "x")
    config = HostConfig(
        mountpoint=str(directory / "m0"),
        source=str(directory / "s"),
        follower="h",
        cache=str(directory / "c"),
        patience_s=0.2,
    )
    with anyio.fail_after(60):
        async with open_children(subreaper=False) as children, background_tasks() as tasks:
            told: list[str] = []
            mount = MountProcess(config, children, on_read_failed=told.append)
            tasks.start_soon(mount.run)
            async with open_workspace(source) as workspace, serving(workspace, directory / "s"):
                await mount.ready()
            with pytest.raises(OSError, match="Input/output"):
                await aside(lambda: read(directory / "m0" / "a"))
            while not told:
                await anyio.sleep(0.01)
            assert told[0].startswith("a could not be read (EIO): the client was not there")
            await mount.stop()


def test_a_process_that_says_nothing_is_silent_then_hung() -> None:
    assert [judge(0.0, now) for now in (1.0, 6.0, 20.0)] == ["ok", "silent", "hung"]


def test_mount_points_with_blanks_are_read_from_the_kernels_list() -> None:
    lines = [
        b"30 1 0:42 / /mnt/with\\040blank\\134 rw - fuse.milkweed milkweed rw",
        b"31 1 254:0 / / rw shared:1 - ext4 /dev/vda rw",
    ]
    assert find_mounts(lines) == [(b"/mnt/with blank\\", "fuse.milkweed", 42), (b"/", "ext4", 0)]


# Its own package lies in what it shows, and a warning with a traceback is logged while it serves.
_SHOWS_ITSELF = """
import sys, logging
sys.path.insert(0, sys.argv[2])
import shown_module
from milkweed.runtime.mounts import host

def complain():
    try:
        shown_module.fail()
    except ZeroDivisionError:
        logging.exception("as expected")
    try:
        import another_module
    except ImportError:
        logging.warning("not looked for")

from milkweed.runtime.mounts.filesystem import FileSystem
real = FileSystem.lookup
async def lookup(self, *args):
    complain()
    return await real(self, *args)
FileSystem.lookup = lookup
host.main([sys.argv[1]])
"""


async def test_a_mount_process_never_asks_its_own_mount(directory: Path) -> None:
    def fill(source: Path) -> None:
        write(source / "shown_module.py", "def fail():\n    1 / 0\n")
        write(source / "another_module.py", "")
        write(source / "a", "x")

    async with staged(directory, fill=fill) as stage:
        config = stage.config(mountpoint=str(stage.source))
        command = [
            "unshare",
            "--mount",
            sys.executable,
            "-c",
            _SHOWS_ITSELF,
            config.to_json(),
            str(stage.source),
        ]
        if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
            pytest.skip("mount namespaces cannot be made here")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=stage.source
        ) as host:
            assert host.stdout is not None
            assert host.stderr is not None
            try:
                await aside(host.stdout.readline)
                inside = ["nsenter", "--mount", "--target", str(host.pid), "cat", stage.source / "a"]
                with anyio.fail_after(20):
                    found = await anyio.run_process(inside)
                assert found.stdout == b"x"
            finally:
                # If it hangs in its own mount, SIGKILL alone has no effect.
                enter = ["nsenter", "--mount", "--target", str(host.pid)]
                subprocess.run([*enter, "umount", "-f", stage.source], check=False, capture_output=True)
                host.kill()
            words = await aside(host.stderr.read)
        assert b"as expected" in words
        assert b"not looked for" in words
