"""Directories besides the workspace on the hosts: meshes of real processes, by the tools alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from milkweed.runtime.client.meshes import Meshes
from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError, NotFound
from milkweed.runtime.mounts import in_the_way, probe
from milkweed.runtime.services.shown_trees import PATIENCE_VARIABLE
from tests.fakes import FakeMeshes
from tests.tools.test_program_tools import asker
from tests.tools.workspaces.stage import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

READ = "import pathlib, sys; print('<' + pathlib.Path(sys.argv[1]).read_text() + '>')"


@pytest.fixture
async def mountable() -> None:
    if mends := in_the_way(await anyio.to_thread.run_sync(probe)):
        pytest.skip(f"no mounts here: {mends[0].problem}")


@pytest.fixture
async def isolated(request: pytest.FixtureRequest, mountable: None, tmp_path: Path) -> dict[str, Any]:
    """What allocates two hosts with mounts of their own, and an empty workspace."""
    request.getfixturevalue("namespaces")
    return mesh_of(tmp_path / "work", options={"isolation": "namespaces"})


def mesh_of(workspace: Path, **more: Any) -> dict[str, Any]:
    workspace.mkdir(exist_ok=True)
    return {"name": "t", "hosts": 2, "workspace": str(workspace), **more}


def filled(directory: Path) -> Path:
    directory.mkdir()
    (directory / "a").write_text("first")
    return directory


async def test_a_directory_is_mounted_where_it_was_asked_for_and_runs_see_every_edit(
    real: Meshes, isolated: dict[str, Any], tmp_path: Path
) -> None:
    ask, data, there = asker(real), filled(tmp_path / "data"), tmp_path / "there"
    mesh = (await ask("allocate_mesh", **isolated)).mesh
    mount = await ask("mount_directory", mesh=mesh, source=str(data), path=str(there))
    assert (mount.mode, mount.path, mount.warnings) == ("mount", str(there), [])
    assert mount.entries == 1
    for word in ("second", "third"):
        (data / "a").write_text(word)
        run = await ask("run_on_mesh", mesh=mesh, command=["python", "-c", READ, str(there / "a")], wait_s=40)
        assert f"<{word}>" in run.output_tail, run.output_tail
        assert run.state == "succeeded"
    (line,) = (await ask("mesh_status", mesh=mesh)).mounts
    assert line.startswith(f"{mount.mount}: {data} at {there}, mount, revision ")
    assert line in (await ask("mesh_status", mesh=mesh)).summary()
    again = await ask("mount_directory", mesh=mesh, source=str(data), path=str(there))
    assert again.mount == mount.mount
    assert (await ask("unmount", mount=mount.mount)).in_use == []
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "-c", READ, str(there / "a")], wait_s=40)
    assert run.first_failure.exception.startswith("FileNotFoundError")
    assert not (await ask("mesh_status", mesh=mesh)).mounts
    assert not there.exists()  # it was made for the mount
    with pytest.raises(NotFound, match="mount_not_found"):
        await ask("unmount", mount=mount.mount)


async def test_runs_that_lose_a_mount_to_an_unmount_are_told_so(
    real: Meshes, isolated: dict[str, Any], tmp_path: Path
) -> None:
    ask, data, there = asker(real), filled(tmp_path / "data"), tmp_path / "there"
    mesh = (await ask("allocate_mesh", **isolated)).mesh
    mount = (await ask("mount_directory", mesh=mesh, source=str(data), path=str(there))).mount
    before = await ask("run_on_mesh", mesh=mesh, command=["true"])
    reads = "import sys\nprint('up', flush=True)\nwhile True: open(sys.argv[1]).read()"
    run = (
        await ask("run_on_mesh", mesh=mesh, command=["python", "-c", reads, str(there / "a")], wait_s=0)
    ).run
    await ask("wait_for_run", run=run, pattern="up")
    await ask("unmount", mount=mount)
    ended = await ask("wait_for_run", run=run)
    assert ended.state == "failed"
    assert ended.warnings == [f"{mount} ({there}) was unmounted while it ran"]
    assert not (await ask("wait_for_run", run=before.run)).warnings


async def test_what_hosts_see_themselves_is_shared(real: Meshes, tmp_path: Path) -> None:
    ask, data = asker(real), filled(tmp_path / "data")
    mesh = (await ask("allocate_mesh", **mesh_of(tmp_path / "work"))).mesh
    mount = await ask("mount_directory", mesh=mesh, source=str(data))
    assert (mount.mode, mount.path) == ("shared", str(data))
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "-c", READ, str(data / "a")], wait_s=40)
    assert "<first>" in run.output_tail
    assert sorted(os.listdir(data)) == ["a"]  # no token is left
    with pytest.raises(InvalidArgument, match="one file system between them"):
        await ask("mount_directory", mesh=mesh, source=str(data), path="/elsewhere")


@pytest.mark.parametrize("mode", ["mount", "copy"])
async def test_on_hosts_of_one_file_system_it_has_a_place_for_each(
    real: Meshes, tmp_path: Path, mode: str
) -> None:
    if mode == "mount" and (mends := in_the_way(await anyio.to_thread.run_sync(probe))):
        pytest.skip(f"no mounts here: {mends[0].problem}")
    ask, data = asker(real), filled(tmp_path / "data")
    mesh = (await ask("allocate_mesh", **mesh_of(tmp_path / "work"))).mesh
    mount = await ask("mount_directory", mesh=mesh, source=str(data), mode=mode)
    assert mount.mode == mode
    (data / "a").write_text("second")
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "-c", READ, "a"], cwd=str(data), wait_s=40)
    assert "<second>" in run.output_tail, run.output_tail
    hosts = (await (await real.get(mesh)).view()).mounts[0].tree.hosts
    assert len({host.path for host in hosts}) == 2
    assert mount.path == f"{hosts[0].path} on host 0, and so on"


async def test_what_was_written_to_temporary_directories_of_a_host_goes_with_the_mesh(
    real: Meshes, isolated: dict[str, Any]
) -> None:
    ask = asker(real)
    mesh = (await ask("allocate_mesh", **isolated)).mesh
    script = "for d in $TMPDIR /var/tmp; do mkdir $d/out && echo x > $d/out/file; done"
    assert (await ask("run_on_mesh", mesh=mesh, script=script, wait_s=40)).state == "succeeded"
    hosts = real._places.state / "meshes" / mesh / "hosts"
    written = list(hosts.rglob("out/file"))
    assert len(written) == 4
    await ask("release_mesh", mesh=mesh)
    # The keeper removes them as its last deed, after it has answered.
    await until(lambda: not any(file.parent.exists() for file in written))


async def test_it_outlives_its_keeper_and_goes_with_the_mesh(
    real: Meshes, isolated: dict[str, Any], tmp_path: Path
) -> None:
    ask, data, there = asker(real), filled(tmp_path / "data"), tmp_path / "there"
    mesh = (await ask("allocate_mesh", **isolated)).mesh
    mount = await ask("mount_directory", mesh=mesh, source=str(data), path=str(there))
    os.kill(int(real._places.mesh(mesh).lock.read_text()), signal.SIGKILL)
    await (await real.get(mesh)).wait_ready(20)  # which starts another keeper
    (data / "a").write_text("after")
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "-c", READ, str(there / "a")], wait_s=40)
    assert "<after>" in run.output_tail, run.text
    assert (await ask("mesh_status", mesh=mesh)).mounts[0].startswith(mount.mount)
    await ask("release_mesh", mesh=mesh)
    with pytest.raises(Conflict, match="mesh_released"):
        await ask("unmount", mount=mount.mount)


async def test_what_was_unmounted_while_a_host_was_silent_goes_when_it_answers(
    real: Meshes, isolated: dict[str, Any], tmp_path: Path
) -> None:
    ask, data, there = asker(real), filled(tmp_path / "data"), tmp_path / "there"
    mesh = (await ask("allocate_mesh", **isolated)).mesh
    mount = await ask("mount_directory", mesh=mesh, source=str(data), path=str(there))
    found = await real.get(mesh)
    agent = (await found.view()).hosts[1].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)
    try:
        with anyio.fail_after(60):
            while (await found.view()).hosts[1].state == "ready":
                await anyio.sleep(0.05)
        await ask("unmount", mount=mount.mount)
    finally:
        os.kill(agent, signal.SIGCONT)
    with anyio.fail_after(30):
        while (await found.view()).hosts[1].state != "ready":
            await anyio.sleep(0.05)
        while str(there) in Path(f"/proc/{agent}/mountinfo").read_text():
            await anyio.sleep(0.05)


@contextmanager
def sitting_in(directory: Path) -> Iterator[int]:
    """A process of nobody's mesh that has its working directory there."""
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.usefixtures("mountable")
async def test_who_sits_in_a_mount_is_told_when_it_goes(real: Meshes, tmp_path: Path) -> None:
    ask, data = asker(real), filled(tmp_path / "data")
    mesh = (await ask("allocate_mesh", **mesh_of(tmp_path / "work", workspace_mode="mount"))).mesh
    mount = (await ask("mount_directory", mesh=mesh, source=str(data), mode="mount")).mount
    view = await (await real.get(mesh)).view()
    with sitting_in(Path(view.mounts[0].tree.hosts[0].path)) as pid:
        (user,) = (await ask("unmount", mount=mount)).in_use
        assert user.startswith(f"host 0: process {pid} (")
    with sitting_in(Path(view.workspace.hosts[1].path)) as pid:
        (user,) = (await ask("release_mesh", mesh=mesh)).unmounted_in_use
        assert user.startswith(f"host 1: process {pid} (")
    assert mesh not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.usefixtures("mountable")
