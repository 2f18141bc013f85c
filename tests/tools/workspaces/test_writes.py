"""What runs write over the workspace: each host's own, seen by the file tools, asked about, kept."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Conflict, InvalidArgument, NotFound
from milkweed.runtime.paths import Places
from milkweed.tools.registry import Call, Registry
from tests.tools.test_program_tools import asker

from .stage import Shown, arguments, shown, told, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WRITES = """
import os, pathlib, sys
rank = os.environ["RANK"]
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{name} of {rank}")
"""
READS = """
import os, pathlib, sys
rank = os.environ["RANK"]
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    print(name, path.read_text().replace(f" of {rank}", " of mine") if path.exists() else "is not there")
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory of the client with something in it."""
    directory = tmp_path / "ws"
    (directory / "pack").mkdir(parents=True)
    (directory / "pack" / "__init__.py").write_text("VALUE = 1\n")
    (directory / "notes").write_text("the client's")
    return directory


async def text_of(mesh: Shown, path: str, host: int) -> str:
    answer = await mesh.ask("read_remote_file", mesh=mesh.mesh, path=path, hosts=str(host))
    return str(answer.text).partition("\n")[2]


async def test_what_a_host_writes_is_its_own_and_is_read_from_here(
    real: Meshes, place: str, workspace: Path
) -> None:
    async with shown(real, place, workspace) as mesh:
        await mesh.python(WRITES, "new", "notes", "deep/er/new")
        assert await mesh.python(READS, "new", "notes", "deep/er/new") == (
            "new new of mine\nnotes notes of mine\ndeep/er/new deep/er/new of mine"
        )
        assert (
            await mesh.python("import os, pack; print(pack.VALUE, os.path.exists(pack.__cached__))")
            == "1 True"
        )
        for host in (0, 1):
            assert await text_of(mesh, "new", host) == f"new of {host}"
        assert sorted(path.name for path in workspace.iterdir()) == ["notes", "pack"]
        assert (workspace / "notes").read_text() == "the client's"
        status = await mesh.ask("mesh_status", mesh=mesh.mesh)
        assert [line.partition(":")[0] for line in status.written] == ["host 0", "host 1"]
        assert all("in the workspace" in line for line in status.written)


async def test_an_edit_of_what_a_host_wrote_wins_and_the_next_result_says_where_the_hosts_is(
    real: Meshes, place: str, workspace: Path
) -> None:
    async with shown(real, place, workspace) as mesh:
        await mesh.python(WRITES, "notes", "log")
        (workspace / "notes").write_text("edited")
        run = await mesh.run("python", "-c", READS, "notes", "notes.host-copy", "log")
        assert run.state == "succeeded", told(run)
        assert run.host_copies == [
            "notes was edited here and written on hosts 0-1: yours is there, the host's is notes.host-copy"
        ]
        assert run.output_tail.endswith("notes edited\nnotes.host-copy notes of mine\nlog log of mine"), (
            run.output_tail
        )
        again = await mesh.run("python", "-c", READS, "notes")
        assert again.host_copies == []


async def test_changes_of_hosts_are_discarded_where_that_is_asked_for(
    real: Meshes, place: str, workspace: Path
) -> None:
    async with shown(real, place, workspace) as mesh:
        await mesh.python(WRITES, "notes", "log")
        run = await mesh.run("python", "-c", READS, "notes", "log", options={"discard_host_changes": True})
        assert run.state == "succeeded", told(run)
        assert run.output_tail.endswith("notes the client's\nlog is not there")
        assert [one for one in run.warnings if one.startswith("discarded 4 files")], run.warnings


@pytest.mark.parametrize("place", ["mount", "isolated"], indirect=True)
async def test_changes_are_discarded_when_a_mount_that_was_killed_is_there_again(
    real: Meshes, place: str, workspace: Path
) -> None:
    async with shown(real, place, workspace) as mesh:
        await mesh.python(WRITES, "log")
        for process in mesh.mount_processes():
            os.kill(process, signal.SIGKILL)
        run = await mesh.run("python", "-c", READS, "log", options={"discard_host_changes": True})
        assert run.state == "succeeded", told(run)
        assert run.output_tail.endswith("log is not there")


async def test_nothing_is_discarded_below_a_run(real: Meshes, place: str, workspace: Path) -> None:
    async with shown(real, place, workspace) as mesh:
        waiting = await mesh.run("python", "-c", "import time; time.sleep(99)", wait_s=0)
        with pytest.raises(Conflict, match=f"workspace_in_use: {waiting.run} runs on host 0-1"):
            await mesh.run("true", options={"discard_host_changes": True})
        await mesh.ask("cancel_run", run=waiting.run)


def replicas_of(real: Meshes) -> Any:
    registry = Registry.load("train")

    async def report(done: float, total: float | None, message: str) -> None: ...

    async def ask(tool: str, /, **arguments: Any) -> Any:
        return await registry.find(tool)(Call(real, report, "tester"), arguments)

    return ask


async def test_nothing_is_discarded_below_replicas_that_are_to_start_again(
    real: Meshes, place: str, workspace: Path
) -> None:
    ask = replicas_of(real)
    slowly = {"backoff_s": 60, "backoff_max_s": 60}
    async with shown(real, place, workspace) as mesh:
        job = await ask("start_replicas", mesh=mesh.mesh, command="false", replicas=2, options=slowly)
        with anyio.fail_after(30):
            while "restarting" not in (await ask("replica_status", job=job.job)).replicas:
                await anyio.sleep(0.1)
        with pytest.raises(Conflict, match=f"workspace_in_use: {job.job} has replicas on host 0-1"):
            await mesh.run("true", options={"discard_host_changes": True})


async def test_replicas_tell_of_what_was_put_aside_as_runs_do(
    real: Meshes, place: str, workspace: Path
) -> None:
    ask = replicas_of(real)
    async with shown(real, place, workspace) as mesh:
        await mesh.python(WRITES, "notes")
        (workspace / "notes").write_text("edited")
        with pytest.raises(NotFound):  # what starts nothing tells nobody
            await mesh.run("no-such-program")
        job = await ask("start_replicas", mesh=mesh.mesh, command="true", replicas=2)
        assert job.warnings == [
            "notes was edited here and written on hosts 0-1: yours is there, the host's is notes.host-copy"
        ]


async def test_who_sits_in_the_clients_directory_is_not_in_that_of_a_host(
    real: Meshes, namespaces: None, workspace: Path
) -> None:
    async with await anyio.open_process(["sleep", "99"], cwd=workspace) as sitting:
        async with shown(real, "isolated", workspace) as mesh:
            await mesh.python(WRITES, "log")
            assert (await mesh.ask("release_mesh", mesh=mesh.mesh)).unmounted_in_use == []
        sitting.kill()


IS_PLAIN = """
import os, sys
print(os.stat("out").st_dev != os.stat(".").st_dev, sorted(os.listdir("out")))
print(os.path.realpath("out/..") == os.getcwd())
"""


@pytest.mark.parametrize("place", ["mount", "isolated"], indirect=True)
async def test_a_scratch_folder_is_plain_disk_of_each_host_and_stays(
    real: Meshes, place: str, workspace: Path
) -> None:
    (workspace / "out").mkdir()
    (workspace / "out" / "seed").write_text("the client's")
    scratch = {"scratch": ["out"]}
    async with shown(real, place, workspace) as mesh:
        assert await mesh.python(IS_PLAIN, options=scratch) == "True ['seed']\nTrue"
        await mesh.python(WRITES, "out/a.pt")
        assert await mesh.python(IS_PLAIN) == "True ['a.pt', 'seed']\nTrue"
        assert await text_of(mesh, "out/a.pt", 1) == "out/a.pt of 1"
        for process in mesh.mount_processes():
            os.kill(process, signal.SIGKILL)
        assert await mesh.python(IS_PLAIN, options=scratch) == "True ['a.pt', 'seed']\nTrue"
        run = await mesh.run("true", options={"discard_host_changes": True})
        assert run.state == "succeeded", told(run)
        assert await mesh.python(IS_PLAIN, options=scratch) == "True ['a.pt', 'seed']\nTrue"


async def test_a_scratch_folder_is_there_however_hosts_have_the_workspace(
    real: Meshes, place: str, workspace: Path
) -> None:
    async with shown(real, place, workspace) as mesh:
        await mesh.python(
            "open('new/folder/x', 'w').write('x')", options={"scratch": ["new/folder", "other"]}
        )


async def test_a_folder_that_cannot_be_scratch_is_refused_and_nothing_starts(
    real: Meshes, place: str, workspace: Path
) -> None:
    with open(workspace / "pack" / "large", "wb") as file:
        file.truncate(200 * 1024 * 1024)
    async with shown(real, place, workspace) as mesh:
        for bad in ("/tmp", "..", "a/../..", "", "."):
            with pytest.raises(InvalidArgument, match="is no folder below the workspace"):
                await mesh.run("true", options={"scratch": [bad]})
        with pytest.raises(InvalidArgument, match="Leave the inner one out"):
            await mesh.run("true", options={"scratch": ["a", "a/b"]})
        if place in ("mount", "isolated"):
            with pytest.raises(InvalidArgument, match="there is a file of that name"):
                await mesh.run("true", options={"scratch": ["notes"]})
            with pytest.raises(InvalidArgument, match=r"holds more than 1,000 files or 100 MB"):
                await mesh.run("true", options={"scratch": ["pack"]})
        assert (await mesh.ask("list_runs", mesh=mesh.mesh)).runs == []


@pytest.mark.parametrize("place", ["mount", "isolated"], indirect=True)
async def test_nothing_is_bound_where_a_symlink_leads(
    real: Meshes, place: str, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (workspace / "out").symlink_to(tmp_path / "elsewhere")
    (workspace / "in").symlink_to("pack")
    async with shown(real, place, workspace) as mesh:
        for name in ("out", "in", "out/below"):
            with pytest.raises(InvalidArgument, match="by a symlink"):
                await mesh.run("true", options={"scratch": [name]})
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_workspace_that_a_symlink_leads_to_has_a_scratch_folder_bound_once(
    real: Meshes, namespaces: None, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(workspace.parent)
    async with shown(real, "isolated", tmp_path / "link" / "ws") as mesh:
        for _ in range(3):
            said = await mesh.succeed(
                "grep", "-c", " /.*/ws/out ", "/proc/self/mountinfo", options={"scratch": ["out"]}
            )
            assert said == "1"


@pytest.mark.parametrize("place", ["mount", "isolated"], indirect=True)
async def test_a_scratch_folder_within_another_is_of_that_one_and_none_is_hidden(
    real: Meshes, place: str, workspace: Path
) -> None:
    async with shown(real, place, workspace) as mesh:
        await mesh.python(WRITES, "out/in/a", options={"scratch": ["out"]})
        assert (
            await mesh.run("ls", "out/in", options={"scratch": ["out/in", "out/new"]})
        ).output_tail.split()[-1] == "a"
        await mesh.python(WRITES, "other/in/a", options={"scratch": ["other/in"]})
        run = await mesh.run("cat", "other/in/a", options={"scratch": ["other"]})
        assert run.state == "succeeded", told(run)
        assert any("'other' stays in the mount: 'other/in'" in warning for warning in run.warnings)


async def test_a_release_asks_before_checkpoints_go_and_keeps_what_was_named(
    real: Meshes, place: str, workspace: Path, places: Places
) -> None:
    async with shown(real, place, workspace) as mesh:
        await mesh.python(WRITES, "ckpt/a.pt", "ckpt/b.pt", "logs/x", options={"keep": ["ckpt/a.*", "logs"]})
        asked = await mesh.ask("release_mesh", mesh=mesh.mesh)
        assert asked.state == "not_released"
        assert asked.would_lose == [f"{workspace}/ckpt/: 2 checkpoints, 28 B on hosts 0-1"]
        released = await mesh.ask("release_mesh", mesh=mesh.mesh, confirm=asked.confirm)
        assert released.state == "released"
        assert released.kept.startswith("4 files, 50 B, in ")
    kept = places.state / "data" / mesh.mesh
    found = {
        str(path.relative_to(kept)): path.read_text() for path in kept.glob("[0-9]*/**/*") if path.is_file()
    }
    assert found == {
        f"{host}/{name}": f"{name} of {host}" for host in (0, 1) for name in ("ckpt/a.pt", "logs/x")
    }
    hosts = [places.mesh(mesh.mesh).host(host) for host in (0, 1)]
    await until(lambda: not any((host / name).exists() for host in hosts for name in ("mounts", "workspace")))


@pytest.mark.parametrize("place", ["mount", "isolated copy"], indirect=True)
async def test_the_end_of_a_lease_keeps_what_was_written_to_the_workspace(
    real: Meshes, place: str, workspace: Path, places: Places
) -> None:
    ask = asker(real)
    lease = {"lease_minutes": 0.3}
    mesh = (await ask("allocate_mesh", **arguments(place, workspace), **lease)).mesh
    command = ["python", "-c", WRITES, "ckpt/a.pt", "log"]
    run = await ask("run_on_mesh", mesh=mesh, command=command, options={"scratch": ["ckpt"]})
    assert run.state == "succeeded", told(run)
    kept = places.state / "data" / mesh
    with anyio.fail_after(60):
        while real._index.mesh(mesh).state != "released":
            await anyio.sleep(0.1)
    words = f"the lease ended; 4 files are kept in {kept}"
    assert real._index.mesh(mesh).reason == words
    assert (await ask("release_mesh", mesh=mesh)).reason == f"it was released before: {words}"
    name = real._index.mesh(mesh).spec.name
    with pytest.raises(NotFound, match=re.escape(f"{mesh} was released: {words}")):
        await ask("list_remote_files", mesh=name)
    names = sorted(str(path.relative_to(kept)) for path in kept.glob("[0-9]*/**/*") if path.is_file())
    assert names == sorted(f"{host}/{name}" for host in (0, 1) for name in ("ckpt/a.pt", "log"))
