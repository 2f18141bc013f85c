"""The MCP application through an in-memory client, in both protocol eras."""

import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

import anyio
import pytest
from mcp import Client
from pydantic import Field

from milkweed.runtime.errors import NotFound, RemoteFailure
from milkweed.server.app import create_server
from milkweed.server.instructions import INSTRUCTIONS
from milkweed.tools.registry import Call, Registry, Text, Tool, tool
from tests.fakes import FakeMeshes

pytestmark = pytest.mark.anyio

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@tool("test", read_only=True)
async def echo(call: Call, words: Annotated[str, Field(description="to say")], count: int = 1) -> Text:
    """Says words."""
    return Text(words * count)


@tool("test")
async def fail(call: Call, how: str) -> Text:
    """Fails in several ways."""
    errors: dict[str, Exception] = {
        "ours": NotFound("mesh_not_found", "no mesh 'x'", "Call list_meshes."),
        "grouped": ExceptionGroup(
            "several", [ExceptionGroup("one", [NotFound("run_not_found", "no run", "Call list_runs.")])]
        ),
        "remote": RemoteFailure("internal_error", "KeyError on host 3", "Look there.", "SECRET TRACEBACK"),
        "bug": ZeroDivisionError("SECRET DETAIL"),
        "timeout": TimeoutError("SECRET"),
        "long": NotFound("mesh_not_found", "x" * 100_000, ""),
    }
    raise errors[how]


