"""Hosts that are forked by a nursery are what executed ones are, and share what was imported."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent import ptree
from milkweed.runtime.agent.host_command import agent_command, agent_config, guard_command, unmount_command
from milkweed.runtime.client import Mesh, Meshes
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest
from milkweed.runtime.schedulers import forking

from .processes import alive, eventually, of_mesh

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(170)]

HOSTS = 4
CONFIG = Path("/x/config.json")


@pytest.fixture
async def mesh(meshes: Meshes, tmp_path: Path) -> Mesh:
    return await meshes.allocate(MeshSpec("forked", HOSTS, 1, workspace=str(tmp_path)))


def words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]


async def agents(mesh: Mesh) -> list[int]:
    return [host.agent_pid or 0 for host in (await mesh.view()).hosts]


async def test_guards_and_agents_look_as_if_they_were_executed(mesh: Mesh, places: Places) -> None:
    table = ptree.snapshot()
    for host, agent in enumerate(await agents(mesh)):
        guard = table[agent].parent
        directory = places.mesh(mesh.id).host(host)
        own = agent_command(directory / "config.json")
        assert words(agent) == own
        epilogue = ("--epilogue", json.dumps(unmount_command(directory)))
        assert words(guard) == [*guard_command("--log", str(directory / "guard.log"), *epilogue), *own]
        for pid in (agent, guard):
            environ = ptree.read_environ(pid)
            assert environ["MILKWEED_HOST_ID"] == f"{mesh.id}.{host}"
            assert environ["PATH"] == os.environ["PATH"]
        assert ptree.read_environ(agent)["MILKWEED_GUARD_PID"] == str(guard)
        assert table[guard].session == guard
        assert table[agent].session == guard


async def test_they_were_forked_from_one_process(mesh: Mesh) -> None:
    """What an executed process has alone, they share: the guards' own memory is small."""
    for agent in await agents(mesh):
        guard = ptree.snapshot()[agent].parent
        lines = Path(f"/proc/{guard}/smaps_rollup").read_text().splitlines()
        sizes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
        assert sizes["Private_Dirty:"] < sizes["Shared_Dirty:"]


async def test_they_hold_nothing_of_the_process_that_forked_them(mesh: Mesh, places: Places) -> None:
    for host, agent in enumerate(await agents(mesh)):
        guard = ptree.snapshot()[agent].parent
        directory = places.mesh(mesh.id).host(host)
        files = [os.readlink(f"/proc/{guard}/fd/{fd}") for fd in os.listdir(f"/proc/{guard}/fd")]
        log = str(directory / "agent.log")
        assert sorted(files) == sorted(["/dev/null", log, log, str(directory / "guard.log")])
        status = Path(f"/proc/{agent}/status").read_text()
        assert "SigBlk:\t0000000000000000\n" in status


@pytest.mark.parametrize("process", ["agent", "guard"])
async def test_a_killed_one_takes_its_host_along_and_no_other(mesh: Mesh, process: str) -> None:
    run = await mesh.start_run(RunRequest(("sleep", "1000"), keep_going=True))
    agent, *others = await agents(mesh)
    guard = ptree.snapshot()[agent].parent
    os.kill(agent if process == "agent" else guard, signal.SIGKILL)
    await eventually(lambda: not alive(guard) and not alive(agent))
    await eventually(lambda: len(of_mesh(mesh.id)) == (HOSTS - 1) * 4)
    assert all(map(alive, others))
    with anyio.fail_after(10):
        while (view := await mesh.view()).hosts[0].state == "ready":  # its end is known here first
            await anyio.sleep(0.01)
    assert [host.state for host in view.hosts] == ["lost", "ready", "ready", "ready"]
    assert "killed" in view.hosts[0].reason
    assert (await mesh.run(run.run)).state == "running"
    await mesh.release()
    assert of_mesh(mesh.id) == []


async def test_what_cannot_be_imported_once_for_all_is_each_hosts_own_affair(
    meshes: Meshes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILKWEED_WARM_MODULES", "fails")
    (tmp_path / "fails.py").write_text("1 / 0\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    mesh = await meshes.allocate(MeshSpec("forked", HOSTS, 1, workspace=str(tmp_path)))
    assert (await mesh.view()).state == "ready"


def command(config: Path = CONFIG, *enter: str) -> list[str]:
    return [*guard_command("--log", "/x/log"), *enter, *agent_command(config)]


@pytest.mark.parametrize(
    ("argv", "config"),
    [
        (command(), CONFIG),
        (command(CONFIG, "unshare", "--"), None),
        (command(CONFIG, "unshare"), None),
        (["/other/python", *command()[1:]], None),
        ([*command(), "more"], None),
        ([sys.executable, "-c", "pass"], None),
        ([], None),
    ],
)
def test_only_a_guard_with_an_agent_is_forked(argv: Sequence[str], config: Path | None) -> None:
    assert agent_config(argv) == config


async def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    order = forking.HostOrder(tuple(command()), {}, tmp_path / "no" / "log")
    with pytest.raises(OSError, match="No such file"):
        await forking.fork_hosts([order])
