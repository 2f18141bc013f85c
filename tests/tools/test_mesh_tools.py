"""The toolset mesh, on meshes in memory."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milkweed.runtime.errors import Conflict, InvalidArgument, NotFound
from milkweed.runtime.index import MeshEvent
from milkweed.runtime.records import Exit, HostEvent, HostView, MeshSpec, ShownTree, TreeView
from milkweed.tools.events import fold_events
from milkweed.tools.results import RESULT_BYTES
from tests.fakes import STARTED, FakeMesh, FakeMeshes, event
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio


async def test_a_mesh_is_allocated(ask: Ask, meshes: FakeMeshes, tmp_path: Path) -> None:
    result = await ask("allocate_mesh", name="demo", hosts=2, procs_per_host=3, workspace=str(tmp_path))
    assert (result.state, result.world_size, result.engine) == ("ready", 6, "embedded")
    spec = meshes.meshes[result.mesh].state.spec
    assert spec == MeshSpec("demo", 2, 3, "local", "embedded", str(tmp_path), "auto", 60.0, {})
    assert "run_on_mesh" in result.next


async def test_the_same_call_again_gives_the_same_mesh(ask: Ask) -> None:
    first = await ask("allocate_mesh", name="demo", hosts=2)
    assert (await ask("allocate_mesh", name="demo", hosts=2)).mesh == first.mesh
    with pytest.raises(Conflict, match="name_in_use"):
        await ask("allocate_mesh", name="demo", hosts=3)


async def test_the_workspace_is_the_working_directory_where_none_is_named(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    assert (await ask("allocate_mesh", name="a")).workspace == str(tmp_path)
    assert (await ask("allocate_mesh", name="b", workspace="sub")).workspace == str(tmp_path / "sub")


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": 0},
        {"hosts": 10_000},
        {"procs_per_host": 0},
        {"procs_per_host": 257},
        {"hosts": 512, "procs_per_host": 2},
        {"lease_minutes": 0},
        {"lease_minutes": -1},
        {"lease_minutes": 10_081},
        {"name": "Demo"},
        {"name": ""},
        {"name": "x" * 33},
        {"engine": "monarch"},
        {"engine": "warp"},
        {"workspace_mode": "nonsense"},
        {"workspace": "/no/such/directory"},
        {"workspace": "/etc/hostname"},
        {"workspace": "a\0b"},
        {"options": {"isolation": 1}},
    ],
)
async def test_a_wrong_argument_allocates_nothing(
    ask: Ask, meshes: FakeMeshes, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        await ask("allocate_mesh", **{"name": "demo", **wrong})
    assert not meshes.meshes


async def test_a_dry_run_allocates_nothing(ask: Ask, meshes: FakeMeshes) -> None:
    result = await ask("allocate_mesh", name="demo", hosts=4, procs_per_host=2, dry_run=True)
    assert (result.state, result.mesh, result.world_size) == ("planned", "", 8)
    assert "4 host agents" in result.would_start[0]
    assert not meshes.meshes
    with pytest.raises(InvalidArgument):
        await ask("allocate_mesh", name="demo", hosts=1024, procs_per_host=2, dry_run=True)


async def test_a_dry_run_tells_of_the_mesh_it_would_give(ask: Ask) -> None:
    live = await ask("allocate_mesh", name="demo")
    assert live.mesh in (await ask("allocate_mesh", name="demo", dry_run=True)).warnings[0]


async def test_meshes_are_listed(ask: Ask, mesh: FakeMesh) -> None:
    result = await ask("list_meshes")
    assert [(item.mesh, item.state, item.hosts) for item in result.meshes] == [(mesh.id, "ready", 2)]
    await ask("release_mesh", mesh="demo")
    empty = await ask("list_meshes")
    assert empty.content() == {"meshes": [], "next": "allocate_mesh gives one."}


async def test_the_status_tells_hosts_runs_and_events(ask: Ask, mesh: FakeMesh) -> None:
    mesh.happened = (event("rank_exited", run="run-a", rank=3, exit=Exit(signal=9)),)
    hosts = (mesh.state.hosts[0], replace(mesh.state.hosts[1], state="lost", reason="its agent was killed"))
    mesh.state = replace(mesh.state, state="degraded", hosts=hosts, reason="host 1 is lost")
    await ask("run_on_mesh", mesh="demo", command="python train.py")
    result = await ask("mesh_status", mesh=mesh.id)
    assert (result.state, result.reason) == ("degraded", "host 1 is lost")
    assert result.hosts_by_state == {"ready": "0", "lost": "1"}
    assert (result.host_list[0].host, result.host_list[0].reason) == (1, "its agent was killed")
    assert result.runs[0].command == "python train.py"
    assert result.events == ["22:13:20Z host 0 rank_exited run-a rank 3 SIGKILL"]


async def test_the_status_of_a_large_mesh_in_trouble_is_small(ask: Ask, meshes: FakeMeshes) -> None:
    long = '"\\' * 400
    mesh = await meshes.allocate(MeshSpec("x" * 32, 512, 1, workspace="/" + "w" * 200), wait_s=1)
    hosts = tuple(
        HostView(k, "h" * 64, "10.0.0.1", "lost" if k % 2 else "ready", reason=long) for k in range(512)
    )
    mesh.state = replace(mesh.state, state="degraded", hosts=hosts, reason=long, warnings=(long,) * 9)
    mesh.happened = tuple(event("output_capped", run="run-a", detail=long) for _ in range(50))
    for _ in range(30):
        await ask("run_on_mesh", mesh=mesh.id, command=["python", long])
    for tool in ("mesh_status", "list_runs", "list_meshes"):
        content = (await ask(tool, **({} if tool == "list_meshes" else {"mesh": mesh.id}))).content()
        assert len(json.dumps(content, ensure_ascii=False).encode()) <= RESULT_BYTES, tool


async def test_many_meshes_are_listed_in_little(ask: Ask, meshes: FakeMeshes) -> None:
    for number in range(60):
        await meshes.allocate(MeshSpec(f"mesh-{number}-{'x' * 20}", 1, 1, workspace="/w" * 100), wait_s=1)
    result = await ask("list_meshes")
    assert len(json.dumps(result.content()).encode()) <= RESULT_BYTES
    assert result.more == 60 - len(result.meshes)
    assert len(result.summary()) < 400


async def test_a_lease_is_extended(ask: Ask, mesh: FakeMesh) -> None:
    assert (await ask("extend_lease", mesh="demo", minutes=120)).lease_left_s == 7200
    for minutes in (0, -5, 20_000):
        with pytest.raises(InvalidArgument):
            await ask("extend_lease", mesh="demo", minutes=minutes)


async def test_a_lease_that_ends_soon_is_said(ask: Ask, mesh: FakeMesh) -> None:
    mesh.state = replace(mesh.state, lease_left_s=100.0)
    assert "extend_lease" in (await ask("mesh_status", mesh="demo")).next


async def test_a_release_tells_what_it_ended(ask: Ask, meshes: FakeMeshes, mesh: FakeMesh) -> None:
    meshes.on_start = lambda run: None  # type: ignore[method-assign]
    running = await ask("run_on_mesh", mesh="demo", command="sleep 60", wait_s=0)
    result = await ask("release_mesh", mesh=mesh.id)
    assert (result.state, result.runs_ended) == ("released", [running.run])
    assert result.content()["state"] == "released"
    again = await ask("release_mesh", mesh=mesh.id)
    assert again.reason == "it was released before"
    by_name = await ask("release_mesh", mesh="demo")
    assert (by_name.mesh, by_name.state, by_name.reason) == (mesh.id, "released", "it was released before")


async def test_of_two_releases_at_once_both_are_answered(
    ask: Ask, mesh: FakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose() -> None:
        raise Conflict("mesh_released", f"{mesh.id} was released", "Call allocate_mesh for a new one.")

    monkeypatch.setattr(mesh, "release", lose)
    result = await ask("release_mesh", mesh="demo")
    assert (result.mesh, result.state, result.processes_ended) == (mesh.id, "released", 0)


async def test_an_unknown_mesh_is_an_error_that_names_the_others(ask: Ask, mesh: FakeMesh) -> None:
    for tool, more in (
        ("mesh_status", {}),
        ("release_mesh", {}),
        ("extend_lease", {"minutes": 5}),
        ("list_runs", {}),
    ):
        with pytest.raises(NotFound, match=f"no mesh 'nope'; meshes: {mesh.id}"):
            await ask(tool, mesh="nope", **more)


async def test_schedulers_are_told_with_the_reason(ask: Ask) -> None:
    local, slurm = (await ask("list_schedulers")).schedulers
    assert (local.scheduler, local.available) == ("local", True)
    assert slurm.reason == "there is no sbatch here"


async def test_a_workspace_with_an_impossible_name_is_refused(ask: Ask) -> None:
    with pytest.raises(InvalidArgument, match=r"invalid_path: workspace .* does not exist"):
        await ask("allocate_mesh", name="demo", workspace="x" * 5000)


def test_what_happened_alike_to_ranks_of_a_run_is_one_line() -> None:
    ended = [event("rank_exited", run="run-a", rank=rank, exit=Exit(code=0)) for rank in (2, 0, 1)]
    odd = event("rank_exited", run="run-a", rank=3, exit=Exit(code=1))
    over = event("run_ended", run="run-a")
    assert fold_events([*ended, odd, over, over]) == [
        "22:13:20Z host 0 rank_exited run-a ranks 0-2 exit 0",
        "22:13:20Z host 0 rank_exited run-a rank 3 exit 1",
        "22:13:20Z host 0 run_ended run-a",
    ]


def test_what_happened_alike_on_hosts_is_one_line_and_the_keeper_is_none_of_them() -> None:
    over = [MeshEvent(host, HostEvent(1, STARTED, "run_ended", run="run-a")) for host in (2, 0, 1, -1)]
    assert fold_events(over) == [
        "22:13:20Z hosts 0-2 run_ended run-a",
        "22:13:20Z keeper run_ended run-a",
    ]


def test_since_when_a_run_stands_still_is_a_time_of_day() -> None:
    assert fold_events([event("run_still", run="run-a", detail="1699999970.125")]) == [
        "22:13:20Z host 0 run_still run-a since 22:12:50Z"
    ]


async def test_hosts_without_the_workspace_are_told_with_what_helps(ask: Ask, meshes: FakeMeshes) -> None:
    name = (await ask("allocate_mesh", name="demo", hosts=3)).mesh
    mesh = meshes.meshes[name]
    lacking = [
        ShownTree(host, problem="there is no /dev/fuse", mend="Run as root: modprobe fuse")
        for host in range(3)
    ]
    mesh.state = replace(mesh.state, workspace=TreeView(tuple(lacking)))
    status = await ask("mesh_status", mesh=name)
    assert status.warnings == [
        "hosts 0-2 do not have the workspace: there is no /dev/fuse. Run as root: modprobe fuse"
    ]
    assert f"release_mesh(mesh='{name}')" in status.next

    one = TreeView((ShownTree(0, "mount"), lacking[1], ShownTree(2, "mount")))
    mesh.state = replace(mesh.state, workspace=one)
    status = await ask("mesh_status", mesh=name)
    assert status.warnings[0].startswith("host 1 does not have the workspace: there is no /dev/fuse.")
    assert "run_on_mesh" in status.next
