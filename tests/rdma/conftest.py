"""Tests over real verbs. They run in the guest, by `make test-rdma`, and in no other run of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def _at(device: str, **env: str) -> Iterator[Peer]:
    with open_peer(MILKWEED_BUFFER_ADDRESS=DEVICES[device], UCX_NET_DEVICES=f"{device}:1", **env) as peer:
        yield peer


@pytest.fixture
def beyond() -> Iterator[Peer]:
    """A process that uses the other device, and offers its buffers there; to stop, to kill."""
    with _at("rxe1") as peer:
        yield peer


@pytest.fixture
def near() -> Iterator[Peer]:
    """One at this device, which connects as it does by default."""
    with _at("rxe0") as peer:
        yield peer


@pytest.fixture(params=["cm", "address"])
def connecting(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """One at this device, which connects by rdma_cm, or by addresses."""
    with _at("rxe0", MILKWEED_RDMA=request.param) as peer:
        yield peer
