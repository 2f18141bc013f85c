"""Buffers of more bytes than a signed number of 32 bits counts, by every transport."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime import Future
from tests.runtime.memory import large, peers
from tests.runtime.memory.large import PERIOD, SIZE, Folded, low_byte
from tests.runtime.memory.peers import DEADLINE_S, Peer, pattern

MIB = 1024 * 1024
HALF = 2**31
PLACES = [0, 4097, HALF - MIB - 1, HALF - 4096, HALF - 1, HALF, HALF + 1, SIZE - 1]
WAYS = [
    ("array", "local"),
    ("array", "process_vm"),
    ("array", "unix"),
    ("array", "tcp"),
    ("file", "local"),
    ("file", "shared"),
    ("file", "process_vm"),
    ("file", "tcp"),
]
RANGES = [
    (HALF - 1, 1),
    (HALF, 1),
    (SIZE - 1, 1),
    (SIZE, 0),
    (HALF - 3, 5),
    (HALF - 4097, 4104),
    (HALF - MIB - 1, MIB + 8),
    (SIZE - 9 * MIB - 1, 9 * MIB + 1),
]


def get(future: Future[None]) -> None:
    future.get(DEADLINE_S)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_odd_ranges_about_two_to_the_31_are_read_and_written(
    owner: Peer, mortal: Peer, tmp_path: Path, way: tuple[str, str]
) -> None:
    kind, transport = way
    buffer = mortal.call(large.sparse, str(tmp_path / "holes") if kind == "array" else None, PLACES)
    buffer = buffer.over(transport)
    user = mortal if transport == "local" else owner

    def read(offset: int, length: int) -> bytes:
        found: bytes = user.call(peers.read, buffer, offset, length)
        return found

    for offset, length in RANGES:
        expected = bytearray(length)
        for place in PLACES:
            if offset <= place < offset + length:
                expected[place - offset] = low_byte(place)
        assert read(offset, length) == expected
    for offset, length in RANGES:
        before = read(offset - 1, 1)
        user.call(peers.write, buffer, pattern(length, length).tobytes(), offset)
        assert read(offset - 1, length + 1) == before + pattern(length, length).tobytes()
    assert read(0, 4098) == bytes([*bytes(4097), low_byte(4097)])  # where a number that was cut would lead
    mortal.call(peers.drop, 0)


@pytest.mark.parametrize("transport", ["process_vm", "unix", "tcp"])
def test_all_of_two_to_the_31_and_7_bytes_is_moved(mortal: Peer, transport: str) -> None:
    buffer = mortal.call(large.fold, pattern(1, PERIOD).tobytes()).over(transport)
    mine = Folded(bytes(PERIOD))
    get(buffer.read_into(mine.view))
    assert mine.content() == pattern(1, PERIOD).tobytes()
    mine = Folded(pattern(2, PERIOD).tobytes())
    get(buffer.write_from(mine.view))
    assert mortal.call(large.folded_content) == pattern(2, PERIOD).tobytes()
