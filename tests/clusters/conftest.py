"""Meshes on a real Slurm. Run by `make test-clusters`, and in no other run of pytest."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places
from milkweed.tools.registry import Answer, Call, Registry
from tests.clusters.slurm import Slurm, open_slurm
from tests.real_meshes import open_places, open_real_meshes

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Slurm]:
    """One for all tests of this process, whose commands find it."""
    with open_slurm() as slurm:
        os.environ.update(slurm.env)
        try:
            yield slurm
        finally:
            for name in slurm.env:
                os.environ.pop(name)


@pytest.fixture
def slurm(cluster: Slurm) -> Iterator[Slurm]:
    """All nodes idle at first; mended at the end."""
    yield cluster
    cluster.mend()


@pytest.fixture
def places(slurm: Slurm) -> Iterator[Places]:
    """State and runtime directories of this test alone."""
    with open_places() as opened:
        yield opened


@pytest.fixture
async def meshes(places: Places) -> AsyncIterator[Meshes]:
    async with open_real_meshes(places) as opened:
        yield opened


@pytest.fixture
def ask(meshes: Meshes) -> Ask:
    """`await ask("list_meshes")`: the answer of a tool, its arguments checked."""
    registry = Registry.load()

    async def report(_done: float, _total: float | None, _message: str) -> None:
        pass

    async def ask(tool: str, /, **arguments: Any) -> Answer:
        return await registry.find(tool)(Call(meshes, report, "tester"), arguments)  # type: ignore[arg-type]

    return ask
