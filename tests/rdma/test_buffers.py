"""Buffers of a process at the other device."""

from __future__ import annotations

import pytest

from tests.rdma.ends import SIZE
from tests.runtime.memory.peers import DEADLINE_S, Peer, filled, pattern


@pytest.mark.parametrize("way", ["process_vm", "tcp"])
def test_a_buffer_is_read_there(beyond: Peer, way: str) -> None:
    buffer = beyond.call(filled, 7, SIZE)
    found = bytearray(SIZE)
    buffer.over(way).read_into(found, timeout=DEADLINE_S).get(DEADLINE_S)
    assert found == pattern(7, SIZE).tobytes()
