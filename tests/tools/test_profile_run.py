"""profile_run: on samples that hosts could answer, and on real ranks."""

from __future__ import annotations

import gzip
import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Conflict, InvalidArgument
from milkweed.runtime.profiling import RankProfile, TorchProfile
from milkweed.runtime.records import MeshSpec, RunRequest
from milkweed.tools.registry import Call, Registry, Text
from tests.fakes import FakeMesh, FakeMeshes
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio

PROGRAM = """
def hot():
    return sum(i * i for i in range(40000))
def mild():
    return sum(i * i for i in range(4000))
print("ready", flush=True)
while True:
    hot()
    mild()
"""


def folded(rank: int, workspace: Path, step: int, load: int) -> str:
    head = f'process {100 + rank}:"python train.py";main ({workspace}/train.py:4)'
    return f"{head};step ({workspace}/train.py:2) {step}\n{head};load ({workspace}/data.py:1) {load}\n"


@pytest.fixture
async def run(ask: Ask, meshes: FakeMeshes, mesh: FakeMesh, tmp_path: Path) -> str:
    """Four ranks, of which rank 3 spends its time in `load`."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "train.py").write_text("def step(x):\n    return model(x)\n\nmain()\n")
    mesh.state = replace(mesh.state, spec=replace(mesh.state.spec, workspace=str(workspace)))
    mesh.profiles = tmp_path / "data" / mesh.id / "profiles"
    meshes.on_start = lambda run: None  # type: ignore[method-assign]
    mesh.profiled = tuple(
        RankProfile(
            rank,
            rank // 2,
            100 + rank,
            folded(rank, workspace, *((400, 60) if rank < 3 else (60, 400))),
            5.0,
            100,
        )
        for rank in range(4)
    )
    return str((await ask("run_on_mesh", mesh="demo", command="x", wait_s=0)).run)


async def test_hot_lines_come_with_their_source_and_the_rank_that_differs_first(ask: Ask, run: str) -> None:
    text = (await ask("profile_run", run=run)).text
    lines = text.splitlines()
    assert lines[0].startswith(f"{run}: 5 s at 100 samples a second")
    assert lines[1].startswith("rank 3 differs: 87 % in load (data.py), elsewhere 13 %") or lines[
        1
    ].startswith("rank 3 differs: 13 % in step (train.py), elsewhere 87 %")
    assert "rank 3 (460 samples of 500 possible):" in lines
    assert "ranks 0-2 (1,380 samples, 460 a rank of 1,500 possible):" in lines
    assert "  87 % step (train.py:2): return model(x)" in lines
    assert len(text.encode()) <= 2048


async def test_its_files_can_be_opened(ask: Ask, run: str, mesh: FakeMesh) -> None:
    text = (await ask("profile_run", run=run)).text
    directory = mesh.profiles
    (graph,), (scope,) = directory.glob("*.svg"), directory.glob("*.speedscope.json")
    assert f"files in {directory}, and resources (profile://{mesh.id}/FILE):" in text
    assert graph.name in text
    assert scope.name in text
    assert "rank 3" in graph.read_text()
    ET.fromstring(graph.read_text())
    names = [one["name"] for one in json.loads(scope.read_text())["profiles"]]
    assert names == ["all ranks", "rank 0", "rank 1", "rank 2", "rank 3"]
    assert directory.stat().st_mode & 0o077 == 0


async def test_profiles_that_end_in_the_same_second_have_files_of_their_own(
    ask: Ask, run: str, mesh: FakeMesh
) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(partial(ask, "profile_run", run=run))
    names = {path.name for path in mesh.profiles.iterdir()}
    assert len([name for name in names if name.endswith(".svg")]) == 3
    assert len([name for name in names if name.endswith(".speedscope.json")]) == 3
    assert len(names) == 6


async def test_ranks_without_a_profile_are_told_and_the_others_stand(
    ask: Ask, run: str, mesh: FakeMesh
) -> None:
    gone = "host 1 does not answer"
    mesh.profiled = (*mesh.profiled[:2], *(RankProfile(rank, 1, 0, error=gone) for rank in (2, 3)))
    text = (await ask("profile_run", run=run)).text
    assert f"ranks 2-3: no profile: {gone}" in text
    assert "ranks 0-1 (920 samples" in text


async def test_where_nothing_was_sampled_there_are_no_files(ask: Ask, run: str, mesh: FakeMesh) -> None:
    mesh.profiled = tuple(RankProfile(rank, 0, 0, error="the process has ended") for rank in range(4))
    text = (await ask("profile_run", run=run)).text
    assert "ranks 0-3: no profile: the process has ended" in text
    assert "files in" not in text


async def test_a_disk_that_takes_no_files_costs_no_answer(ask: Ask, run: str, mesh: FakeMesh) -> None:
    mesh.profiles = Path("/proc/nowhere")
    text = (await ask("profile_run", run=run)).text
    assert "87 % step" in text
    assert "cannot be written" in text


async def test_many_ranks_and_long_names_are_at_most_two_kilobytes(
    ask: Ask, run: str, mesh: FakeMesh
) -> None:
    name = "a_rather_long_name_of_a_function" * 4
    mesh.profiled = tuple(
        RankProfile(
            rank,
            0,
            100,
            "".join(f"{name}{at}_{rank} (/somewhere/long/{name}/{at}.py:{at + 1}) 50\n" for at in range(20)),
            5.0,
            100,
        )
        for rank in range(4)
    )
    text = (await ask("profile_run", run=run)).text
    assert len(text.encode()) <= 2048
    assert "files in" in text


async def test_torchs_operations_are_told_with_their_trace(ask: Ask, run: str, mesh: FakeMesh) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 0, "dur": 5}]
    trace = gzip.compress(json.dumps({"traceEvents": events}).encode())
    first, second, *_ = mesh.profiled
    problem = TorchProfile(problem="it has not imported torch")
    mesh.profiled = (replace(first, torch=TorchProfile(trace)), replace(second, torch=problem))
    text = (await ask("profile_run", run=run, torch=True, ranks="0-1")).text
    assert "torch on the CPU, own time of operations, rank 0: 100 % aten::mm (1 times)" in text
    assert "rank 1: no torch profile: it has not imported torch" in text
    (file,) = (mesh.profiles).glob("*.rank-0.trace.json.gz")
    assert file.name in text
    assert gzip.decompress(file.read_bytes()) == gzip.decompress(trace)


async def test_what_cannot_be_profiled_is_refused(ask: Ask, run: str, meshes: FakeMeshes) -> None:
    with pytest.raises(InvalidArgument, match="seconds must be a number between 1 and 30"):
        await ask("profile_run", run=run, seconds=31)
    await ask("cancel_run", run=run)
    with pytest.raises(Conflict, match="no process left"):
        await ask("profile_run", run=run)


@pytest.fixture
def real_ask(real: Meshes) -> Ask:
    registry = Registry.load("debug")

    async def report(done: float, total: float | None, message: str) -> None:
        return None

    async def ask(tool: str, /, **arguments: object) -> Text:
        answer = await registry.find(tool)(Call(real, report, "tester"), arguments)
        assert isinstance(answer, Text)
        return answer

    return ask


async def start(real: Meshes, workspace: Path) -> tuple[str, str]:
    (workspace / "busy.py").write_text(PROGRAM)
    mesh = await real.allocate(MeshSpec("t", 2, 1, workspace=str(workspace)))
    run = await mesh.start_run(RunRequest(("python", "busy.py")))
    ready = await mesh.wait_run(run.run, until="output", pattern="ready", timeout_s=20)
    assert ready.ended_at is None

    async def both() -> bool:
        slices = await mesh.read_output(run.run)
        return all(b"ready" in one.data for one in slices) and len(slices) == 2

    with anyio.fail_after(20):
        while not await both():
            await anyio.sleep(0.05)
    return mesh.id, run.run


async def test_the_hotter_of_two_functions_comes_first(real: Meshes, real_ask: Ask, tmp_path: Path) -> None:
    mesh, run = await start(real, tmp_path)
    text = (await real_ask("profile_run", run=run, seconds=1.0)).text
    first = next(line for line in text.splitlines() if " % " in line and "busy.py" in line)
    assert "hot" in first
    assert "range(40000)" in text
    files = await real.profiles(10)
    assert {one.path.suffix for one in files} == {".svg", ".json"}
    await (await real.get(mesh)).release()
    assert await real.profiles(10) == files
    assert await real.find_profile(mesh, files[0].name) == files[0]
    assert await real.find_profile("mesh-none-abc", files[0].name) is None


async def test_a_host_that_is_stopped_is_told_in_time_and_the_other_stands(
    real: Meshes, real_ask: Ask, tmp_path: Path
) -> None:
    mesh, run = await start(real, tmp_path)
    agent = (await (await real.get(mesh)).view()).hosts[1].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)
    try:
        with anyio.fail_after(44):
            text = (await real_ask("profile_run", run=run, seconds=1.0)).text
    finally:
        os.kill(agent, signal.SIGCONT)
    assert "rank 1: no profile: " in text
    assert "rank 0 (" in text
    assert "range(40000)" in text
