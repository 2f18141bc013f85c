"""Regions over TCP without a copy. On one machine the kernel copies after all, and says so."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from milkweed.runtime import _native_memory as native
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, Peer, open_peer, pattern

MIB = 1024 * 1024
SIZE = 9 * MIB + 5
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        taker = stack.enter_context(socket.create_connection(listener.getsockname(), DEADLINE_S))
        sender = stack.enter_context(listener.accept()[0])
        sender.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        yield sender, taker


def sent_with(
    verdict: int, taker: socket.socket, sender: socket.socket, data: memoryview
) -> tuple[int, bytes]:
    """The verdict after it, and what arrived."""
    taken = bytearray(data.nbytes)
    end = time.monotonic() + DEADLINE_S
    address = native.address_of(memoryview(taken))
    thread = threading.Thread(
        target=native.receive, args=(taker.fileno(), address, len(taken), DEADLINE_S, end)
    )
    thread.start()
    status, _, after = native.send_from(
        sender.fileno(), native.address_of(data), data.nbytes, verdict, DEADLINE_S, end
    )
    thread.join(DEADLINE_S)
    assert status == native.DONE
    return after, bytes(taken)


@pytest.mark.parametrize("verdict", ["UNTRIED", "WORKS", "IS_COPIED"])
@pytest.mark.parametrize("size", [1, 65_537, SIZE])
def test_all_arrives_and_what_the_kernel_copied_is_known(verdict: str, size: int) -> None:
    data = memoryview(pattern(1, size))
    with connection() as (sender, taker):
        for _ in range(3):
            after, taken = sent_with(getattr(native, verdict), taker, sender, data)
            assert taken == data.tobytes()
            assert after == native.IS_COPIED
            with pytest.raises(BlockingIOError):  # nothing is left to be said of it
                sender.recvmsg(1, 100, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)


@pytest.mark.parametrize("verdict", ["UNTRIED", "WORKS"])
def test_who_takes_nothing_is_cut_off_and_the_memory_is_free(verdict: str) -> None:
    data = memoryview(bytearray(64 * MIB))
    with connection() as (sender, taker):
        where = sender.fileno(), native.address_of(data), data.nbytes, getattr(native, verdict)
        status, _, _ = native.send_from(*where, 0.05, time.monotonic() + DEADLINE_S)
        assert status == native.LATE
        with pytest.raises(BlockingIOError):
            sender.recvmsg(1, 100, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        if verdict == "WORKS":  # all of it was of the memory itself, and would have been sent again
            with pytest.raises(ConnectionResetError):
                take_all(taker)


def take_all(taker: socket.socket) -> None:
    while taker.recv(MIB):
        pass


def test_who_is_gone_is_an_error() -> None:
    data = memoryview(bytearray(64 * MIB))
    with connection() as (sender, taker):
        taker.close()
        where = sender.fileno(), native.address_of(data), data.nbytes, native.WORKS
        status, number, _ = native.send_from(*where, DEADLINE_S, time.monotonic() + DEADLINE_S)
    assert status == native.FAILED
    assert number in {errno.EPIPE, errno.ECONNRESET}


def test_where_no_more_memory_may_be_pinned_it_is_copied() -> None:
    with open_peer(MILKWEED_BUFFER_ADDRESS="127.0.0.1") as owner:
        owner.call(peers.may_pin, 0)
        buffer = owner.call(peers.filled, 1, SIZE).over("tcp")
        assert peers.read(buffer) == pattern(1, SIZE).tobytes()
        assert owner.call(refused_verdict) == native.IS_COPIED


def refused_verdict() -> int:
    with connection() as (sender, taker):
        with pytest.raises(OSError, match=f"Errno {errno.ENOBUFS}"):
            sender.send(bytes(5000), MSG_ZEROCOPY)
        return sent_with(native.UNTRIED, taker, sender, memoryview(bytearray(MIB)))[0]


def test_a_large_read_ends_and_its_buffer_can_be_dropped(owner: Peer) -> None:
    buffer = owner.call(peers.filled, 1, SIZE)
    for _ in range(3):
        assert peers.read(buffer.over("tcp")) == pattern(1, SIZE).tobytes()
    owner.call(peers.dropped_within, 1, DEADLINE_S)
