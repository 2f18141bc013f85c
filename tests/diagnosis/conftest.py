"""Meshes of real processes for the cases."""

from collections.abc import AsyncIterator, Iterator

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places
from tests.real_meshes import open_places, open_real_meshes


@pytest.fixture
def places() -> Iterator[Places]:
    with open_places() as opened:
        yield opened


@pytest.fixture
async def meshes(places: Places) -> AsyncIterator[Meshes]:
    async with open_real_meshes(places) as opened:
        yield opened
