"""What becomes of transfers when owners stop, end or drop, and of drops when those who use a buffer do."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from milkweed.runtime import Future, RDMABuffer
from milkweed.runtime.errors import Conflict, MilkweedError, Unavailable
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, Peer, open_peer, pattern

MIB = 1024 * 1024
ONE_SIDED = [("array", "process_vm"), ("file", "shared"), ("file", "process_vm")]
SOCKETS = [("array", "unix"), ("array", "tcp")]


def get(future: Future[None]) -> None:
    future.get(DEADLINE_S)


def failure_of(future: Future[None]) -> MilkweedError:
    with pytest.raises(MilkweedError) as caught:
        get(future)
    return caught.value


@pytest.mark.parametrize(("kind", "transport"), ONE_SIDED)
def test_the_owner_takes_no_part_in_a_one_sided_transfer(mortal: Peer, kind: str, transport: str) -> None:
    buffer = mortal.call(peers.filled, 1, MIB + 1, kind).over(transport)
    mortal.stop()
    dst = np.zeros(MIB + 1, np.uint8)
    get(buffer.read_into(dst))  # the first contact too
    assert (dst == pattern(1, MIB + 1)).all()
    get(buffer.write_from(pattern(2, MIB + 1)))
    mortal.go_on()
    assert mortal.call(peers.content, 1) == pattern(2, MIB + 1).tobytes()


@pytest.mark.parametrize(("kind", "transport"), ONE_SIDED + SOCKETS)
@pytest.mark.parametrize("contact", ["before", "never"])
def test_a_buffer_of_a_dead_owner_is_an_error_at_once(
    mortal: Peer, kind: str, transport: str, contact: str
) -> None:
    buffer = mortal.call(peers.filled, 1, MIB, kind).over(transport)
    if contact == "before":
        get(buffer.read_into(bytearray(MIB)))
    mortal.kill()
    dst = bytearray(MIB)
    assert failure_of(buffer.read_into(dst)).code == "buffer_owner_lost"
    assert failure_of(buffer.write_from(b"abc")).code == "buffer_owner_lost"
    assert dst == bytes(MIB)


@pytest.mark.parametrize(("kind", "transport"), ONE_SIDED + SOCKETS)
def test_an_owner_that_becomes_another_program_is_gone(mortal: Peer, kind: str, transport: str) -> None:
    buffer = mortal.call(peers.filled, 1, MIB, kind).over(transport)
    get(buffer.read_into(bytearray(MIB)))
    mortal.begin(peers.become, "print('up', flush=True); input()")
    assert mortal.process.stdout is not None
    assert mortal.process.stdout.readline() == b"up\n"
    assert failure_of(buffer.read_into(bytearray(MIB))).code == "buffer_owner_lost"
    assert failure_of(buffer.write_from(b"abc")).code == "buffer_owner_lost"


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize("write", [False, True])
def test_an_owner_that_is_killed_in_the_middle_is_an_error(mortal: Peer, transport: str, write: bool) -> None:
    size = 64 * MIB
    buffer = mortal.call(peers.filled, 1, size).over(transport)
    get(buffer.read_into(bytearray(1), 0, 1))
    mortal.stop()  # it has not taken the request, and the transfer is under way
    mine = bytearray(size)
    moving = buffer.write_from(mine) if write else buffer.read_into(mine)
    assert not moving.done()
    mortal.kill()
    assert failure_of(moving).code == "buffer_owner_lost"


def test_what_was_read_while_its_owner_was_killed_is_right_or_an_error(mortal: Peer) -> None:
    size = 256 * MIB
    buffer = mortal.call(peers.filled, 1, size)
    dst = np.zeros(size, np.uint8)
    moving = buffer.read_into(dst)
    mortal.kill()
    code = ""
    try:
        get(moving)
    except Unavailable as error:
        code = error.code
    assert code == "buffer_owner_lost" or (dst == pattern(1, size)).all()


@contextmanager
def reader_in_transfer(buffer: RDMABuffer) -> Iterator[Peer]:
    with open_peer() as reader:
        reader.call(peers.hold_in_transfer, buffer)
        yield reader


def test_a_drop_waits_for_a_transfer_under_way(mortal: Peer) -> None:
    buffer = mortal.call(peers.filled, 1, 100)
    with reader_in_transfer(buffer) as reader:
        mortal.call(peers.begin_drop, 1)
        with pytest.raises(Unavailable, match="deadline_exceeded"):
            mortal.call(peers.dropped_within, 1, 0.05)
        assert not mortal.call(peers.is_dropped, 1)
        assert mortal.call(peers.held) == 1
        assert failure_of(buffer.read_into(bytearray(100))).code == "buffer_dropped"
        reader.call(peers.end_transfer)
        mortal.call(peers.dropped_within, 1, DEADLINE_S)
        assert mortal.call(peers.held) == 0


def test_a_drop_does_not_wait_for_a_reader_that_was_killed(mortal: Peer) -> None:
    buffer = mortal.call(peers.filled, 1, 100)
    with reader_in_transfer(buffer) as reader:
        mortal.call(peers.begin_drop, 1)
        assert not mortal.call(peers.is_dropped, 1)
        reader.kill()
        mortal.call(peers.dropped_within, 1, DEADLINE_S)
        assert mortal.call(peers.held) == 0


def test_other_buffers_do_not_wait_with_one_that_is_in_transfer(mortal: Peer) -> None:
    busy, other = mortal.call(peers.filled, 1, 100), mortal.call(peers.filled, 2, 100)
    with reader_in_transfer(busy):
        mortal.call(peers.drop, 2)
        assert failure_of(other.read_into(bytearray(100))).code == "buffer_dropped"
        get(busy.read_into(bytearray(100)))


def read_until_dropped(
    buffer: RDMABuffer, dst: np.ndarray, ends: list[str], under_way: threading.Event
) -> None:
    try:
        while True:
            get(buffer.read_into(dst))
            ends.append("")
            under_way.set()
    except Conflict as error:
        ends.append(error.code)


@pytest.mark.parametrize("transport", ["process_vm", "unix", "tcp"])
def test_bytes_of_what_comes_after_a_drop_are_never_read(transport: str, full_size: bool) -> None:
    """The owner drops while four threads read, and fills the same memory with 0xff as soon as it may."""
    size, turns = 7 * MIB + 1, 300 if full_size else 30
    here, there = socket.socketpair()
    with here, open_peer(pass_fds=[there.fileno()], MILKWEED_BUFFER_ADDRESS="127.0.0.1") as owner:
        owner.begin(peers.churn, 1, size, turns, there.fileno())
        there.close()
        stale: list[tuple[int, int]] = []
        read = dropped = 0
        for _ in range(turns):
            (length,) = struct.unpack("!Q", exactly(here, 8))
            value, buffer = pickle.loads(exactly(here, length))
            buffer = buffer.over(transport)
            targets = [np.zeros(size, np.uint8) for _ in range(4)]
            ends: list[str] = []
            under_way = threading.Event()

            threads = [
                threading.Thread(target=read_until_dropped, args=(buffer, dst, ends, under_way))
                for dst in targets
            ]
            for thread in threads:
                thread.start()
            assert under_way.wait(DEADLINE_S)
            here.send(b"x")
            for thread in threads:
                thread.join(DEADLINE_S)
            read += ends.count("")
            dropped += ends.count("buffer_dropped")
            stale += [(value, int(dst.max())) for dst in targets if dst.max() > value]
        owner.answer()
    assert stale == []
    assert read >= turns
    assert dropped == 4 * turns


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += sock.recv(count - len(data))
    return data


def test_a_forked_child_reads_what_is_its_parents(mortal: Peer) -> None:
    buffer = mortal.call(peers.filled, 1, 5000)
    assert mortal.call(peers.forked_reads, buffer) == pattern(1, 5000).tobytes()
    get(buffer.read_into(bytearray(5000)))  # and takes nothing with it


def test_hundreds_of_buffers_leave_nothing(mortal: Peer) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{mortal.pid}/fd"))

    mortal.call(peers.filled, 0, 10)
    before, mine = descriptors(), len(os.listdir("/proc/self/fd"))
    for turn in range(200):
        kind = "file" if turn % 2 else "array"
        buffer = mortal.call(peers.filled, 1, 5000, kind)
        get(buffer.read_into(bytearray(5000)))
        mortal.call(peers.drop, 1)
    assert mortal.call(peers.held) == 1
    assert descriptors() == before
    assert len(os.listdir("/proc/self/fd")) <= mine + 1  # the owner's table
