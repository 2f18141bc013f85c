"""How a mesh comes to be: hosts that are slow, that never start, or that a library gives."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.client.mesh import Mesh
from milkweed.runtime.errors import Conflict, Unavailable
from milkweed.runtime.index import Index
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, MeshView, RunRequest
from tests.plugins import install

from .processes import eventually, keeper_of, of_mesh

pytestmark = pytest.mark.anyio

DAY_S = 24 * 3600.0


def spec(workspace: Path, hosts: int = 2, **more: object) -> MeshSpec:
    return MeshSpec("t", hosts, 1, workspace=str(workspace), **more)  # type: ignore[arg-type]


async def reaches(mesh: Mesh, state: str) -> MeshView:
    """The view, once the mesh is in that state."""
    with anyio.fail_after(30):
        while (view := await mesh.view()).state != state:
            await anyio.sleep(0.01)
    return view


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the folder can be imported here and by every process that is started from here."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""))))


def before_each_agent(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host agent does that before it begins."""
    (folder / "sitecustomize.py").write_text(
        f"import os, sys\nif 'milkweed.runtime.agent' in sys.orig_argv:\n    {code}\n"
    )
    on_path(folder, monkeypatch)


async def test_a_mesh_whose_host_never_starts_is_given_back(
    meshes: Meshes, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_agent(tmp_path, "print('out of luck', flush=True); os._exit(3)", monkeypatch)
    with pytest.raises(
        Unavailable, match=r"allocation_failed: host .*: its agent failed \(exit 3\): out of luck"
    ):
        await meshes.allocate(spec(tmp_path))
    (view,) = await meshes.list(released=True)
    assert view.state == "released"
    assert await meshes.list() == ()
    assert of_mesh(view.mesh) == []
    await eventually(lambda: keeper_of(view.mesh) is None)
    assert os.listdir(places.runtime) == []


async def test_a_mesh_that_is_still_starting_says_so(
    meshes: Meshes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    before_each_agent(tmp_path, f"open({str(go)!r}).read()", monkeypatch)
    mesh = await meshes.allocate(spec(tmp_path, hosts=1), wait_s=0.0)
    try:
        assert (await mesh.view()).state == "starting"
        with pytest.raises(Conflict, match="mesh_not_ready"):
            await mesh.start_run(RunRequest(("true",)))
        with pytest.raises(Conflict, match="mesh_not_ready"):
            await mesh.extend_lease(10)
    finally:
        await anyio.to_thread.run_sync(go.write_text, "x")
    assert (await mesh.wait_ready(20)).state == "ready"
    run = await mesh.start_run(RunRequest(("true",)))
    assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"


TOY = """
import pathlib
from milkweed.runtime.schedulers.local import LocalScheduler

class Toy(LocalScheduler):
    name = "toy"

    async def submit(self, order):
        pathlib.Path(order.spec.workspace, "asked").write_text(order.mesh)
        return await super().submit(order)

content = Toy
"""


async def test_a_librarys_scheduler_gives_the_hosts(
    meshes: Meshes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "milkweed.schedulers", "toy", TOY)
    on_path(tmp_path, monkeypatch)
    assert [view.name for view in await meshes.schedulers()] == ["local", "slurm", "toy"]
    mesh = await meshes.allocate(spec(tmp_path, hosts=1, scheduler="toy"))
    assert (tmp_path / "asked").read_text() == mesh.id
    assert (await mesh.view()).state == "ready"


WAITING = """
import pathlib, time
import anyio
from milkweed.runtime.schedulers import Ticket
from milkweed.runtime.schedulers.events import Ended, Lost, Queued
from milkweed.runtime.schedulers.local import LocalScheduler

class Waiting(LocalScheduler):
    name = "waiting"

    async def submit(self, order):
        return Ticket(job="7")

    async def watch(self, order, ticket, tell):
        while True:
            gate = pathlib.Path(order.spec.workspace, "gate")
            await tell(Queued("job 7 waits: others are before it", 2, 3, time.time() + 600))
            while not gate.exists():
                await anyio.sleep(0.01)
            if gate.read_text() == "cancelled":
                await tell(Ended("cancelled", "job 7 was cancelled from outside"))
                return
            self.given = await super().submit(order)
            async with anyio.create_task_group() as group:
                group.start_soon(super().watch, order, self.given, tell)
                while gate.exists():
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
            await self.release(order, self.given)
            await tell(Lost((0,), "job 7 is queued again"))

    async def addresses(self, order, ticket):
        return self.given.handles

content = Waiting
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the scheduler `waiting` waits for."""
    install(tmp_path, "milkweed.schedulers", "waiting", WAITING)
    on_path(tmp_path, monkeypatch)
    return tmp_path / "gate"


async def test_a_mesh_that_waits_for_its_hosts_says_so_at_once_and_goes_on_by_itself(
    meshes: Meshes, tmp_path: Path, gate: Path
) -> None:
    with anyio.fail_after(20):
        mesh = await meshes.allocate(spec(tmp_path, hosts=1, scheduler="waiting"), wait_s=600)
    view = await mesh.view()
    assert (view.state, view.reason) == ("queued", "job 7 waits: others are before it")
    assert view.lease_left_s == 3600
    assert view.expected_start_at is not None
    with pytest.raises(Conflict, match=r"mesh_not_ready: .* waits for its hosts: job 7 waits"):
        await mesh.start_run(RunRequest(("true",)))
    gate.touch()
    await reaches(mesh, "ready")
    run = await mesh.start_run(RunRequest(("true",)))
    assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"
    assert (await mesh.view()).lease_left_s < 3600


async def test_a_mesh_whose_hosts_are_taken_waits_and_comes_back(
    meshes: Meshes, tmp_path: Path, gate: Path
) -> None:
    gate.touch()
    mesh = await meshes.allocate(spec(tmp_path, hosts=1, scheduler="waiting"))
    await reaches(mesh, "ready")
    run = await mesh.start_run(RunRequest(("sleep", "600")))
    gate.unlink()
    await reaches(mesh, "queued")
    assert (await mesh.wait_run(run.run, timeout_s=20)).state == "lost"
    gate.touch()
    await reaches(mesh, "ready")
    again = await mesh.start_run(RunRequest(("true",)))
    assert (await mesh.wait_run(again.run, timeout_s=20)).state == "succeeded"


async def test_a_mesh_that_is_cancelled_in_the_queue_says_by_whom(
    meshes: Meshes, tmp_path: Path, gate: Path
) -> None:
    mesh = await meshes.allocate(spec(tmp_path, hosts=1, scheduler="waiting"))
    gate.write_text("cancelled")
    view = await reaches(mesh, "released")
    assert view.reason == "allocation_failed: job 7 was cancelled from outside"
    assert await meshes.list() == ()


async def test_a_mesh_can_be_released_in_the_queue(meshes: Meshes, tmp_path: Path, gate: Path) -> None:
    mesh = await meshes.allocate(spec(tmp_path, hosts=1, scheduler="waiting"))
    await mesh.release()
    assert (await mesh.view()).state == "released"


async def test_an_allocation_forgets_what_was_released_long_ago(
    meshes: Meshes, places: Places, tmp_path: Path
) -> None:
    index = Index(places.index)
    old, _ = index.claim(MeshSpec("old", 1, 1, workspace="/"))
    index.set_state(old.mesh, "released", "released")
    index.close()
    directory = places.mesh(old.mesh).root
    directory.mkdir(parents=True)
    (directory / "keeper.log").touch()
    os.utime(directory / "keeper.log", (time.time() - 30 * DAY_S,) * 2)
    await meshes.allocate(spec(tmp_path, hosts=1))
    await eventually(lambda: not directory.exists())


async def test_a_scheduler_that_cannot_be_loaded_is_told_and_the_others_are_there(
    meshes: Meshes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "milkweed.schedulers", "broken", "content = 1 / 0\n")
    on_path(tmp_path, monkeypatch)
    found = {view.name: view for view in await meshes.schedulers()}
    assert found["local"].available
    assert not found["broken"].available
    assert "ZeroDivisionError" in found["broken"].reason
    with pytest.raises(Unavailable, match=r"scheduler_unusable: .*ZeroDivisionError.* Mend or uninstall"):
        await meshes.allocate(spec(tmp_path, scheduler="broken"))
    assert await meshes.list() == ()
