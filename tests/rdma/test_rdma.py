"""`rdma`: buffers of a process at the other device, which does nothing for it."""

from __future__ import annotations

import copy
import time
from dataclasses import replace

import pytest

from milkweed.runtime import RDMABuffer
from milkweed.runtime.errors import MilkweedError, Unavailable
from tests.rdma.ends import SIZE, cut_wire, packets
from tests.runtime.memory import peers
from tests.runtime.memory.peers import Peer, pattern

LARGE = 64 * 2**20
PLACES = [(0, 1), (1, 0), (1, 4095), (4093, 4099), (0, SIZE), (SIZE - 1, 1), (SIZE, 0), (2**20, 2**21 + 5)]


def test_bytes_are_read_and_written_at_odd_places(connecting: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    expected = bytearray(pattern(1, SIZE).tobytes())
    for offset, length in PLACES:
        assert connecting.call(peers.read, buffer, offset, length) == expected[offset : offset + length]
    for seed, (offset, length) in enumerate(PLACES, 2):
        connecting.call(peers.put, buffer, seed, offset, length)
        expected[offset : offset + length] = pattern(seed, length).tobytes()
        assert beyond.call(peers.content, 1) == expected
    assert connecting.call(peers.way, buffer)[0] == "rdma"


def test_the_devices_move_it(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    _, before = packets("rxe0")
    assert near.call(peers.read, buffer) == pattern(1, SIZE).tobytes()
    assert packets("rxe0")[1] - before >= SIZE // 4096


def test_an_owner_that_is_stopped_is_read_and_written(connecting: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    connecting.call(peers.put, buffer, 9, 0, 1)
    beyond.stop()
    assert connecting.call(peers.read, buffer, 1, SIZE - 1) == pattern(1, SIZE).tobytes()[1:]
    beyond.go_on()
    connecting.call(peers.put, buffer, 2, 0, SIZE)
    assert beyond.call(peers.content, 1) == pattern(2, SIZE).tobytes()


def test_thirty_two_reads_at_once_each_have_their_bytes(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    places = [(at * 77_777, 100_003 + at) for at in range(32)]
    expected = pattern(1, SIZE).tobytes()
    found = near.call(peers.read_at_once, buffer, places)
    assert found == [expected[offset : offset + length] for offset, length in places]


def test_a_dropped_buffer_is_told_at_once_and_no_longer_pinned(near: Peer, beyond: Peer) -> None:
    other = beyond.call(peers.filled, 2, 4096).over("rdma")
    assert near.call(peers.read, other) == pattern(2, 4096).tobytes()
    before = beyond.call(peers.pinned)
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    assert near.call(peers.read, buffer) == pattern(1, SIZE).tobytes()
    assert beyond.call(peers.pinned) >= before + SIZE // 1024
    beyond.call(peers.drop, 1)
    assert beyond.call(peers.pinned) == before
    assert near.call(peers.fate, buffer)[0] == "buffer_dropped"
    assert near.call(peers.fate, buffer, True)[0] == "buffer_dropped"
    assert near.call(peers.read, other) == pattern(2, 4096).tobytes()


def test_nothing_is_left_registered_after_a_hundred_buffers(near: Peer, beyond: Peer) -> None:
    first = beyond.call(peers.filled, 1, SIZE).over("rdma")
    near.call(peers.read, first)
    beyond.call(peers.drop, 1)
    kept = beyond.call(peers.pinned), near.call(peers.pinned)
    for seed in range(2, 102):
        buffer = beyond.call(peers.filled, seed, 5000).over("rdma")
        assert near.call(peers.read, buffer) == pattern(seed, 5000).tobytes()
        beyond.call(peers.drop, seed)
    assert (beyond.call(peers.pinned), near.call(peers.pinned)) == kept
    assert beyond.call(peers.held) == 0


def _in_the_middle(near: Peer, buffer: RDMABuffer) -> None:
    """Lets `near` read, and returns when some of it has come."""
    _, before = packets("rxe0")
    near.begin(peers.fate, buffer)
    while packets("rxe0")[1] - before < LARGE // 4096 // 8:
        pass


def test_a_drop_waits_for_a_transfer_under_way(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, LARGE).over("rdma")
    near.call(peers.read, buffer, 0, 1)
    _in_the_middle(near, buffer)
    near.stop()
    beyond.call(peers.begin_drop, 1)
    assert not beyond.call(peers.is_dropped, 1)
    with pytest.raises(Unavailable) as caught:
        beyond.call(peers.dropped_within, 1, 0.1)
    assert caught.value.code == "deadline_exceeded"
    near.go_on()
    assert near.answer()[0] in ("", "buffer_dropped")
    beyond.call(peers.dropped_within, 1, peers.DEADLINE_S)


def test_a_reader_that_is_killed_holds_up_no_drop(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, LARGE).over("rdma")
    near.call(peers.read, buffer, 0, 1)
    _in_the_middle(near, buffer)
    near.kill()
    beyond.call(peers.drop, 1)
    assert beyond.call(peers.held) == 0


def test_an_owner_that_is_killed_in_the_middle_is_told_at_once(connecting: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, LARGE).over("rdma")
    connecting.call(peers.read, buffer, 0, 1)
    _in_the_middle(connecting, buffer)
    beyond.kill()
    code, _ = connecting.answer()
    assert code == "buffer_owner_lost"
    assert connecting.call(peers.fate, buffer)[0] == "buffer_owner_lost"


def test_a_host_that_is_gone_without_a_word_is_told_within_two_seconds(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    near.call(peers.read, buffer)
    with cut_wire():
        code, seconds = near.call(peers.fate, buffer)
    assert code == "buffer_owner_lost"
    assert seconds < 2.0


def test_an_owner_that_is_stopped_before_first_contact_is_waited_for(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    beyond.stop()
    near.begin(peers.fate, buffer)
    time.sleep(4.0)  # longer than a host has to answer
    beyond.go_on()
    assert near.answer()[0] == ""


def test_known_buffers_are_read_while_a_stopped_owner_is_asked_for_another(near: Peer, beyond: Peer) -> None:
    known, new = (beyond.call(peers.filled, seed, SIZE).over("rdma") for seed in (1, 2))
    assert near.call(peers.read, known) == pattern(1, SIZE).tobytes()
    beyond.stop()
    near.call(peers.begin_read, new)
    assert near.call(peers.read, known) == pattern(1, SIZE).tobytes()
    beyond.go_on()
    assert near.call(peers.read, new) == pattern(2, SIZE).tobytes()


def test_where_rdma_cm_leads_nowhere_addresses_do(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    beyond.call(peers.listens_at, "10.9.0.77", 999)
    assert near.call(peers.read, buffer) == pattern(1, SIZE).tobytes()


def test_a_buffer_that_cannot_be_registered_closes_the_way_to_no_other(near: Peer, beyond: Peer) -> None:
    beyond.call(peers.may_pin, LARGE)
    _is_unusable(near, beyond.call(peers.filled, 1, LARGE).over("rdma"), "ulimit -l there")
    assert (
        near.call(peers.read, beyond.call(peers.filled, 2, 5000).over("rdma")) == pattern(2, 5000).tobytes()
    )


def test_a_handle_that_claims_more_than_the_region_is_refused(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, 5001).over("rdma")
    larger = copy.copy(buffer)
    larger.handle = replace(buffer.handle, size=5002)
    assert near.call(peers.fate, larger)[0] == "out_of_range"
    assert near.call(peers.fate, larger, True)[0] == "out_of_range"
    assert near.call(peers.read, buffer) == pattern(1, 5001).tobytes()


def test_what_is_not_granted_is_refused(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.limited, 1, SIZE, True, False).over("rdma")
    assert near.call(peers.fate, buffer, True)[0] == "access_refused"
    guessed = copy.copy(buffer)
    guessed.handle = replace(buffer.handle, key=bytes(16))
    assert near.call(peers.fate, guessed)[0] == "wrong_key"
    assert near.call(peers.read, buffer) == pattern(1, SIZE).tobytes()
    assert near.call(peers.fate, guessed)[0] == "wrong_key"


def test_an_owner_that_may_not_pin_so_much_is_told(near: Peer, beyond: Peer) -> None:
    beyond.call(peers.may_pin, LARGE)
    small = beyond.call(peers.filled, 1, 5000).over("rdma")
    assert near.call(peers.read, small) == pattern(1, 5000).tobytes()
    _is_unusable(near, beyond.call(peers.filled, 2, LARGE).over("rdma"), "ulimit -l there")


def test_an_owner_that_may_pin_next_to_nothing_is_told(near: Peer, beyond: Peer) -> None:
    beyond.call(peers.may_pin, 1024 * 1024)
    buffer = beyond.call(peers.filled, 1, SIZE)
    _is_unusable(near, buffer.over("rdma"), "ulimit -l there")
    assert near.call(peers.read, buffer.over("tcp")) == pattern(1, SIZE).tobytes()


def test_one_that_may_pin_next_to_nothing_itself_is_told(near: Peer, beyond: Peer) -> None:
    near.call(peers.may_pin, 1024 * 1024)
    _is_unusable(near, beyond.call(peers.filled, 1, SIZE).over("rdma"), "this process may pin too little")


def test_without_it_the_reason_is_told(beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE).over("rdma")
    with peers.open_peer(MILKWEED_RDMA="off") as off:
        _is_unusable(off, buffer, "MILKWEED_RDMA is off")
    with peers.open_peer(MILKWEED_UCX="libnothing.so.0") as without:
        _is_unusable(without, buffer, "libnothing.so.0")


def test_a_forked_child_is_told_that_it_has_none(near: Peer, beyond: Peer) -> None:
    buffer = beyond.call(peers.filled, 1, SIZE)
    assert near.call(peers.read, buffer.over("rdma")) == pattern(1, SIZE).tobytes()
    with pytest.raises(MilkweedError) as caught:
        near.call(peers.forked_reads, buffer.over("rdma"))
    assert "forked" in str(caught.value)
    assert near.call(peers.forked_reads, buffer.over("tcp")) == pattern(1, SIZE).tobytes()
    assert near.call(peers.read, buffer.over("rdma")) == pattern(1, SIZE).tobytes()


def _is_unusable(peer: Peer, buffer: RDMABuffer, reason: str) -> None:
    with pytest.raises(MilkweedError) as caught:
        peer.call(peers.read, buffer)
    assert caught.value.code == "transport_unusable"
    assert reason in str(caught.value)