async def test_a_run_that_uses_a_mount_is_named_when_it_goes_and_what_waits_for_runs_is_not(
    real: Meshes, tmp_path: Path
) -> None:
    ask, data, work = asker(real), filled(tmp_path / "data"), tmp_path / "work"
    mesh = (await ask("allocate_mesh", **mesh_of(work, workspace_mode="mount"))).mesh
    (work / "warm.py").write_text("import json, torch\n")
    await ask("run_on_mesh", mesh=mesh, command=["python", "warm.py"], wait_s=40)  # a starter comes of it
    mount = (await ask("mount_directory", mesh=mesh, source=str(data), mode="mount")).mount
    (work / "main.py").write_text(
        "import sys, torch\nprint('up', flush=True)\nsys.stdin.read(1)\nimport time\ntime.sleep(1000)\n"
    )
    run = (
        await ask(
            "run_on_mesh",
            mesh=mesh,
            command=["python", str(work / "main.py")],
            cwd=str(data),
            ranks="0",
            wait_s=0,
        )
    ).run
    await ask("wait_for_run", run=run, pattern="up")
    (user,) = (await ask("unmount", mount=mount)).in_use
    assert user.startswith("host 0: process ")
    assert user.endswith(f", of {run})")
    await ask("cancel_run", run=run)
    assert (await ask("release_mesh", mesh=mesh)).unmounted_in_use == []


