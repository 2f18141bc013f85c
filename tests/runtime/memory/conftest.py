from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.memory.peers import Peer, open_peer


@pytest.fixture(scope="module")
def owner() -> Iterator[Peer]:
    """A process that owns buffers, and offers them to other hosts too; tests leave it alive."""
    with open_peer(MILKWEED_BUFFER_ADDRESS="127.0.0.1") as peer:
        yield peer


@pytest.fixture
def mortal() -> Iterator[Peer]:
    """One of a test's own, to stop, to kill."""
    with open_peer(MILKWEED_BUFFER_ADDRESS="127.0.0.1") as peer:
        yield peer
