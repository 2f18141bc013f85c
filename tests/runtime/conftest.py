from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places
from tests.real_meshes import open_places, open_real_meshes


@pytest.fixture
def places() -> Iterator[Places]:
    """State and runtime directories of this test alone."""
    with open_places() as opened:
        yield opened


@pytest.fixture
async def meshes(places: Places) -> AsyncIterator[Meshes]:
    """The client; whatever mesh a test leaves is released."""
    async with open_real_meshes(places) as opened:
        yield opened
