"""stack_dump, on stacks that hosts could answer; of which run stack_dump and diagnose_run tell."""

from dataclasses import replace
from pathlib import Path

import pytest

from milkweed.runtime.errors import Conflict, NotFound
from milkweed.runtime.records import Frame, ProcessStacks, ThreadStack
from tests.fakes import FakeMesh, FakeMeshes
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio


def stacks(rank: int, line: int) -> ProcessStacks:
    frames = (Frame("wait", "/usr/lib/python3/threading.py", 3), Frame("train", "/ws/train.py", line))
    return ProcessStacks(rank, rank // 2, 100 + rank, (ThreadStack("MainThread", frames, main=True),))


@pytest.fixture
async def run(ask: Ask, meshes: FakeMeshes, mesh: FakeMesh, tmp_path: Path) -> str:
    """A run that hangs: rank 3 is elsewhere."""
    mesh.state = replace(mesh.state, spec=replace(mesh.state.spec, workspace=str(tmp_path)))
    meshes.on_start = lambda run: None  # type: ignore[method-assign]
    mesh.dumped = tuple(stacks(rank, 10 if rank < 3 else 20) for rank in range(4))
    return str((await ask("run_on_mesh", mesh="demo", command="x", wait_s=0)).run)


async def test_the_odd_rank_is_in_the_first_line(ask: Ask, run: str) -> None:
    text = (await ask("stack_dump", target=run)).text
    assert text.startswith(f"{run}: ")
    assert "rank 3" in text.splitlines()[0]
    assert len(text.encode()) < 1500


async def test_a_mesh_stands_for_its_newest_run(ask: Ask, run: str, mesh: FakeMesh) -> None:
    assert (await ask("stack_dump", target=mesh.id)).text == (await ask("stack_dump", target=run)).text


async def test_a_mesh_stands_for_its_newest_run_in_a_diagnosis_too_one_that_is_over_if_none_runs(
    ask: Ask, run: str, mesh: FakeMesh
) -> None:
    assert (await ask("diagnose_run", run="demo")).run == run
    await ask("cancel_run", run=run)
    answer = await ask("diagnose_run", run=mesh.id)
    assert (answer.run, answer.state) == (run, "cancelled")


async def test_a_mesh_that_had_no_run_has_nothing_to_diagnose(ask: Ask, mesh: FakeMesh) -> None:
    with pytest.raises(NotFound, match=r"run_not_found: .* has had no run\. run_on_mesh"):
        await ask("diagnose_run", run="demo")


async def test_ranks_are_chosen(ask: Ask, run: str) -> None:
    assert "train.py:20" not in (await ask("stack_dump", target=run, ranks="0-1")).text
    with pytest.raises(NotFound, match="no rank 4"):
        await ask("stack_dump", target=run, ranks="4")


async def test_source_lines_are_those_of_the_workspace(
    ask: Ask, run: str, mesh: FakeMesh, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("pass\n" * 9 + "dist.barrier()  # here\n")
    frame = Frame("train", str(tmp_path / "train.py"), 10)
    mesh.dumped = (ProcessStacks(0, 0, 100, (ThreadStack("MainThread", (frame,), main=True),)),)
    assert "dist.barrier()" in (await ask("stack_dump", target=run)).text


async def test_a_run_that_is_over_has_no_stacks(ask: Ask, run: str, mesh: FakeMesh) -> None:
    await ask("cancel_run", run=run)
    with pytest.raises(Conflict, match=r"run_ended: .* is cancelled.*diagnose_run.*read_run_output"):
        await ask("stack_dump", target=run)
    with pytest.raises(Conflict, match="run_ended: no run is running"):
        await ask("stack_dump", target=mesh.id)
