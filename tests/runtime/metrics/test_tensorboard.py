"""Event files, made here after the documented format (TFRecord, `event.proto`, `summary.proto`)."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.metrics import tensorboard
from milkweed.runtime.metrics.tensorboard import parse_events


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(data: bytes) -> bytes:
    size = struct.pack("<Q", len(data))
    crc = struct.pack("<I", tensorboard._masked_crc(size))
    return size + crc + data + struct.pack("<I", tensorboard._masked_crc(data))


def event(step: int, value: bytes, at: float = 2e9) -> bytes:
    head = varint(1 << 3 | 1) + struct.pack("<d", at) + varint(2 << 3) + varint(step)
    return record(head + message(5, message(1, value)))


def simple(tag: str, value: float) -> bytes:
    return message(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor(tag: str, kind: int, body: bytes) -> bytes:
    return message(1, tag.encode()) + message(8, varint(1 << 3) + varint(kind) + body)


HEADER = record(varint(1 << 3 | 1) + struct.pack("<d", 2e9) + message(3, b"brain.Event:2"))


def read(data: bytes) -> list[tuple[int | None, dict[str, float]]]:
    return [(point.step, dict(point.values)) for point in parse_events(data)]


def test_the_checksum_is_crc32c() -> None:
    raw = 0xE3069283  # of b"123456789"
    assert tensorboard._masked_crc(b"123456789") == ((raw >> 15 | raw << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_in_both_forms() -> None:
    data = HEADER + event(3, simple("loss", 0.5)) + event(4, simple("loss", math.inf))
    data += event(5, tensor("a", 1, message(5, struct.pack("<f", 1.5))))
    data += event(6, tensor("b", 2, message(4, struct.pack("<d", 2.5))))
    data += event(7, tensor("c", 9, varint(10 << 3) + varint(-3)))
    expected = [(3, "loss", 0.5), (4, "loss", math.inf), (5, "a", 1.5), (6, "b", 2.5), (7, "c", -3.0)]
    assert read(data) == [(step, {name: value}) for step, name, value in expected]
    assert next(parse_events(data)).at == 2e9


def test_what_is_no_scalar_is_left_out() -> None:
    dims = message(2, message(2, varint(1 << 3) + varint(2)))
    data = event(1, tensor("v", 1, dims + message(5, struct.pack("<ff", 1.5, 2.5))))
    data += event(2, tensor("text", 7, message(8, b"hello"))) + event(3, simple("loss", 0.5))
    assert read(data) == [(3, {"loss": 0.5})]


def test_a_file_that_is_being_written_is_read_up_to_where_it_is_cut() -> None:
    data = event(1, simple("loss", 0.5)) + event(2, simple("loss", 0.25))
    assert read(data[:-7])[:1] == [(1, {"loss": 0.5})]


def test_the_end_of_a_file_is_read_alone_from_its_first_whole_record() -> None:
    data = b"".join(event(step, simple("loss", 0.5)) for step in range(9))
    assert [step for step, _ in read(data[10:])] == list(range(1, 9))


@pytest.mark.parametrize(
    "junk", [bytes(1 << 20), (b"\x05" + bytes(7)) * (1 << 17), b"\x18\0\0"], ids=["zeros", "lengths", "cut"]
)
def test_a_file_of_another_kind_costs_few_checksums(junk: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    checksum = tensorboard._masked_crc
    monkeypatch.setattr(tensorboard, "_masked_crc", lambda data: asked.append(1) or checksum(data))
    assert list(parse_events(junk)) == []
    assert len(asked) <= tensorboard._MOST_MISSES


def test_records_behind_zeros_are_found() -> None:
    data = event(1, simple("loss", 0.5))
    assert [point.step for point in parse_events(bytes(4096) + data + bytes(100) + data)] == [1, 1]


@given(st.binary(max_size=400), st.integers(0, 400))
def test_junk_is_no_fault(junk: bytes, at: int) -> None:
    data = bytearray(HEADER + event(1, simple("loss", 0.5)) + record(junk))
    data[at : at + len(junk)] = junk
    assert isinstance(read(bytes(data)), list)