@pytest.mark.usefixtures("mountable")
async def test_a_read_that_finds_nobody_is_told_in_the_outcome_of_the_run(
    real: Meshes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE_VARIABLE, "0.2")
    ask, work = asker(real), tmp_path / "work"
    mesh = (await ask("allocate_mesh", **mesh_of(work, workspace_mode="mount"))).mesh
    (work / "large").write_bytes(bytes(3_000_000))
    (work / "main.py").write_text(
        "import os, time\nprint('up', flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
        "open('large', 'rb').read()\n"
    )
    run = (await ask("run_on_mesh", mesh=mesh, command=["python", "main.py"], ranks="0", wait_s=0)).run
    await ask("wait_for_run", run=run, pattern="up")
    output = real._places.mesh(mesh).host(0) / "runs" / run
    lock = real._places.mesh(mesh).lock
    os.kill(int(lock.read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    with anyio.fail_after(30):
        while b"Errno 5" not in b"".join(path.read_bytes() for path in output.rglob("*") if path.is_file()):
            await anyio.sleep(0.01)
            with suppress(ValueError, ProcessLookupError):  # the next one must not come in time either
                os.kill(int(lock.read_text()), signal.SIGKILL)
    outcome = await ask("wait_for_run", run=run, timeout_s=30)
    assert outcome.state == "failed"
    (warning,) = outcome.warnings
    assert warning.startswith("host 0: large could not be read (EIO): the client was not there")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"source": "/no/such"}, "source '/no/such' does not exist"),
        ({"source": "/etc/hostname"}, "is a file"),
        ({"source": "/etc", "path": "relative"}, "is not absolute"),
        ({"source": "/etc", "mode": "rsync"}, "mode"),
    ],
)
async def test_a_wrong_argument_mounts_nothing(
    meshes: FakeMeshes, tmp_path: Path, wrong: dict[str, Any], why: str
) -> None:
    ask = asker(meshes)
    await ask("allocate_mesh", name="t", workspace=str(tmp_path))
    with pytest.raises(InvalidArgument, match=why):
        await ask("mount_directory", mesh="t", **wrong)


