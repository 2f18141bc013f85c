"""Hosts' files mounted here: meshes of real processes, by the tools alone."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from milkweed.runtime.client.meshes import Meshes
from milkweed.runtime.errors import InvalidArgument, NotFound, Unavailable
from milkweed.runtime.mounts import in_the_way, probe
from milkweed.runtime.mounts.mountpoints import mounts_at
from tests.tools.test_program_tools import asker
from tests.tools.workspaces.stage import processes_with, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
async def mountable() -> None:
    if mends := in_the_way(await anyio.to_thread.run_sync(probe)):
        pytest.skip(f"no mounts here: {mends[0].problem}")


@pytest.fixture
async def ask(real: Meshes) -> Callable[..., Awaitable[Any]]:
    return asker(real)


@pytest.fixture
async def mesh(ask: Any, tmp_path: Path) -> str:
    """Two hosts that share the file system of this machine."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a").write_text("first")
    return str((await ask("allocate_mesh", name="t", hosts=2, workspace=str(workspace))).mesh)


def look(path: Path) -> str:
    """What is in a file, by a process of its own: nothing here waits for a mount."""
    done = subprocess.run(["timeout", "20", "cat", path], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def keeper(real: Meshes, mesh: str) -> int:
    return int(real._places.mesh(mesh).lock.read_text())


async def test_a_path_of_hosts_is_mounted_shown_and_taken_away(ask: Any, mesh: str, tmp_path: Path) -> None:
    place = tmp_path / "new" / "g"
    mount = await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))
    assert (mount.mountpoint, mount.hosts, mount.warnings) == (str(place), "0-1", [])
    assert mount.next == f"ls {place}/0"
    for host in (0, 1):
        assert await anyio.to_thread.run_sync(look, place / str(host) / "a") == "first"
    (line,) = (await ask("mesh_status", mesh=mesh)).mounts
    assert line == f"{mount.mount}: . of hosts 0-1 at {place}/HOST"
    again = await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))
    assert again.mount == mount.mount
    assert len(mounts_at(place)) == 1
    one = await ask("gather_mount", mesh=mesh, remote_path="a", mountpoint=str(tmp_path / "h"), hosts="1")
    assert os.listdir(tmp_path / "h") == ["1"]
    assert await anyio.to_thread.run_sync(look, tmp_path / "h" / "1") == "first"  # it is a file itself
    assert (await ask("unmount", mount=mount.mount)).in_use == []
    assert not (tmp_path / "new").exists()
    (line,) = (await ask("mesh_status", mesh=mesh)).mounts
    assert line.startswith(one.mount)
    with pytest.raises(NotFound, match="mount_not_found"):
        await ask("unmount", mount=mount.mount)
    await ask("release_mesh", mesh=mesh)
    assert mounts_at(tmp_path / "h") == []
    assert not (tmp_path / "h").exists()


async def test_hosts_with_networks_and_mounts_of_their_own_show_what_they_see(
    request: pytest.FixtureRequest, ask: Any, tmp_path: Path
) -> None:
    request.getfixturevalue("namespaces")
    (tmp_path / "work").mkdir()
    options = {"isolation": "namespaces"}
    mesh = (
        await ask("allocate_mesh", name="i", hosts=2, workspace=str(tmp_path / "work"), options=options)
    ).mesh
    run = await ask("run_on_mesh", mesh=mesh, script="echo $RANK > /var/tmp/gathered", wait_s=40)
    assert run.state == "succeeded", run.output_tail
    await ask("gather_mount", mesh=mesh, remote_path="/var/tmp", mountpoint=str(tmp_path / "g"))
    found = [await anyio.to_thread.run_sync(look, tmp_path / "g" / host / "gathered") for host in "01"]
    assert sorted(found) == ["0\n", "1\n"]


