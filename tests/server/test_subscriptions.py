"""Notifications of changes, in both protocol eras."""

import warnings
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from milkweed.runtime.pulse import Changes
from milkweed.runtime.records import Exit, MeshSpec, RunRequest
from milkweed.server.app import create_server
from milkweed.server.resources.addresses import parse
from milkweed.server.subscriptions import concerns
from milkweed.tools.registry import Registry
from tests.fakes import FakeMesh, FakeMeshes, FakeRun, end_run, event

pytestmark = pytest.mark.anyio


class RunningMeshes(FakeMeshes):
    def on_start(self, run: FakeRun) -> None:
        """It does not end by itself."""


class Heard:
    """What a client was told, in order: the addresses of updates, and `list`."""

    def __init__(self) -> None:
        self._told: deque[str] = deque()
        self._more = anyio.Event()

    def _tell(self, what: str) -> None:
        self._told.append(what)
        self._more.set()

    async def handshake_era(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self._tell(str(message.params.uri))
        elif isinstance(message, types.ResourceListChangedNotification):
            self._tell("list")

    def listened(self, one: Any) -> None:
        if isinstance(one, ResourceUpdated):
            self._tell(one.uri)
        elif isinstance(one, ResourcesListChanged):
            self._tell("list")

    async def next(self) -> str:
        while not self._told:
            self._more = anyio.Event()
            await self._more.wait()
        return self._told.popleft()

    async def until(self, wanted: str) -> list[str]:
        """All until that one."""
        heard = [await self.next()]
        while heard[-1] != wanted:
            heard.append(await self.next())
        return heard


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def subscribed(meshes: FakeMeshes, mode: str, *uris: str) -> AsyncIterator[Heard]:
    heard = Heard()
    server = create_server(meshes.open, Registry.load(), look_s=0.01)  # type: ignore[arg-type]
    by_connection = heard.handshake_era if mode == "legacy" else None  # what is streamed comes there too
    with anyio.fail_after(20):
        async with Client(server, mode=mode, message_handler=by_connection) as client:
            await client.list_resources()
            if mode == "legacy":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for uri in uris:
                        await client.subscribe_resource(uri)
                yield heard
                return
            async with (
                client.listen(resources_list_changed=True, resource_subscriptions=uris) as events,
                anyio.create_task_group() as tasks,
            ):

                async def forward() -> None:
                    async for one in events:
                        heard.listened(one)

                tasks.start_soon(forward)
                yield heard
                tasks.cancel_scope.cancel()


@pytest.fixture
def meshes() -> RunningMeshes:
    return RunningMeshes()


@pytest.fixture
async def mesh(meshes: RunningMeshes, tmp_path: Path) -> FakeMesh:
    return await meshes.allocate(MeshSpec("t", 1, 2, workspace=str(tmp_path)), wait_s=1)


async def start(mesh: FakeMesh) -> str:
    return (await mesh.start_run(RunRequest(argv=("train",)))).run


async def test_a_new_mesh_and_a_new_run_change_the_list(
    meshes: RunningMeshes, mode: str, tmp_path: Path
) -> None:
    async with subscribed(meshes, mode) as heard:
        mesh = await meshes.allocate(MeshSpec("u", 1, 1, workspace=str(tmp_path)), wait_s=1)
        assert await heard.next() == "list"
        await start(mesh)
        assert await heard.next() == "list"


async def test_a_run_that_was_subscribed_to_is_told_when_it_ends(
    meshes: RunningMeshes, mesh: FakeMesh, mode: str
) -> None:
    run, other = await start(mesh), await start(mesh)
    async with subscribed(meshes, mode, f"run://{run}", f"run://{run}/stacks") as heard:
        end_run(mesh.held[other], "succeeded", Exit(code=0))
        end_run(mesh.held[run], "failed", Exit(code=1))
        assert {await heard.next(), await heard.next()} == {f"run://{run}", f"run://{run}/stacks"}


async def test_output_is_told_when_it_grows(meshes: RunningMeshes, mesh: FakeMesh, mode: str) -> None:
    run = await start(mesh)
    uri = f"run://{run}/rank/1/output"
    async with subscribed(meshes, mode, uri, f"run://{run}/rank/7/output") as heard:
        mesh.held[run].output[0] += b"not asked for\n"
        for line in (b"first\n", b"second\n"):
            mesh.held[run].output[1] += line
            assert await heard.next() == uri


async def test_a_mesh_and_its_events_are_told_also_by_its_name(
    meshes: RunningMeshes, mesh: FakeMesh, mode: str
) -> None:
    async with subscribed(meshes, mode, "mesh://t", f"events://{mesh.id}") as heard:
        mesh.happened = (event("host_lost"),)
        assert {await heard.next(), await heard.next()} == {"mesh://t", f"events://{mesh.id}"}
        mesh.state = replace(mesh.state, state="released")
        assert "mesh://t" in await heard.until("mesh://t")


async def test_what_can_be_no_resource_cannot_be_subscribed_to(meshes: RunningMeshes) -> None:
    server = create_server(meshes.open, Registry.load())  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        async with Client(server, mode="legacy") as client:
            with pytest.raises(MCPError, match=r"resource_not_found.*templates"):
                await client.subscribe_resource("file:///etc/passwd")


async def test_unsubscribing_ends_it(meshes: RunningMeshes, mesh: FakeMesh) -> None:
    heard = Heard()
    first, second = await start(mesh), await start(mesh)
    server = create_server(meshes.open, Registry.load(), look_s=0.01)  # type: ignore[arg-type]
    with anyio.fail_after(20), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        async with Client(server, mode="legacy", message_handler=heard.handshake_era) as client:
            for run in (first, second):
                await client.subscribe_resource(f"run://{run}")
            await client.unsubscribe_resource(f"run://{first}")
            end_run(mesh.held[first], "succeeded", Exit(code=0))
            end_run(mesh.held[second], "succeeded", Exit(code=0))
            assert await heard.next() == f"run://{second}"


async def test_a_server_says_that_it_tells_of_changes(meshes: RunningMeshes, mode: str) -> None:
    server = create_server(meshes.open, Registry.load())  # type: ignore[arg-type]
    async with Client(server, mode=mode) as client:
        resources = client.server_capabilities.resources
        assert resources is not None
        assert (resources.subscribe, resources.list_changed) == (True, True)


async def test_calls_are_answered_where_changes_cannot_be_seen(meshes: RunningMeshes, mode: str) -> None:
    looks = anyio.Event()

    def broken() -> Any:
        looks.set()
        raise ValueError("no index")

    meshes.version = broken  # type: ignore[method-assign]
    server = create_server(meshes.open, Registry.load(), look_s=0.01)  # type: ignore[arg-type]
    with anyio.fail_after(20):
        async with Client(server, mode=mode) as client:
            await looks.wait()
            assert not (await client.call_tool("list_meshes", {})).is_error


def test_an_address_is_concerned_by_what_is_read_there() -> None:
    ids = {"t": "mesh-t-1"}
    changed = Changes(runs=frozenset({"run-a"}), events=frozenset({"mesh-t-1"}))
    concerned = [
        uri
        for uri in (
            "run://run-a",
            "run://run-b",
            "run://run-a/rank/0/output",
            "events://t",
            "mesh://mesh-t-1",
            "mesh://mesh-u-1",
            "profile://mesh-t-1/x.svg",
            "transcript://run-a",
        )
        if (address := parse(uri)) is not None and concerns(address, changed, ids)
    ]
    assert concerned == ["run://run-a", "run://run-a/rank/0/output", "events://t", "mesh://mesh-t-1"]
