"""Completion of arguments through an in-memory client, in both protocol eras."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from milkweed.runtime.records import Exit, MeshSpec, RunRequest
from milkweed.server.app import create_server
from milkweed.server.completions import choose
from milkweed.server.transcripts.library import Library
from milkweed.tools.registry import Registry
from tests.fakes import FakeMeshes, FakeRun, end_run

pytestmark = pytest.mark.anyio

RUN = types.ResourceTemplateReference(uri="run://{run}/rank/{rank}/output")
MESH = types.ResourceTemplateReference(uri="mesh://{mesh}")
HANG = types.PromptReference(name="debug_hang")


class RunningMeshes(FakeMeshes):
    def on_start(self, run: FakeRun) -> None:
        """It does not end by itself."""


@pytest.fixture
def meshes() -> RunningMeshes:
    return RunningMeshes()


@pytest.fixture(params=["legacy", "auto"])
async def client(
    request: pytest.FixtureRequest, meshes: RunningMeshes, tmp_path: Path
) -> AsyncIterator[Client]:
    library = Library(beside=tmp_path)
    server = create_server(meshes.open, Registry.load(), library=library)  # type: ignore[arg-type]
    with anyio.fail_after(20):
        async with Client(server, mode=request.param) as client:
            yield client


async def complete(
    client: Client,
    ref: types.ResourceTemplateReference | types.PromptReference,
    name: str,
    value: str = "",
    **given: str,
) -> list[str]:
    found = await client.complete(ref, {"name": name, "value": value}, given or None)
    return list(found.completion.values)


async def test_ids_are_completed_the_running_first(
    client: Client, meshes: RunningMeshes, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(MeshSpec("t", 1, 3, workspace=str(tmp_path)), wait_s=1)
    old, new = [(await mesh.start_run(RunRequest(argv=("x",)))).run for _ in range(2)]
    end_run(mesh.held[new], "succeeded", Exit(code=0))
    assert await complete(client, MESH, "mesh") == [mesh.id]
    assert await complete(client, MESH, "mesh", "mesh-u") == []
    assert await complete(client, HANG, "run") == [old, new]
    assert await complete(client, RUN, "rank", run=old) == ["0", "1", "2"]
    assert await complete(client, RUN, "rank", run="run-none") == []
    deploy = types.PromptReference(name="deploy_training")
    assert await complete(client, deploy, "workspace") == [str(tmp_path)]
    assert await complete(client, deploy, "command", "python") == []


async def test_files_and_transcripts_are_completed(
    client: Client, meshes: RunningMeshes, tmp_path: Path
) -> None:
    for mesh in ("mesh-a", "mesh-b"):
        (tmp_path / mesh).mkdir()
        (tmp_path / mesh / f"{mesh}.svg").write_text("<svg/>")
        meshes.profile_directories[mesh] = tmp_path / mesh
    profile = types.ResourceTemplateReference(uri="profile://{mesh}/{file}")
    assert await complete(client, profile, "file", mesh="mesh-b") == ["mesh-b.svg"]
    assert sorted(await complete(client, profile, "mesh")) == ["mesh-a", "mesh-b"]
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "hang.jsonl").write_text("{}\n")
    transcript = types.ResourceTemplateReference(uri="transcript://{name}")
    assert await complete(client, transcript, "name", "ha") == ["hang"]


@given(st.lists(st.text("ab-", max_size=4)), st.text("ab-", max_size=2))
def test_each_is_there_once_and_those_that_begin_so_come_first(candidates: list[str], value: str) -> None:
    values = choose(candidates, value).values
    assert sorted(values) == sorted({one for one in candidates if value in one})
    begins = [one.startswith(value) for one in values]
    assert begins == sorted(begins, reverse=True)


def test_no_more_are_sent_than_the_protocol_allows() -> None:
    found = choose([f"run-{number}" for number in range(250)], "run")
    assert (len(found.values), found.total, found.has_more) == (100, 250, True)
