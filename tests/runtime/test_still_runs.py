"""Runs that stand still, through the client, on two hosts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Mesh, Meshes
from milkweed.runtime.records import MeshSpec, RunRequest, RunView
from milkweed.runtime.watching import VARIABLE
from milkweed.runtime.watching.evidence import StillEvidence, read_evidence

pytestmark = pytest.mark.anyio

QUICK = "sample_s=0.1,quiet_s=1,apart_s=0.5,busy_s=3,busy=0.5,hurry_s=0.2,longest_s=2"
WAITS = "import time; time.sleep(1000)"
ONE_PRINTS = """
import os, time
while True:
    if os.environ["RANK"] == "0" and not os.path.exists("stop"):
        print("x", flush=True)
    time.sleep(0.2)
"""


@pytest.fixture
async def mesh(meshes: Meshes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mesh:
    monkeypatch.setenv(VARIABLE, QUICK)
    return await meshes.allocate(MeshSpec("t", 2, 1, workspace=str(tmp_path)))


async def evidence_of(mesh: Mesh, view: RunView) -> list[StillEvidence | None]:
    hosts = (await mesh.view()).hosts
    return [read_evidence(Path(host.directory) / "runs" / view.run) for host in hosts]


async def test_a_run_that_stands_still_on_all_hosts_is_told_and_remembered(mesh: Mesh) -> None:
    view = await mesh.start_run(RunRequest(("python", "-c", WAITS), timeout_s=15.0))
    still = await mesh.wait_run(view.run, until="still", timeout_s=14)
    assert still.state == "running"
    assert still.still_since is not None
    assert view.created_at < still.still_since < still.created_at + 14
    found = await evidence_of(mesh, view)
    assert [[process.rank for process in one.stacks] for one in found if one] == [[0], [1]]
    kinds = [event.event.kind for event in await mesh.events(100)]
    assert kinds.count("run_still") == 2
    ended = await mesh.wait_run(view.run, timeout_s=25)
    assert (ended.state, ended.reason) == ("failed", "timed out")
    assert ended.still_since == still.still_since
    assert await evidence_of(mesh, view) == found


async def test_a_run_of_which_one_host_prints_is_not_still_until_that_stops(
    mesh: Mesh, tmp_path: Path
) -> None:
    view = await mesh.start_run(RunRequest(("python", "-c", ONE_PRINTS)))
    with anyio.fail_after(20):
        while (await mesh.run(view.run)).ranks[1].still_since is None:
            await anyio.sleep(0.05)
    assert (await mesh.wait_run(view.run, until="still", timeout_s=1.0)).still_since is None
    (tmp_path / "stop").touch()
    assert (await mesh.wait_run(view.run, until="still", timeout_s=20)).still_since is not None


async def test_a_wait_for_a_standstill_ends_with_the_run(mesh: Mesh) -> None:
    view = await mesh.start_run(RunRequest(("true",)))
    assert (await mesh.wait_run(view.run, until="still", timeout_s=20)).state == "succeeded"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
async def test_ranks_of_torchrun_are_watched(mesh: Mesh, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(f"print('started', flush=True)\n{WAITS}")
    view = await mesh.start_run(RunRequest(("waits.py",), launcher="torchrun"))
    printed = await mesh.wait_run(view.run, until="output", pattern="started", timeout_s=60)
    assert printed.state == "running"
    still = await mesh.wait_run(view.run, until="still", timeout_s=30)
    assert still.still_since is not None
    found = await evidence_of(mesh, view)
    assert {process.rank for one in found if one for process in one.stacks} == {0, 1}


@pytest.mark.parametrize("ending", ["cancel", "release"])
async def test_where_a_run_stood_still_is_known_after_somebody_has_ended_it(mesh: Mesh, ending: str) -> None:
    view = await mesh.start_run(RunRequest(("python", "-c", WAITS)))
    await mesh.wait_run(view.run, until="still", timeout_s=20)
    if ending == "cancel":
        assert (await mesh.cancel_run(view.run)).state == "cancelled"
    await mesh.release()
    hosts = await mesh.evidence(view.run, timeout_s=5.0)
    assert [host.error for host in hosts] == ["", ""]
    assert [[rank.rank for rank in host.ranks if rank.stacks] for host in hosts] == [[0], [1]]
