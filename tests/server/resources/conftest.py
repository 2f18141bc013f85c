"""A server over meshes in memory, and a client of it in each protocol era."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from milkweed.runtime.records import MeshSpec
from milkweed.server.app import create_server
from milkweed.server.transcripts.library import Library
from milkweed.tools.registry import Registry
from tests.fakes import FakeMesh, FakeMeshes, FakeRun

Connect = Callable[..., AbstractAsyncContextManager[Client]]


class RunningMeshes(FakeMeshes):
    """Runs do not end by themselves."""

    def on_start(self, run: FakeRun) -> None:
        run.output = {rank: f"step {rank}\n".encode() for rank in run.output}


@pytest.fixture
def meshes() -> RunningMeshes:
    return RunningMeshes()


@pytest.fixture
async def mesh(meshes: RunningMeshes, tmp_path: Path) -> FakeMesh:
    return await meshes.allocate(MeshSpec("t", 2, 2, workspace=str(tmp_path)), wait_s=1)


@pytest.fixture(params=["legacy", "auto"])
def connect(request: pytest.FixtureRequest, meshes: RunningMeshes, tmp_path: Path) -> Connect:
    @asynccontextmanager
    async def connect(**options: Any) -> AsyncIterator[Client]:
        server = create_server(
            meshes.open,  # type: ignore[arg-type]
            Registry.load(),
            look_s=0.01,
            library=Library(beside=tmp_path),
        )
        with anyio.fail_after(20):
            async with Client(server, mode=request.param, **options) as client:
                yield client

    return connect