class Slow:
    """A tool that never answers, and tells whether it was cancelled."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.cancelled = anyio.Event()

    def tool(self) -> Tool:
        async def slow(call: Call) -> Text:
            """Never ends."""
            await call.report(3, 10, "three of ten")
            self.began.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()

        return tool("test", read_only=True)(slow)


@pytest.fixture(params=["legacy", "auto"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """`async with connect(*tools) as client`; without tools, the default toolsets on meshes in memory."""

    @asynccontextmanager
    async def connect(
        *tools: Tool, meshes: FakeMeshes | None = None, read_only: bool = False, **options: float
    ) -> AsyncIterator[Client]:
        registry = Registry(tools, read_only=read_only) if tools else Registry.load(read_only=read_only)
        open_meshes: Any = (meshes or FakeMeshes()).open
        with anyio.fail_after(20):
            async with Client(create_server(open_meshes, registry, **options), mode=request.param) as client:
                yield client

    return connect


def text_of(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


async def test_the_default_toolsets_are_listed(connect: Connect) -> None:
    async with connect() as client:
        tools = (await client.list_tools()).tools
    assert [item.name for item in tools] == [item.name for item in Registry.load().tools]
    assert all(item.output_schema is None for item in tools)
    release = next(item for item in tools if item.name == "release_mesh")
    assert release.annotations is not None
    assert release.annotations.model_dump() == {
        "title": "Release mesh",
        "read_only_hint": False,
        "destructive_hint": True,
        "idempotent_hint": True,
        "open_world_hint": False,
    }


async def test_instructions_are_given(connect: Connect) -> None:
    async with connect() as client:
        assert client.instructions == INSTRUCTIONS


async def test_the_main_calls_work_end_to_end(connect: Connect) -> None:
    async with connect() as client:
        mesh = await client.call_tool("allocate_mesh", {"name": "demo", "hosts": 2})
        assert mesh.structured_content["state"] == "ready"
        assert text_of(mesh).startswith(mesh.structured_content["mesh"])
        run = await client.call_tool("run_on_mesh", {"mesh": "demo", "command": "python train.py"})
        assert run.structured_content["state"] == "succeeded"
        output = await client.call_tool("read_run_output", {"run": run.structured_content["run"]})
        assert output.structured_content is None
        assert "hello" in text_of(output)
        released = await client.call_tool("release_mesh", {"mesh": "demo"})
        assert released.structured_content["state"] == "released"


async def test_meshes_are_opened_once(connect: Connect) -> None:
    meshes = FakeMeshes()
    async with connect(meshes=meshes) as client:
        for _ in range(5):
            await client.call_tool("list_meshes", {})
    assert meshes.opened == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"wrods": "x"}, "unknown argument 'wrods' (did you mean words)"),
        ({"words": 3}, "words must be text, got 3"),
        ({"words": "x", "count": "2"}, "count must be an integer, got '2'"),
        (None, "missing argument 'words' (to say)"),
    ],
)
async def test_wrong_arguments_are_explained(connect: Connect, arguments: Any, told: str) -> None:
    async with connect(echo) as client:
        result = await client.call_tool("echo", arguments)
    assert result.is_error
    assert text_of(result).startswith("invalid_argument: echo: ")
    assert told in text_of(result)
    assert "pydantic" not in text_of(result)


async def test_an_unknown_tool_is_an_error_that_names_the_nearest(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("list_mesh", {})
    assert result.is_error
    assert text_of(result).startswith("tool_not_found: no tool 'list_mesh'. Did you mean list_meshes?")


async def test_a_read_only_server_refuses_what_changes_something(connect: Connect) -> None:
    meshes = FakeMeshes()
    async with connect(meshes=meshes, read_only=True) as client:
        assert all(
            item.annotations.read_only_hint for item in (await client.list_tools()).tools if item.annotations
        )
        result = await client.call_tool("allocate_mesh", {"name": "demo"})
    assert result.is_error
    assert text_of(result).startswith("unsupported: allocate_mesh changes something")
    assert not meshes.meshes


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("ours", "mesh_not_found: no mesh 'x'. Call list_meshes."),
        ("grouped", "run_not_found: no run."),
        ("remote", "internal_error: KeyError on host 3. Look there."),
        ("bug", "internal_error: fail failed in a way that nobody foresaw (ZeroDivisionError). "),
        ("timeout", "internal_error: fail failed in a way that nobody foresaw (TimeoutError). "),
    ],
)
async def test_an_error_is_told_without_a_traceback(
    connect: Connect, caplog: pytest.LogCaptureFixture, how: str, told: str
) -> None:
    async with connect(fail) as client:
        result = await client.call_tool("fail", {"how": how})
    assert result.is_error
    assert text_of(result).startswith(told)
    assert "SECRET" not in text_of(result)
    assert ("SECRET" in caplog.text) == (how in ("remote", "bug", "timeout"))


async def test_a_long_error_is_cut(connect: Connect) -> None:
    async with connect(fail) as client:
        assert len(text_of(await client.call_tool("fail", {"how": "long"}))) == 4000


async def test_text_that_json_cannot_carry_is_mended(connect: Connect) -> None:
    @tool("test")
    async def surrogates(call: Call) -> Text:
        """Answers a file name that is no text."""
        return Text(b"na\xffme".decode("utf-8", "surrogateescape"))

    async with connect(surrogates) as client:
        assert text_of(await client.call_tool("surrogates", {})) == "na?me"


async def test_progress_is_reported_and_goes_on(connect: Connect) -> None:
    slow = Slow()
    heard: list[tuple[float, float | None, str | None]] = []
    enough = anyio.Event()

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))
        if len(heard) >= 4:
            enough.set()

    async with connect(slow.tool(), heartbeat_s=0.02) as client, anyio.create_task_group() as group:

        async def ask() -> None:
            await client.call_tool("slow", {}, progress_callback=hear)

        group.start_soon(ask)
        await enough.wait()
        group.cancel_scope.cancel()
    assert heard[0] == (3, 10, "three of ten")
    assert all(message and message.startswith("three of ten, ") for _, _, message in heard[1:])
    values = [done for done, _, _ in heard]
    assert values == sorted(set(values))


async def test_cancelling_the_request_cancels_the_tool(connect: Connect) -> None:
    slow = Slow()
    async with connect(slow.tool()) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "slow", {})
            await slow.began.wait()
            group.cancel_scope.cancel()
        await slow.cancelled.wait()


async def test_every_call_has_a_deadline(connect: Connect) -> None:
    slow = Slow()
    async with connect(slow.tool(), call_deadline_s=0.05) as client:
        result = await client.call_tool("slow", {})
    assert result.is_error
    assert text_of(result).startswith("deadline_exceeded: slow had no answer within 0.05 s. ")
    assert "list_meshes" in text_of(result)
    assert slow.cancelled.is_set()


def test_no_caller_waits_longer_than_promised_without_a_word() -> None:
    defaults = inspect.signature(create_server).parameters
    assert defaults["heartbeat_s"].default <= 10
    assert defaults["call_deadline_s"].default <= 45


async def test_calls_run_side_by_side(connect: Connect) -> None:
    slow = Slow()
    async with connect(slow.tool(), echo) as client, anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "slow", {})
        await slow.began.wait()
        assert text_of(await client.call_tool("echo", {"words": "hi"})) == "hi"
        group.cancel_scope.cancel()


async def test_meshes_that_cannot_be_opened_are_an_error_of_each_call(connect: Connect) -> None:
    attempts = 0

    class Broken(FakeMeshes):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[FakeMeshes]:
            nonlocal attempts
            attempts += 1
            if attempts < 3:
                raise NotFound("disk_full", "no room", "Make some.")
            yield self

    async with connect(meshes=Broken()) as client:
        assert len((await client.list_tools()).tools) == len(Registry.load().tools)
        first = await client.call_tool("list_meshes", {})
        assert (first.is_error, text_of(first)) == (True, "disk_full: no room. Make some.")
        assert not (await client.call_tool("list_meshes", {})).is_error
    assert attempts == 3


async def test_the_list_of_tools_costs_few_tokens(connect: Connect) -> None:
    async with connect() as client:
        tools = (await client.list_tools()).tools
    wire = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in tools]
    assert len(json.dumps(wire, separators=(",", ":"))) / 4 < 4700
    assert all(len((item.description or "").encode()) < 2048 for item in tools)
    assert len(INSTRUCTIONS.encode()) < 2048
