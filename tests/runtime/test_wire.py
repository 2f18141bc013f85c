from __future__ import annotations

import os
import resource
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import ProtocolError
from milkweed.runtime.wire import WIRE_VERSION, FrameReader, Kind, WireFrame, encode, encode_json

frames = st.builds(
    WireFrame,
    st.sampled_from(list(Kind)),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=300),
    st.lists(st.binary(max_size=200).map(memoryview), max_size=3).map(tuple),
    st.just(WIRE_VERSION),
)


@given(st.lists(frames, max_size=6), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_frames_survive_any_cut_of_the_stream(sent: list[WireFrame], cuts: list[int]) -> None:
    stream = b"".join(part for one in sent for part in encode(one.kind, one.call, one.body, one.buffers))
    reader, got, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        got += list(reader.feed(stream[at : at + step]))
        at, turn = at + step, turn + 1
    assert got == sent
    assert reader.pending == 0


@given(st.binary(min_size=20, max_size=400))
def test_random_bytes_are_refused_or_awaited_and_never_crash(junk: bytes) -> None:
    with suppress(ProtocolError):
        assert all(isinstance(frame, WireFrame) for frame in FrameReader().feed(junk))


def test_an_oversized_frame_is_refused_by_its_header_alone() -> None:
    header = encode(Kind.CALL, 1, b"x" * 100)[0][:24]
    with pytest.raises(ProtocolError, match="over the limit of 99"):
        list(FrameReader(max_payload=99).feed(header))


def test_a_length_that_lies_takes_no_memory() -> None:
    header = bytes(encode(Kind.CALL, 1, b"")[0])
    before, reader = _resident_bytes(), FrameReader()
    assert reader.feed(header[:-8] + (2**30).to_bytes(8, "big")) == []
    assert _resident_bytes() - before < 2**28


def test_a_large_payload_arrives_whole_and_can_be_written() -> None:
    data = bytearray(range(256)) * (20 * 1024)
    stream = b"".join(bytes(part) for part in encode(Kind.RESULT, 7, b"body", [memoryview(data)]))
    reader = FrameReader()
    half = len(stream) // 2
    assert reader.feed(stream[:half]) == []
    (frame,) = reader.feed(stream[half:])
    assert frame.body == b"body"
    assert frame.buffers == (data,)
    frame.buffers[0][0] = 9
    assert reader.pending == 0


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_another_version_is_refused_in_calls_but_read_in_a_hello() -> None:
    call, hello = bytearray(encode(Kind.CALL, 1)[0]), bytearray(encode_json(Kind.HELLO, {"wire": 9}))
    call[2] = hello[2] = 9
    with pytest.raises(ProtocolError, match="version 9"):
        list(FrameReader().feed(bytes(call)))
    assert [frame.version for frame in FrameReader().feed(bytes(hello))] == [9]


def test_a_truncated_frame_stays_pending() -> None:
    reader = FrameReader()
    assert list(reader.feed(encode(Kind.CALL, 1, b"abc")[0][:-1])) == []
    assert reader.pending == 26


def test_what_follows_a_frame_is_measured_by_what_that_frame_allows() -> None:
    """As a hello does: a large call may come with it, in one piece."""
    reader = FrameReader(max_payload=100)
    data = b"".join(map(bytes, [*encode(Kind.TELL, 1, b"small"), *encode(Kind.CALL, 2, bytes(1000))]))
    reader.space()[: len(data)] = data
    frames = []
    for frame in reader.received(len(data)):
        frames.append((frame.kind, len(frame.body)))
        reader.max_payload = 1000
    assert frames == [(Kind.TELL, 5), (Kind.CALL, 1000)]


def test_a_header_that_promises_much_costs_nothing() -> None:
    reader = FrameReader()
    header = struct.pack("!2sBBIQQ", b"mw", WIRE_VERSION, Kind.CALL, 0, 1, 4 * 1024**3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert reader.feed(header + b"x") == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # in KiB
