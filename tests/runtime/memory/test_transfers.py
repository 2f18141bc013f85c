"""Bytes that are read and written in other processes, by every transport."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest

from milkweed.runtime import Future, RDMAAction, RDMABuffer
from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError
from milkweed.runtime.memory.holding import hold
from milkweed.runtime.memory.memory import Memory
from milkweed.runtime.memory.providers import Job
from milkweed.runtime.node import node
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, Peer, pattern

MIB = 1024 * 1024
WAYS = [
    ("array", "process_vm"),
    ("array", "unix"),
    ("array", "tcp"),
    ("file", "shared"),
    ("file", "process_vm"),
    ("file", "unix"),
]


@pytest.fixture(params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def buffer(owner: Peer, way: tuple[str, str]) -> RDMABuffer:
    """Random bytes, enough for several streams and threads, of an odd size."""
    kind, transport = way
    made: RDMABuffer = owner.call(peers.filled, 1, 9 * MIB + 4097, kind)
    return made.over(transport)


def get(future: Future[None]) -> None:
    future.get(DEADLINE_S)


def code_of(future_of: object) -> str:
    with pytest.raises(MilkweedError) as caught:
        future_of()  # type: ignore[operator]
    return caught.value.code


def test_all_of_a_buffer_is_read(buffer: RDMABuffer, way: tuple[str, str]) -> None:
    dst = np.zeros(buffer.size(), np.uint8)
    get(buffer.read_into(dst))
    assert (dst == pattern(1, buffer.size())).all()
    assert buffer.transport.name == way[1]
    dst[:] = 0
    buffer.read_into(dst).get()  # which helps, where it can
    assert (dst == pattern(1, buffer.size())).all()


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (0, 0),
        (0, 1),
        (1, 1),
        (7, 4095),
        (4095, 4097),
        (MIB - 1, 4 * MIB + 3),
        (9 * MIB + 4096, 1),
        (3, 9 * MIB),
    ],
)
def test_odd_ranges_are_read_and_nothing_beside_them_is_touched(
    buffer: RDMABuffer, offset: int, length: int
) -> None:
    dst = np.full(length + 2, 7, np.uint8)
    get(buffer.read_into(dst[1:-1], offset, length))
    assert (dst[1:-1] == pattern(1, buffer.size())[offset : offset + length]).all()
    assert (dst[0], dst[-1]) == (7, 7)


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (0, 1), (4095, 4097), (MIB + 1, 8 * MIB + 5)])
def test_odd_ranges_are_written_and_nothing_beside_them_is_touched(
    owner: Peer, buffer: RDMABuffer, offset: int, length: int
) -> None:
    get(buffer.write_from(pattern(2, length), offset))
    expected = pattern(1, buffer.size())
    expected[offset : offset + length] = pattern(2, length)
    assert owner.call(peers.content, 1) == expected.tobytes()


def test_sixteen_threads_read_and_write_at_once(owner: Peer, buffer: RDMABuffer) -> None:
    part = buffer.size() // 16
    failed: list[object] = []

    def use(number: int) -> None:
        mine, back = pattern(100 + number, part), np.zeros(part, np.uint8)
        try:
            for _ in range(4):
                get(buffer.write_from(mine, number * part))
                get(buffer.read_into(back, number * part, part))
                assert (mine == back).all()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert failed == []
    whole = b"".join(pattern(100 + number, part).tobytes() for number in range(16))
    assert owner.call(peers.content, 1)[: 16 * part] == whole


def test_a_batch_is_waited_for_once(owner: Peer, way: tuple[str, str]) -> None:
    kind, transport = way
    buffers = [owner.call(peers.filled, 200 + n, 1000 * n + 1, kind).over(transport) for n in range(40)]
    parts = [np.zeros(one.size(), np.uint8) for one in buffers]
    batch = RDMAAction()
    for one, part in zip(buffers[1:], parts[1:], strict=True):
        batch.read_remote(part, one)
    get(batch.write_remote(buffers[0], b"x").submit())
    assert all((part == pattern(200 + n, part.size)).all() for n, part in list(enumerate(parts))[1:])
    assert owner.call(peers.content, 200) == b"x"


def test_one_that_fails_in_a_batch_keeps_no_other_from_its_end(owner: Peer, way: tuple[str, str]) -> None:
    kind, transport = way
    good = owner.call(peers.filled, 10, 5000, kind).over(transport)
    bad = owner.call(peers.filled, 11, 5000, kind).over(transport)
    owner.call(peers.drop, 11)
    dst, other = bytearray(5000), bytearray(5000)
    batch = RDMAAction().read_remote(other, bad).read_remote(dst, good)
    assert code_of(lambda: get(batch.submit())) == "buffer_dropped"
    assert dst == pattern(10, 5000).tobytes()


def test_a_dropped_buffer_is_refused_at_once(owner: Peer, way: tuple[str, str]) -> None:
    kind, transport = way
    buffer = owner.call(peers.filled, 12, 5000, kind).over(transport)
    get(buffer.read_into(bytearray(5000)))
    owner.call(peers.drop, 12)
    again = owner.call(peers.filled, 13, 5000, kind)  # in the same slot
    assert (again.handle.slot, again.handle.generation) == (buffer.handle.slot, buffer.handle.generation + 2)
    dst = bytearray(5000)
    assert code_of(lambda: get(buffer.read_into(dst))) == "buffer_dropped"
    assert code_of(lambda: get(buffer.write_from(b"abc"))) == "buffer_dropped"
    assert dst == bytes(5000)
    assert owner.call(peers.content, 13) == pattern(13, 5000).tobytes()


@pytest.mark.parametrize("guess", [bytes(16), None])
def test_a_guessed_key_is_refused(owner: Peer, buffer: RDMABuffer, guess: bytes | None) -> None:
    forged = pickle.loads(pickle.dumps(buffer))
    key = guess or bytes([buffer.handle.key[0] ^ 1]) + buffer.handle.key[1:]
    object.__setattr__(forged.handle, "key", key)
    dst = bytearray(64)
    assert code_of(lambda: get(forged.read_into(dst, 0, 64))) == "wrong_key"
    assert code_of(lambda: get(forged.write_from(b"abc"))) == "wrong_key"
    assert dst == bytes(64)
    assert owner.call(peers.content, 1) == pattern(1, buffer.size()).tobytes()


@pytest.mark.parametrize(
    ("offset", "length"), [(9 * MIB + 4097, 1), (0, 9 * MIB + 4098), (2**63, 5), (2**64 - 4, 8)]
)
def test_a_handle_that_claims_more_than_the_region_is_refused(
    buffer: RDMABuffer, offset: int, length: int
) -> None:
    forged = pickle.loads(pickle.dumps(buffer))
    object.__setattr__(forged.handle, "size", 2**65)
    dst = np.zeros(length, np.uint8)
    assert code_of(lambda: get(forged.read_into(dst, offset, length))) == "out_of_range"
    assert not dst[max(0, buffer.size() - offset) :].any()


def test_a_transfer_whose_time_is_over_moves_nothing(buffer: RDMABuffer) -> None:
    dst = np.zeros(buffer.size(), np.uint8)
    assert code_of(lambda: get(buffer.read_into(dst, timeout=0.0))) == "deadline_exceeded"
    assert code_of(lambda: get(buffer.read_into(dst, 0, 1, timeout=-1.0))) == "deadline_exceeded"
    assert not dst.any()


def test_a_transfer_that_was_cancelled_moves_nothing(buffer: RDMABuffer, way: tuple[str, str]) -> None:
    dst = np.zeros(buffer.size(), np.uint8)
    job = Job(buffer.handle, False, 0, dst.size, hold(dst), time.monotonic() + DEADLINE_S)
    job.cancel()
    route = node().part(Memory, Memory).route(buffer.handle, way[1])
    assert code_of(lambda: route.move(job)) == "cancelled"
    assert not dst.any()


def test_a_slot_that_never_was_is_refused(buffer: RDMABuffer) -> None:
    for slot in (2**17, 2**32 - 1):
        forged = pickle.loads(pickle.dumps(buffer))
        object.__setattr__(forged.handle, "slot", slot)
        assert code_of(lambda forged=forged: get(forged.read_into(bytearray(8), 0, 8))) == "buffer_dropped"


@pytest.mark.parametrize("transport", ["process_vm", "unix", "tcp"])
def test_rights_are_kept(owner: Peer, transport: str) -> None:
    source = owner.call(peers.limited, 20, 100, True, False).over(transport)
    get(source.read_into(bytearray(100)))
    with pytest.raises(Conflict, match="access_refused"):
        get(source.write_from(b"abc"))
    sink = owner.call(peers.limited, 21, 100, False, True).over(transport)
    get(sink.write_from(b"abc"))
    dst = bytearray(100)
    with pytest.raises(Conflict, match="access_refused"):
        get(sink.read_into(dst))
    assert dst == bytes(100)


def test_what_leaves_the_buffer_is_refused_before_anything_is_sent(buffer: RDMABuffer) -> None:
    size = buffer.size()
    for offset, length in ((-1, 1), (0, -1), (size, 1), (1, size), (2**70, None)):
        with pytest.raises(InvalidArgument, match="out_of_range"):
            buffer.read_into(bytearray(8), offset, length)
        with pytest.raises(InvalidArgument, match="out_of_range"):
            buffer.write_from(b"12345678", offset, 9 if length is None else length)
    with pytest.raises(InvalidArgument, match="out_of_range"):
        buffer.read_into(bytearray(8))
    with pytest.raises(InvalidArgument, match="cannot be written to"):
        buffer.read_into(b"12345678", 0, 8)
    with pytest.raises(InvalidArgument, match="no transport"):
        buffer.over("carrier pigeon")


def test_what_is_no_offset_or_length_is_refused_where_it_is_given(buffer: RDMABuffer) -> None:
    with pytest.raises(TypeError, match="integer"):
        buffer.read_into(bytearray(8), 4.0, 4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integer"):
        buffer.write_from(b"12345678", 4, 4.0)  # type: ignore[arg-type]
    dst = bytearray(8)
    get(buffer.read_into(dst, np.int64(3), np.int64(8)))  # type: ignore[arg-type]
    assert dst == pattern(1, buffer.size())[3:11].tobytes()


def test_a_batch_says_which_argument_is_to_be_a_buffer(buffer: RDMABuffer) -> None:
    mine = bytearray(8)
    with pytest.raises(InvalidArgument, match=r"read_remote\(dst, src\): src is of type bytearray"):
        RDMAAction().read_remote(buffer, mine)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"write_remote\(dst, src\): dst is of type bytearray"):
        RDMAAction().write_remote(mine, buffer)  # type: ignore[arg-type]


def test_only_its_owner_drops_a_buffer(buffer: RDMABuffer) -> None:
    with pytest.raises(Conflict, match="not_the_owner"):
        buffer.drop()
    with pytest.raises(Conflict, match="not_the_owner"):
        _ = buffer.memory
    get(buffer.read_into(bytearray(1), 0, 1))
