from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milkweed.runtime.mounts import in_the_way, probe

from .stage import short_directory


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path


@pytest.fixture(scope="session")
def _mends() -> str:
    return "; ".join(f"{one.problem}: {one.mend}" for one in in_the_way(probe()))


@pytest.fixture
def fuse(_mends: str) -> None:
    """For tests that mount, which not every machine allows."""
    if _mends:
        pytest.skip(_mends)
