"""Tools as an agent calls them, on meshes in memory."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from milkweed.runtime.client.meshes import Meshes
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec
from milkweed.tools.registry import Answer, Call, Registry
from tests.fakes import FakeMesh, FakeMeshes
from tests.real_meshes import open_places, open_real_meshes

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def meshes() -> FakeMeshes:
    return FakeMeshes()


@pytest.fixture
def reports() -> list[str]:
    """What the tools reported."""
    return []


@pytest.fixture
def ask(meshes: FakeMeshes, reports: list[str]) -> Ask:
    """`await ask("list_meshes")`: the answer of a tool, its arguments checked."""
    registry = Registry.load()

    async def report(done: float, total: float | None, message: str) -> None:
        reports.append(message)

    async def ask(tool: str, /, **arguments: Any) -> Answer:
        return await registry.find(tool)(Call(meshes, report, "tester"), arguments)  # type: ignore[arg-type]

    return ask


@pytest.fixture
async def mesh(meshes: FakeMeshes) -> FakeMesh:
    """Two hosts with two ranks each."""
    return await meshes.allocate(MeshSpec("demo", 2, 2, workspace="/ws"), wait_s=1)


@pytest.fixture
def places() -> Iterator[Places]:
    """State and runtime directories of this test alone."""
    with open_places() as opened:
        yield opened


@pytest.fixture
async def real(places: Places) -> AsyncIterator[Meshes]:
    """Meshes of real processes."""
    async with open_real_meshes(places) as opened:
        yield opened
