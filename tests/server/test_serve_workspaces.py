"""Servers that are killed, and the workspace of the mesh that the next one takes up."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from milkweed.runtime.mounts import in_the_way, probe
from tests.server.test_serve import served
from tests.tools.workspaces.stage import processes_with


@pytest.mark.parametrize("killed", ["server", "server, keeper and mount processes"])
def test_the_next_server_takes_the_mesh_up_and_its_runs_have_every_edit(
    places: dict[str, str], tmp_path: Path, killed: str
) -> None:
    if mends := in_the_way(probe()):
        pytest.skip(f"no mounts here: {mends[0].problem}")
    (tmp_path / "main.py").write_text("print(open('data').read())\n")
    (tmp_path / "data").write_text("before")
    with served(places, cwd=tmp_path) as server:
        asked = {"name": "t", "hosts": 2, "workspace": str(tmp_path), "workspace_mode": "mount"}
        mesh = server.call("allocate_mesh", **asked)["structuredContent"]["mesh"]
        first = server.call("run_on_mesh", mesh=mesh, command="python main.py", wait_s=40)
        assert first["structuredContent"]["output_tail"] == "ranks 0-1:\nbefore"
        if "mount" in killed:
            for process in processes_with("milkweed.runtime.mounts.host", mesh):
                os.kill(process, signal.SIGKILL)
        if "keeper" in killed:
            (keeper,) = processes_with("milkweed.runtime.keeper", mesh)
            os.kill(keeper, signal.SIGKILL)
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait(10)
    (tmp_path / "data").write_text("while nobody was there")
    with served(places, cwd=tmp_path) as another:
        try:
            again = another.call("allocate_mesh", **asked)["structuredContent"]
            assert (again["mesh"], again["state"]) == (mesh, "ready")
            for word in ("while nobody was there", "after"):
                (tmp_path / "data").write_text(word)
                run = another.call("run_on_mesh", mesh=mesh, command="python main.py", wait_s=40)
                assert run["structuredContent"]["output_tail"] == f"ranks 0-1:\n{word}"
        finally:
            another.call("release_mesh", mesh=mesh)
    assert mesh not in Path("/proc/self/mountinfo").read_text()