async def test_where_it_may_not_be_it_is_refused_and_nothing_is_mounted(
    ask: Any, mesh: str, tmp_path: Path
) -> None:
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "x").write_text("")
    file.write_text("")
    await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(tmp_path / "g"))

    def mounted() -> list[str]:
        return [line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line]

    before = mounted()
    for place, why in (
        (full, "is not empty: it has x"),
        (file, "cannot be used: Not a directory"),
        (file / "below", "cannot be made: .* is no directory"),
        (tmp_path / "g", "is in another mount of Milkweed's"),
        (tmp_path / "g" / "0", "is in another mount of Milkweed's"),
        ("/proc", "is a mount already, of type proc"),
        ("a\0b", "is no path"),
    ):
        with pytest.raises(InvalidArgument, match=f"invalid_path: .*{why}"):
            await ask("gather_mount", mesh=mesh, remote_path="a", mountpoint=str(place))
    with pytest.raises(NotFound, match=r"file_not_found: no host has nowhere"):
        await ask("gather_mount", mesh=mesh, remote_path="nowhere", mountpoint=str(tmp_path / "n"))
    assert not (tmp_path / "n").exists()
    assert mounted() == before
    assert len((await ask("mesh_status", mesh=mesh)).mounts) == 1


async def test_a_machine_that_cannot_mount_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, real: Meshes, tmp_path: Path
) -> None:
    from milkweed.runtime.keeper.gathers import Gathers
    from milkweed.runtime.mounts import Facts

    def facts(_: str | None = None) -> Facts:
        return Facts(False, "", "", False, "", False)

    monkeypatch.setattr("milkweed.runtime.mounts.probing.probe", facts)
    with pytest.raises(Unavailable, match=r"mount_unusable: .* cannot mount: there is no /dev/fuse"):
        await Gathers._checked(None, str(tmp_path / "g"))  # type: ignore[arg-type]


async def test_a_mount_in_the_workspace_is_nothing_that_hosts_are_shown(ask: Any, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a").write_text("first")
    mesh = (
        await ask("allocate_mesh", name="m", hosts=2, workspace=str(workspace), workspace_mode="mount")
    ).mesh
    await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(workspace / "g"))
    assert await anyio.to_thread.run_sync(look, workspace / "g" / "0" / "a") == "first"
    (workspace / "a").write_text("second")
    script = "cat a; ls g 2>&1 || true"
    run = await ask("run_on_mesh", mesh=mesh, script=script, wait_s=40)
    assert run.state == "succeeded", run.output_tail
    assert "second" in run.output_tail
    assert "\n0" not in run.output_tail
    await until(lambda: look(workspace / "g" / "1" / "a") == "second")


async def test_what_hosts_wrote_over_the_workspace_is_shown_and_fetched(ask: Any, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a").write_text("mine\n")
    mesh = (
        await ask("allocate_mesh", name="o", hosts=2, workspace=str(workspace), workspace_mode="mount")
    ).mesh
    script = "mkdir out; head -c 3000000 /dev/urandom > out/w; echo $RANK >> a; md5sum < out/w"
    run = await ask("run_on_mesh", mesh=mesh, script=script, wait_s=40)
    assert run.state == "succeeded", run.output_tail
    await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(tmp_path / "g"))
    await ask("fetch_files", mesh=mesh, path="out/w", destination=str(tmp_path / "kept"))
    for host in "01":
        assert await anyio.to_thread.run_sync(look, tmp_path / "g" / host / "a") == f"mine\n{host}\n"
        shown = await anyio.run_process(["md5sum", tmp_path / "g" / host / "out" / "w"])
        digest = hashlib.md5((tmp_path / "kept" / host / "w").read_bytes()).hexdigest()
        assert shown.stdout.decode().split()[0] == digest
        assert digest in run.output_tail
    assert (workspace / "a").read_text() == "mine\n"


async def test_a_keeper_that_starts_again_mounts_it_again(
    real: Meshes, ask: Any, mesh: str, tmp_path: Path
) -> None:
    place = tmp_path / "g"
    mount = await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))
    os.kill(keeper(real, mesh), signal.SIGKILL)
    await until(lambda: not mounts_at(place))  # with the keeper goes what it had mounted
    await (await real.get(mesh)).wait_ready(20)  # which starts another keeper
    await until(lambda: look(place / "1" / "a") == "first")
    again = await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))
    assert again.mount == mount.mount
    assert len(mounts_at(place)) == 1
    await ask("unmount", mount=mount.mount)
    assert not place.exists()  # it was made by the first keeper


