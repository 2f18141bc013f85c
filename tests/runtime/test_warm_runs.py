"""Warm starts as a client has them: ready without a first run, told in the view, and left out on request."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Mesh, Meshes
from milkweed.runtime.records import MeshSpec, RunRequest, RunView

from .processes import of_mesh

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(170)]

CODE = "import sys, torch; print('torch' in sys.modules, float(torch.ones(2).sum()))"


@pytest.fixture(autouse=True)
def _as_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILKWEED_WARM_MODULES")


async def run(mesh: Mesh, *command: str, warm: bool = True, **more: str) -> RunView:
    started = await mesh.start_run(RunRequest(command, warm=warm, **more))  # type: ignore[arg-type]
    view = await mesh.wait_run(started.run, timeout_s=40)
    assert view.state == "succeeded", view
    return view


def starts(view: RunView) -> set[str]:
    return {rank.start for rank in view.ranks}


async def test_a_mesh_is_ready_for_warm_runs_without_a_first_one(meshes: Meshes, tmp_path: Path) -> None:
    mesh = await meshes.allocate(MeshSpec("warm", hosts=2, procs_per_host=2, workspace=str(tmp_path)))
    (tmp_path / "main.py").write_text(CODE)
    with anyio.fail_after(120):
        while starts(await run(mesh, "python", "main.py")) != {"warm"}:
            await anyio.sleep(0.2)
    view = await run(mesh, "python", "main.py")
    assert starts(view) == {"warm"}
    slices = await mesh.read_output(view.run, ranks=None, offsets=None, tail_bytes=100, max_bytes=100)
    assert [piece.data for piece in slices] == [b"True 2.0\n"] * 4
    assert starts(await run(mesh, "python", "main.py", warm=False)) == {"cold"}
    assert starts(await run(mesh, "true")) == {""}
    (why,) = starts(await run(mesh, "python", "-c", "import sys; print(sys.argv)"))
    assert why == "cold: it imports the standard library alone"
    (why,) = starts(await run(mesh, "python", "-v", "-c", "pass"))
    assert why == "cold: the option -v of Python"
    view = await run(mesh, "main.py", launcher="torchrun")
    assert starts(view) == {""}
    await mesh.release()
    assert of_mesh(mesh.id) == []
