"""Regions over TCP, sent by network cards from the memory itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from milkweed.runtime import _native_memory as native
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, open_peer, pattern
from tests.runtime.memory.test_zero_copy import SO_ZEROCOPY, sent_with

HERE, THERE = "10.9.1.1", "10.9.1.2"
SIZE = 3 * 2**20 + 5


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HERE, 0)))
        address = listener.getsockname()
        taker = stack.enter_context(socket.create_connection(address, DEADLINE_S, (THERE, 0)))
        yield stack.enter_context(listener.accept()[0]), taker


@pytest.mark.parametrize("size", [65_537, SIZE])
def test_memory_that_the_kernel_has_not_copied_is_let_go_when_all_of_it_has_left(size: int) -> None:
    """The card takes some packets as they are, and has others copied: the kernel says it for each call."""
    data = memoryview(pattern(1, size))
    verdicts = set()
    for _ in range(8):
        with connection() as (sender, taker):
            sender.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
            verdict, taken = sent_with(native.WORKS, taker, sender, data)
            verdicts.add(verdict)
            assert taken == data.tobytes()
            with pytest.raises(BlockingIOError):  # nothing is left to be said of it
                sender.recvmsg(1, 100, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    assert native.WORKS in verdicts


def test_buffers_of_one_connection_are_whole_one_after_the_other() -> None:
    with open_peer(MILKWEED_BUFFER_ADDRESS=HERE) as owner, open_peer(MILKWEED_RDMA="off") as user:
        for seed in range(1, 6):
            buffer = owner.call(peers.filled, seed, SIZE).over("tcp")
            found = user.call(peers.read, buffer)
            owner.call(peers.drop, seed)
            assert found == pattern(seed, SIZE).tobytes()