async def test_what_would_hide_what_hosts_need_is_refused(
    real: Meshes, isolated: dict[str, Any], tmp_path: Path
) -> None:
    ask, data = asker(real), filled(tmp_path / "data")
    mesh = (await ask("allocate_mesh", **isolated)).mesh
    for path, why in (
        ("/", "would hide /proc"),
        ("/usr", "would hide /usr"),
        (str(real._places.state), "would hide "),
        (sys.prefix, "would hide "),
        (str(tmp_path), "the workspace is at "),
        (str(tmp_path / "work" / "data"), "the workspace is at "),
    ):
        with pytest.raises(InvalidArgument, match=why):
            await ask("mount_directory", mesh=mesh, source=str(data), path=path)
    there = str(tmp_path / "there")
    mount = (await ask("mount_directory", mesh=mesh, source=str(data), path=there)).mount
    with pytest.raises(InvalidArgument, match=f"unmount\\(mount='{mount}'\\) first"):
        await ask("mount_directory", mesh=mesh, source=str(data), path=there, mode="copy")
    await ask("unmount", mount=mount)
    for name, leads, why in (("system", "/usr", "would hide /usr"), ("work", "work", "the workspace is at ")):
        (tmp_path / f"to {name}").symlink_to(leads)
        with pytest.raises(InvalidArgument, match=why):
            await ask("mount_directory", mesh=mesh, source=str(data), path=str(tmp_path / f"to {name}"))
    with pytest.raises(InvalidArgument, match="its own path"):
        await ask("mount_directory", mesh=mesh, source=str(data), path="/elsewhere", mode="shared")
    assert not (await ask("mesh_status", mesh=mesh)).mounts


@pytest.mark.usefixtures("mountable")
async def test_what_is_unmounted_while_it_is_being_mounted_is_gone(real: Meshes, tmp_path: Path) -> None:
    ask, data = asker(real), filled(tmp_path / "data")
    mesh = (await ask("allocate_mesh", **mesh_of(tmp_path / "work"))).mesh
    found = await real.get(mesh)
    agents = [host.agent_pid for host in (await found.view()).hosts]

    def mounting() -> list[bytes]:
        """Mount processes of the hosts, from their start on."""
        lines = []
        for entry in os.scandir("/proc"):
            with suppress(OSError):
                status = Path(entry.path, "stat").read_bytes()
                if int(status.rpartition(b")")[2].split()[1]) in agents:
                    lines.append(Path(entry.path, "cmdline").read_bytes())
        return [line for line in lines if b"mounts.host" in line]

    for wait in (0, 1, 2, 2, 2):  # before the hosts are asked, and when one, or both, have begun
        async with anyio.create_task_group() as tasks:

            async def mount() -> None:
                with suppress(MilkweedError):
                    await ask("mount_directory", mesh=mesh, source=str(data), mode="mount")

            tasks.start_soon(mount)
            while not (views := (await found.view()).mounts):
                await anyio.sleep(0.002)
            while len(await anyio.to_thread.run_sync(mounting)) < wait:
                await anyio.sleep(0.002)
            await ask("unmount", mount=views[0].spec.mount)
        assert f"/{mesh}/" not in Path("/proc/self/mountinfo").read_text()
        assert not await anyio.to_thread.run_sync(mounting)