async def test_a_killed_process_and_its_keeper_leave_nothing_that_hangs(
    real: Meshes, ask: Any, mesh: str, tmp_path: Path
) -> None:
    place = tmp_path / "g"
    mount = (await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))).mount
    (process,) = processes_with("milkweed.runtime.gather.process", mount)
    os.kill(process, signal.SIGKILL)
    await until(lambda: look(place / "0" / "a") == "first")
    (process,) = processes_with("milkweed.runtime.gather.process", mount)
    pid = keeper(real, mesh)
    os.kill(pid, signal.SIGSTOP)  # so that it cannot mount it again
    try:
        os.kill(process, signal.SIGKILL)
        await until(lambda: "not connected" in look(place / "0" / "a"))
    finally:
        os.kill(pid, signal.SIGKILL)
    await (await real.get(mesh)).wait_ready(20)  # which starts another keeper
    await ask("release_mesh", mesh=mesh)
    assert mounts_at(place) == []
    assert not place.exists()


async def test_a_stopped_host_and_a_lost_one_fail_for_their_part_alone(
    ask: Any, real: Meshes, mesh: str, tmp_path: Path
) -> None:
    place = tmp_path / "g"
    await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))
    agent = (await (await real.get(mesh)).view()).hosts[1].agent_pid
    assert agent is not None
    assert await anyio.to_thread.run_sync(look, place / "1" / "a") == "first"
    os.kill(agent, signal.SIGSTOP)
    await until(lambda: "Input/output error" in look(place / "1" / "a"))
    assert await anyio.to_thread.run_sync(look, place / "0" / "a") == "first"
    await until(lambda: "Input/output error" in look(place / "1" / "a"), 5)
    os.kill(agent, signal.SIGCONT)
    await until(lambda: look(place / "1" / "a") == "first")
    os.kill(agent, signal.SIGKILL)
    await until(lambda: "Input/output error" in look(place / "1" / "a"))
    assert await anyio.to_thread.run_sync(look, place / "0" / "a") == "first"
    with anyio.fail_after(20):
        while "host 1 does not have it" not in (await ask("mesh_status", mesh=mesh)).mounts[0]:
            await anyio.sleep(0.1)


async def test_a_dead_mount_that_a_crash_left_is_cleared_away(
    ask: Any, real: Meshes, mesh: str, tmp_path: Path
) -> None:
    place = tmp_path / "g"
    mount = (await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))).mount
    pid = keeper(real, mesh)
    os.kill(pid, signal.SIGSTOP)
    for process in processes_with("milkweed.runtime.gather.process", mount):
        os.kill(process, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    real._index.end_mount(mount)  # as if that mesh were of another state directory
    await (await real.get(mesh)).wait_ready(20)
    await until(lambda: "not connected" in look(place / "0" / "a"))
    await ask("gather_mount", mesh=mesh, remote_path="a", mountpoint=str(place))
    assert len(mounts_at(place)) == 1
    assert await anyio.to_thread.run_sync(look, place / "0") == "first"


async def test_who_sits_in_it_at_the_release_is_named(ask: Any, mesh: str, tmp_path: Path) -> None:
    place = tmp_path / "g"
    await ask("gather_mount", mesh=mesh, remote_path=".", mountpoint=str(place))
    sleeper = await anyio.open_process(
        ["sh", "-c", 'cd "$0" && echo there && exec sleep 60', str(place / "0")], stdout=subprocess.PIPE
    )
    assert sleeper.stdout is not None
    await sleeper.stdout.receive()
    released = await ask("release_mesh", mesh=mesh)
    assert released.unmounted_in_use == [f"process {sleeper.pid} (sleep)"]
    assert mounts_at(place) == []
    sleeper.kill()
    await sleeper.wait()
