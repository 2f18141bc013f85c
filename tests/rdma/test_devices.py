"""Buffers on devices over real verbs: such as the card reaches, and such as it does not."""

from __future__ import annotations

import time

import pytest

from milkweed.runtime.errors import Conflict, Unavailable
from milkweed.runtime.memory.staging import PIECE
from tests.rdma.ends import packets
from tests.runtime.memory import devices, peers
from tests.runtime.memory.peers import Peer, pattern

SIZE = 2 * PIECE + 4099
PLACES = [(0, 1), (1, 0), (4093, 4099), (PIECE - 1, 2), (7, PIECE + 1), (0, SIZE), (SIZE, 0)]
HERE, THERE = "here", "at its owner"


@pytest.mark.parametrize(
    ("far", "near_kind", "staged"),
    [
        ("guarded", None, [THERE]),
        ("reached", None, []),
        (None, "guarded", [HERE]),
        (None, "reached", []),
        ("guarded", "guarded", [THERE, HERE]),
        ("guarded", "reached", [THERE]),
        ("reached", "guarded", [HERE]),
        ("reached", "reached", []),
    ],
)
def test_bytes_of_devices_go_through_the_host_only_where_the_card_does_not_reach_them(
    near: Peer, beyond: Peer, far: str | None, near_kind: str | None, staged: list[str]
) -> None:
    if far is None:
        buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    else:
        buffer = beyond.call(devices.filled_on, far, 1, SIZE).over("rdma")
    expected = bytearray(pattern(1, SIZE).tobytes())
    _, before = packets("rxe0")
    for seed, (offset, length) in enumerate(PLACES, 2):
        if near_kind is None:
            assert near.call(peers.read, buffer, offset, length) == expected[offset : offset + length]
            near.call(peers.put, buffer, seed, offset, length)
        else:
            found = near.call(devices.read_to, near_kind, buffer, offset, length)
            assert found == expected[offset : offset + length]
            near.call(devices.write_from, near_kind, buffer, seed, offset, length)
        expected[offset : offset + length] = pattern(seed, length).tobytes()
    assert beyond.call(peers.content if far is None else devices.content_of, 1) == expected
    assert near.call(devices.staged, buffer) == sorted(staged)
    assert (beyond.call(devices.copies) > 0) == (THERE in staged)
    assert (near.call(devices.copies) > 0) == (HERE in staged)
    assert packets("rxe0")[1] - before >= SIZE // 4096


def test_transfers_of_one_stage_take_turns(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(devices.filled_on, "guarded", 1, SIZE).over("rdma")
    places = [(at * 77_777, 100_003 + at) for at in range(16)]
    expected = pattern(1, SIZE).tobytes()
    found = near.call(peers.read_at_once, buffer, places)
    assert found == [expected[offset : offset + length] for offset, length in places]


def test_a_device_that_is_busy_or_dropped_or_broken_is_told(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(devices.filled_on, "guarded", 1, 1000).over("rdma")
    assert near.call(peers.read, buffer) == pattern(1, 1000).tobytes()
    beyond.call(devices.keep_busy, 1)
    with pytest.raises(Unavailable, match="deadline_exceeded"):
        near.call(devices.read_within, buffer, 0.5)
    beyond.call(devices.let_go_on, 1)
    assert near.call(peers.read, buffer) == pattern(1, 1000).tobytes()
    beyond.call(devices.break_down, 1, "the device fell off the bus")
    assert near.call(peers.fate, buffer)[0] == "transport_unusable"
    beyond.call(devices.break_down, 1, "")
    assert near.call(peers.read, buffer) == pattern(1, 1000).tobytes()
    beyond.call(devices.drop_on, 1)
    with pytest.raises(Conflict, match="buffer_dropped"):
        near.call(peers.read, buffer)


def test_an_owner_of_a_stage_that_is_killed_is_told_within_two_seconds(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(devices.filled_on, "guarded", 1, 1000).over("rdma")
    assert near.call(peers.read, buffer) == pattern(1, 1000).tobytes()
    beyond.kill()
    began = time.monotonic()
    assert near.call(peers.fate, buffer)[0] == "buffer_owner_lost"
    assert time.monotonic() - began < 2 * peers.DEADLINE_S / 60


def test_no_stage_is_left_when_its_users_have_ended(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(devices.filled_on, "guarded", 1, SIZE).over("rdma")
    held = beyond.call(peers.held)
    with peers.open_peer(MILKWEED_BUFFER_ADDRESS="10.9.0.1", UCX_NET_DEVICES="rxe0:1") as user:
        assert user.call(peers.read, buffer) == pattern(1, SIZE).tobytes()
        assert beyond.call(peers.held) == held + 1
    beyond.call(devices.until_held, held)
    assert near.call(peers.read, buffer) == pattern(1, SIZE).tobytes()
