from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.addresses import ProcAddress, read_address
from milkweed.runtime.errors import ProtocolError
from milkweed.runtime.tree import (
    Answer,
    Envelope,
    Header,
    Status,
    branches,
    numbered,
    read_numbered,
    standing,
    unpack,
)
from milkweed.runtime.tree.envelope import pack, read_header, relayed

WHOLE = st.integers(0, 2**64 - 1)
BRANCH = branches([ProcAddress("p", "h", "/s/p", "/c/p")])[0]


@given(st.tuples(WHOLE, WHOLE, WHOLE, WHOLE), st.binary())
def test_a_numbered_message_is_read_as_it_was_made(
    numbers: tuple[int, int, int, int], message: bytes
) -> None:
    body, buffers = numbered(Envelope(*numbers), (message, []))
    actor, method, rest = read_address(body)
    envelope, inner = read_numbered(rest)
    assert (actor, method, envelope, bytes(inner), buffers) == (
        "",
        "numbered",
        Envelope(*numbers),
        message,
        [],
    )


@given(st.integers(0, 63), st.booleans(), st.dictionaries(st.integers(0, 9), WHOLE), st.binary())
def test_a_message_to_a_relay_is_read_as_it_was_made(
    slot: int, new: bool, others: dict[int, int], message: bytes
) -> None:
    header = Header("reduce", 7, 5, 3, 9, 0.5, others, b"operation")
    branch = BRANCH if new else None
    body, _ = relayed(header, slot, branch, (message, []))
    actor, method, rest = read_address(body)
    assert (actor, method) == ("", "relay")
    *read, inner = read_header(rest)
    assert read == [slot, branch, header]
    assert bytes(inner) == message


def test_each_rank_follows_its_own_last_message() -> None:
    header = Header("call", 7, 5, 3, 9, others={2: 6})
    assert header.envelope(1) == Envelope(7, 5, 3, 9)
    assert header.envelope(2) == Envelope(7, 6, 3, 9)


@pytest.mark.parametrize(
    ("number", "previous", "expected"),
    [
        (990, 0, "new"),
        (990, 100, "new"),
        (850, 0, "too old"),
        (990, 850, "follows"),
        (0, 850, "follows"),
        (990, 950, "may await"),
    ],
)
def test_what_was_sent_before_a_process_began_is_not_awaited_there_nor_run_again(
    number: int, previous: int, expected: str
) -> None:
    assert standing(Envelope(number, previous, 0, now=1000), last=100, up=120) == expected


def test_what_was_sent_long_after_a_process_began_is_awaited() -> None:
    seconds = 10**9
    late = Envelope(99 * seconds, 98 * seconds, 0, now=100 * seconds)
    assert standing(late, last=0, up=60 * seconds) == "awaits"


def test_answers_keep_their_buffers_through_bundles_in_bundles() -> None:
    arrays = [memoryview(bytes([at]) * 5000) for at in range(3)]
    inner = [Answer(3, Status.RESULT, b"three", (arrays[0], arrays[1])), Answer(4, Status.ASK)]
    body, buffers = pack(inner)
    outer = [
        Answer(1, Status.ERROR, b"one"),
        Answer(-1, Status.BUNDLE, body, tuple(buffers)),
        Answer(2, Status.RESULT, b"two", (arrays[2],)),
    ]
    assert unpack(*pack(outer)) == [outer[0], *inner, outer[2]]


@given(st.binary())
def test_bytes_that_are_no_message_are_refused(junk: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_header(memoryview(b"\xff" + junk))
    with pytest.raises(ProtocolError):
        read_numbered(memoryview(junk[:31]))
    with pytest.raises(ProtocolError):
        unpack(b"\x80\x05" + junk[:20] + b"!", [])
