"""How a mesh comes to be: hosts that are slow, that never start, or that a library gives."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Conflict, Unavailable
from milkweed.runtime.index import Index
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest
from tests.plugins import install

from .processes import eventually, keeper_of, of_mesh

pytestmark = pytest.mark.anyio

DAY_S = 24 * 3600.0


def spec(workspace: Path, hosts: int = 2, **more: object) -> MeshSpec:
    return MeshSpec("t", hosts, 1, workspace=str(workspace), **more)  # type: ignore[arg-type]


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
