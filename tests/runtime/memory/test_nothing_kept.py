"""Registrations and transfers, those that fail too, leave neither end with more than it had."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from milkweed.runtime import RDMAAction, RDMABuffer
from milkweed.runtime.errors import MilkweedError
from tests.runtime.memory import peers
from tests.runtime.memory.holdings import Holdings, begin_write, codes_of_bad_uses, holdings
from tests.runtime.memory.peers import DEADLINE_S, Peer, open_peer, pattern

MIB = 1024 * 1024
SIZE = 5 * MIB + 1
NOISE = 8 * MIB
MAPPED_ALONE = "65536"  # what is larger is given back to the system as soon as it is freed
WAYS = [
    ("array", "process_vm"),
    ("array", "unix"),
    ("array", "tcp"),
    ("file", "shared"),
    ("file", "process_vm"),
    ("file", "unix"),
]


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_neither_end_keeps_anything_of_what_was_moved_refused_or_broken_off(
    way: tuple[str, str], full_size: bool
) -> None:
    with open_owner() as owner, open_peer(MALLOC_MMAP_THRESHOLD_=MAPPED_ALONE) as user:
        for _ in range(3):
            use_and_drop(owner, user, way)
        before = [(peer, *peer.call(holdings)) for peer in (owner, user)]
        for _ in range(200 if full_size else 12):
            use_and_drop(owner, user, way)
        lose_a_user(owner, way)
        lose_an_owner(user, way)
        for peer, held, resident in before:
            assert settled(peer, held) == held
            assert held.locked == ("0 kB", "0 kB")
            assert peer.call(holdings)[1] < resident + NOISE


def open_owner() -> AbstractContextManager[Peer]:
    return open_peer(MILKWEED_BUFFER_ADDRESS="127.0.0.1", MALLOC_MMAP_THRESHOLD_=MAPPED_ALONE)


def use_and_drop(owner: Peer, user: Peer, way: tuple[str, str]) -> None:
    buffer: RDMABuffer = owner.call(peers.filled, 1, SIZE, way[0])
    buffer = buffer.over(way[1])
    first, *others = user.call(codes_of_bad_uses, buffer)
    assert first in {"", "cancelled"}
    assert others == [
        *["deadline_exceeded"] * 2,
        *["wrong_key"] * 2,
        "out_of_range",
        "buffer_dropped",
    ]
    assert user.call(peers.read, buffer) == pattern(1, SIZE).tobytes()
    owner.call(peers.drop, 1)
    assert code_of(user, buffer) == "buffer_dropped"


def lose_a_user(owner: Peer, way: tuple[str, str]) -> None:
    """It is killed in a transfer, or soon after."""
    buffer = owner.call(peers.filled, 1, 8 * SIZE, way[0]).over(way[1])
    with open_peer() as lost:
        lost.call(peers.read, buffer, 0, 1)
        lost.call(begin_write, buffer)
        lost.kill()
    owner.call(peers.drop, 1)


def lose_an_owner(user: Peer, way: tuple[str, str]) -> None:
    with open_owner() as lost:
        buffer = lost.call(peers.filled, 1, SIZE, way[0]).over(way[1])
        assert user.call(peers.read, buffer) == pattern(1, SIZE).tobytes()
        lost.kill()
    assert code_of(user, buffer) == "buffer_owner_lost"


def code_of(user: Peer, buffer: RDMABuffer) -> str:
    with pytest.raises(MilkweedError) as caught:
        user.call(peers.read, buffer)
    return caught.value.code


def settled(peer: Peer, wanted: Holdings) -> Holdings:
    """What it holds once that is as `wanted`: threads and sockets that were broken off end a little later."""
    until = time.monotonic() + DEADLINE_S / 4
    while (found := peer.call(holdings)[0]) != wanted and time.monotonic() < until:
        time.sleep(0.02)
    return found


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """What is in a circle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_memory_at_the_near_end_is_free_when_its_transfer_has_ended(
    owner: Peer, way: tuple[str, str]
) -> None:
    """A bytearray cannot grow while anybody holds it."""
    buffer = owner.call(peers.filled, 1, SIZE, way[0]).over(way[1])
    mine = bytearray(SIZE)
    for wait_s in (None, DEADLINE_S):
        moving = buffer.read_into(mine)
        moving.get(wait_s)
        mine.extend(b"x")
        moving = buffer.write_from(mine, 0, SIZE)
        moving.get(wait_s)
        mine.extend(b"x")
        moving = RDMAAction().read_remote(memoryview(mine)[:-2], buffer, 0, 10).submit()
        moving.get(wait_s)
        mine.extend(b"x")
