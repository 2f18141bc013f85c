"""Which way is taken where the best one is closed, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milkweed.runtime.errors import Unavailable
from tests.runtime.memory import peers
from tests.runtime.memory.peers import Peer, open_peer, pattern


@pytest.fixture
def reader() -> Iterator[Peer]:
    with open_peer() as peer:
        yield peer


@pytest.mark.parametrize("kind", ["array", "file"])
def test_a_process_that_may_not_be_looked_into_sends_by_itself(mortal: Peer, reader: Peer, kind: str) -> None:
    mortal.call(peers.hide)
    reader.call(peers.without_ptrace)
    buffer = mortal.call(peers.filled, 1, 5000, kind)
    assert reader.call(peers.read, buffer) == pattern(1, 5000).tobytes()
    name, passed_over = reader.call(peers.way, buffer)
    assert name == "unix"
    assert "Permission denied" in passed_over["process_vm"]
    with pytest.raises(Unavailable, match=r"transport_unusable.*process_vm: .*Permission denied"):
        reader.call(peers.read, buffer.over("process_vm"))


def test_without_process_vm_what_can_be_mapped_is_mapped_and_the_rest_sent(
    mortal: Peer, reader: Peer
) -> None:
    reader.call(peers.without_process_vm)
    array, file = mortal.call(peers.filled, 1, 5000), mortal.call(peers.filled, 2, 5000, "file")
    assert reader.call(peers.read, array) == pattern(1, 5000).tobytes()
    assert reader.call(peers.read, file) == pattern(2, 5000).tobytes()
    name, passed_over = reader.call(peers.way, array)
    assert name == "unix"
    assert "Operation not permitted" in passed_over["process_vm"]
    assert reader.call(peers.way, file)[0] == "shared"


def test_the_owner_itself_copies(mortal: Peer) -> None:
    buffer = mortal.call(peers.filled, 1, 5000)
    assert mortal.call(peers.read, buffer) == pattern(1, 5000).tobytes()
    assert mortal.call(peers.way, buffer)[0] == "local"
    with pytest.raises(Unavailable, match="transport_unusable"):
        mortal.call(peers.read, buffer.over("process_vm"))  # would open its own table
    assert peers.read(buffer) == pattern(1, 5000).tobytes()


def test_another_host_is_reached_over_tcp_only(mortal: Peer) -> None:
    buffer = mortal.call(peers.filled, 1, 5000)
    object.__setattr__(buffer.handle.owner.machine, "boot", "another")
    assert buffer.transport.name == "tcp"
    assert peers.read(buffer) == pattern(1, 5000).tobytes()
    assert buffer.transport.passed_over["process_vm"] == "its owner is on another host"


def test_an_owner_that_listens_nowhere_is_said() -> None:
    with open_peer() as quiet:
        buffer = quiet.call(peers.filled, 1, 5000)
        object.__setattr__(buffer.handle.owner.machine, "boot", "another")
        with pytest.raises(Unavailable, match=r"tcp: its owner listens on no address \(MILKWEED_BUFFER"):
            _ = buffer.transport
