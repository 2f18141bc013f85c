"""Tests over real verbs. They run in the guest, by `make test-rdma`, and in no other run of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rdma.ends import DEVICES, SIZE, End, open_end
from tests.runtime.memory.peers import Peer, open_peer, pattern


@pytest.fixture(scope="session", autouse=True)
def _in_the_guest() -> None:
    missing = [device for device in DEVICES if not Path("/sys/class/infiniband", device).exists()]
    assert not missing, f"no {' and '.join(missing)} here: these tests are run by `make test-rdma`"


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    """An owner of random bytes at one device, and another one at the other, connected."""
    with (
        open_end("rxe0", pattern(1, SIZE).tobytes()) as owner,
        open_end("rxe1", pattern(2, SIZE).tobytes()) as other,
    ):
        owner.connect(other)
        yield owner, other


@pytest.fixture
def beyond() -> Iterator[Peer]:
    """A process that uses the other device, and offers its buffers there; to stop, to kill."""
    with open_peer(MILKWEED_BUFFER_ADDRESS=DEVICES["rxe1"], UCX_NET_DEVICES="rxe1:1") as peer:
        yield peer
