"""All that threads do with buffers, at once: what they find is right, or the error that it should be.

What the sanitizers look at (`make test-native`).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from milkweed.runtime import Future, RDMAAction, RDMABuffer
from milkweed.runtime import _native_memory as native
from milkweed.runtime.errors import MilkweedError
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, Peer, pattern

MIB = 1024 * 1024
SIZE = 20 * MIB + 5  # what nobody writes of it is as large as is moved by several threads
PIECE = 300_001  # not by the caller's own


def test_threads_publish_move_copy_send_and_retire_at_once(owner: Peer, full_size: bool) -> None:
    turns = 100 if full_size else 6
    array, file = owner.call(peers.filled, 1, SIZE), owner.call(peers.filled, 2, SIZE, "file")
    doomed = [
        owner.call(peers.filled, 10 + turn, 2 * MIB, "file" if turn % 2 else "array") for turn in range(turns)
    ]
    ways = [array.over(name) for name in ("process_vm", "unix", "tcp")]
    ways += [file.over(name) for name in ("shared", "process_vm")]
    read_once = threading.Semaphore(0)

    def drop_theirs() -> None:
        for turn in range(turns):
            assert read_once.acquire(timeout=DEADLINE_S)
            owner.call(peers.drop, 10 + turn)

    works: list[Callable[[], None]] = [drop_theirs, partial(use_doomed, doomed, read_once)]
    for number, buffer in enumerate(ways):
        works += [
            partial(read_rest, buffer, turns),
            partial(write_piece, buffer, number, turns),
            partial(give_up, buffer, turns),
        ]
    works += [partial(churn_own, 20 * turns)] * 2
    assert all_of(works) == []


def test_a_table_that_is_closed_among_transfers_ends_them_or_lets_them_end(
    owner: Peer, full_size: bool
) -> None:
    buffer, right = owner.call(peers.filled, 1, SIZE), pattern(1, SIZE)
    at = buffer.handle

    def use(peer: native.Peer, begun: threading.Semaphore) -> None:
        dst, stop = bytearray(SIZE), native.Stop()
        local, deadline = native.address_of(memoryview(dst)), time.monotonic() + DEADLINE_S
        where = (at.slot, at.generation, at.key, False, 0, SIZE, local, 2, stop, deadline)
        while (status := peer.move(*where)[0]) == native.DONE:
            assert dst == right.data
            begun.release()
        assert status == native.OWNER_LOST
        begun.release()

    def close(peer: native.Peer, begun: threading.Semaphore) -> None:
        assert begun.acquire(timeout=DEADLINE_S)
        peer.close()

    for _ in range(50 if full_size else 3):
        peer, begun = native.Peer(at.owner.pid, at.owner.table_fd, at.owner.token), threading.Semaphore(0)
        assert all_of([*[partial(use, peer, begun)] * 3, partial(close, peer, begun)]) == []


def all_of(works: Sequence[Callable[[], None]]) -> list[BaseException]:
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads)
    return failed


def place_of(number: int) -> int:
    """Where `number` writes, and nobody else: a program sees to it that bytes are not read meanwhile."""
    return 3 + number * PIECE


def read_rest(buffer: RDMABuffer, turns: int) -> None:
    """What is behind all these, which nobody writes."""
    start = place_of(8)
    dst, right = np.zeros(SIZE - start, np.uint8), pattern(2 if buffer.handle.mappable else 1, SIZE)
    for _ in range(turns):
        buffer.read_into(dst, start).get()  # and helps
        assert (dst == right[start:]).all()
        dst[:] = 0


def write_piece(buffer: RDMABuffer, number: int, turns: int) -> None:
    back = np.zeros(PIECE, np.uint8)
    for turn in range(2 * turns):
        mine = pattern(1000 * number + turn, PIECE)
        place = place_of(number)
        get(buffer.write_from(mine, place))
        halves = RDMAAction().read_remote(back[:1000], buffer, place, 1000)
        get(halves.read_remote(back[1000:], buffer, place + 1000, PIECE - 1000).submit())
        assert (back == mine).all()


def give_up(buffer: RDMABuffer, turns: int) -> None:
    start = place_of(8)
    dst = np.zeros(SIZE - start, np.uint8)
    for turn in range(turns):
        moving = buffer.read_into(dst, start, timeout=(DEADLINE_S, 0.0, 0.003)[turn % 3])
        if turn % 3 == 0:
            moving.cancel()
        assert code_of(moving) in {"", "cancelled", "deadline_exceeded"}


def use_doomed(doomed: Sequence[RDMABuffer], read_once: threading.Semaphore) -> None:
    """Of each at least one read begins before its owner drops it, which it then does at once."""
    for turn, buffer in enumerate(doomed):
        dst, right = np.zeros(2 * MIB, np.uint8), pattern(10 + turn, 2 * MIB)
        moving = buffer.read_into(dst)
        read_once.release()
        while not (code := code_of(moving)):
            assert (dst == right).all()
            moving = buffer.read_into(dst)
        assert code == "buffer_dropped"


def churn_own(turns: int) -> None:
    dice = random.Random(7)
    for _ in range(turns):
        size = dice.choice((1, 4097, PIECE))
        buffer = RDMABuffer(size)
        get(buffer.write_from(b"x" * size))
        moving = buffer.read_into(bytearray(size))
        dropped = buffer.drop()
        assert code_of(moving) in {"", "buffer_dropped"}
        get(dropped)
        assert code_of(buffer.read_into(bytearray(1), 0, 1)) == "buffer_dropped"


def get(future: Future[None]) -> None:
    future.get(DEADLINE_S)


def code_of(moving: Future[None]) -> str:
    try:
        get(moving)
    except MilkweedError as error:
        return error.code
    return ""
