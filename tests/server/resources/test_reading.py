"""Resources of meshes and runs through an in-memory client, in both protocol eras."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from milkweed.runtime.records import Exit, Frame, ProcessStacks, RunRequest, ThreadStack
from tests.fakes import FakeMesh, end_run, event
from tests.server.resources.conftest import Connect

pytestmark = pytest.mark.anyio

SESSION = """\
{"kind": "header", "format": 1, "title": "How a hang was found"}
{"kind": "say", "text": "Four ranks hang."}
{"kind": "tool", "name": "stack_dump", "arguments": {"target": "run-a"}, "text": "0-3 at train.py:7"}
"""


async def read(client: Client, uri: str) -> str:
    (one,) = (await client.read_resource(uri)).contents
    return one.text  # type: ignore[union-attr]


async def start(mesh: FakeMesh) -> str:
    return (await mesh.start_run(RunRequest(argv=("python", "train.py")))).run


async def test_a_mesh_is_told_as_by_its_tool(connect: Connect, mesh: FakeMesh) -> None:
    async with connect() as client:
        told = json.loads(await read(client, f"mesh://{mesh.id}"))
        assert (told["mesh"], told["state"], told["world_size"]) == (mesh.id, "ready", 4)
        assert json.loads(await read(client, "mesh://t"))["mesh"] == mesh.id
        tool = await client.call_tool("mesh_status", {"mesh": mesh.id})
        assert tool.structured_content is not None
        assert told.keys() == tool.structured_content.keys()


async def test_a_run_is_told_while_it_runs_and_after(connect: Connect, mesh: FakeMesh) -> None:
    run = await start(mesh)
    async with connect() as client:
        assert json.loads(await read(client, f"run://{run}"))["state"] == "running"
        end_run(mesh.held[run], "failed", Exit(code=3), ranks=[1])
        told = json.loads(await read(client, f"run://{run}"))
        assert (told["state"], told["first_failure"]["rank"]) == ("failed", 1)


async def test_output_is_that_of_one_rank(connect: Connect, mesh: FakeMesh) -> None:
    run = await start(mesh)
    mesh.held[run].output[2] = b"loss \x1b[31m0.5\x1b[0m\n"
    async with connect() as client:
        text = await read(client, f"run://{run}/rank/2/output")
        assert "loss 0.5" in text
        assert "step" not in text
        for rank in ("9", "x", "0-1", "-1"):
            with pytest.raises(MCPError) as raised:
                await read(client, f"run://{run}/rank/{rank}/output")
            assert raised.value.error.code == -32602


async def test_stacks_are_those_of_a_run_that_runs(connect: Connect, mesh: FakeMesh) -> None:
    run = await start(mesh)
    thread = ThreadStack("MainThread", (Frame("train", "/w/train.py", 7),), main=True)
    mesh.dumped = tuple(ProcessStacks(rank, 0, 100 + rank, threads=(thread,)) for rank in range(4))
    async with connect() as client:
        assert "train.py:7" in await read(client, f"run://{run}/stacks")
        end_run(mesh.held[run], "succeeded", Exit(code=0))
        with pytest.raises(MCPError, match=r"run_ended"):
            await read(client, f"run://{run}/stacks")


async def test_events_are_lines(connect: Connect, mesh: FakeMesh) -> None:
    async with connect() as client:
        assert "nothing happened" in await read(client, f"events://{mesh.id}")
        mesh.happened = (event("rank_started", run="run-a", rank=0), event("run_ended", run="run-a"))
        first, last = (await read(client, f"events://{mesh.id}")).splitlines()
        assert "rank_started run-a rank 0" in first
        assert "run_ended" in last


async def test_a_transcript_is_read_as_text(connect: Connect, mesh: FakeMesh, tmp_path: Path) -> None:
    (tmp_path / "transcripts" / "hang").mkdir(parents=True)
    (tmp_path / "transcripts" / "hang" / "session.jsonl").write_text(SESSION)
    (tmp_path / "transcripts" / "cut.jsonl").write_text(SESSION[:-9])
    async with connect() as client:
        text = await read(client, "transcript://hang")
        assert text.startswith("# How a hang was found\n")
        assert 'stack_dump(target="run-a")' in text
        assert "0-3 at train.py:7" in text
        with pytest.raises(MCPError, match=r"transcript_unreadable: step 2 of cut .* is cut"):
            await read(client, "transcript://cut")
        with pytest.raises(MCPError, match=r"transcript_not_found.*transcripts: cut, hang"):
            await read(client, "transcript://none")


async def test_the_list_names_live_meshes_their_runs_and_transcripts(
    connect: Connect, mesh: FakeMesh, tmp_path: Path
) -> None:
    run = await start(mesh)
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "hang.jsonl").write_text(SESSION)
    async with connect() as client:
        uris = [str(one.uri) for one in (await client.list_resources()).resources]
        assert uris == [f"mesh://{mesh.id}", f"events://{mesh.id}", f"run://{run}", "transcript://hang"]
        for uri in uris:
            assert await read(client, uri)


async def test_a_released_mesh_is_not_listed_but_can_be_read(connect: Connect, mesh: FakeMesh) -> None:
    mesh.state = replace(mesh.state, state="released")
    async with connect() as client:
        assert (await client.list_resources()).resources == []
        assert json.loads(await read(client, f"mesh://{mesh.id}"))["state"] == "released"


@pytest.mark.parametrize("uri", ["mesh://none", "events://none", "run://run-none", "run://run-none/stacks"])
async def test_what_there_is_not_is_told_in_the_words_of_tools(connect: Connect, uri: str) -> None:
    async with connect() as client:
        with pytest.raises(MCPError, match=r"(mesh|run)_not_found: no (mesh|run) .*Call list_") as raised:
            await read(client, uri)
        assert raised.value.error.code == -32602
        assert raised.value.error.data == {"uri": uri}
