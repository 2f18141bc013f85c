"""Scalars in TensorBoard event files: TFRecord framing and the few protobuf fields that matter. Pure.

A record is: length (8 bytes), masked crc32c of these, data, crc32c of the data. The crc of the length tells
where a record begins, so that the end of a large file can be read alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from .series import MetricPoint

__all__ = ["parse_events"]

# A length that is not 0 and below 16 MiB.
_LENGTH = re.compile(rb"(?!\0\0\0)...\0{5}", re.DOTALL)
# Of a file of another kind: a crc in Python takes microseconds.
_MOST_MISSES = 50_000
_HEADER = 12
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9
_Field = tuple[int, int, "int | bytes"]


def parse_events(data: bytes) -> Iterator[MetricPoint]:
    """One point a scalar, in the order of the file; what is no scalar, or cut, is left out."""
    for record in _records(data):
        try:
            yield from _event(record)
        except (ValueError, IndexError, struct.error):
            continue


def _records(data: bytes) -> Iterator[bytes]:
    at = misses = 0
    while (found := _LENGTH.search(data, at)) is not None and misses < _MOST_MISSES:
        at = found.start()
        if at + _HEADER > len(data):
            return
        (size, crc) = struct.unpack_from("<QI", data, at)
        if _masked_crc(data[at : at + 8]) != crc:
            at += 1
            misses += 1
            continue
        start = at + _HEADER
        if start + size > len(data):
            return
        yield data[start : start + size]
        at = start + size + 4


def _event(record: bytes) -> Iterator[MetricPoint]:
    """Event: wall_time = 1 (double), step = 2, summary = 5; Summary: value = 1."""
    at: float | None = None
    step = 0
    summaries: list[bytes] = []
    for number, _, value in _fields(record):
        if number == 1 and isinstance(value, bytes):
            (at,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = _signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, _, value in _fields(summary):
            if number == 1 and isinstance(value, bytes) and (scalar := _scalar(value)) is not None:
                yield MetricPoint(step, at, dict([scalar]))


def _scalar(record: bytes) -> tuple[str, float] | None:
    """Summary.Value: tag = 1, simple_value = 2 (float), tensor = 8."""
    tag = ""
    found: float | None = None
    for number, kind, value in _fields(record):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and kind == 5:
            (found,) = struct.unpack("<f", value)
        elif number == 8:
            found = _tensor(value)
    return (tag, found) if tag and found is not None else None


def _tensor(record: bytes) -> float | None:
    """TensorProto: dtype = 1, shape = 2, content = 4, float_val = 5, double_val = 6, int_val = 7,
    int64_val = 10 make one number, or None.
    """
    kind = 0
    values: list[float] = []
    content = b""
    for number, _, value in _fields(record):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes) and _elements(value) != 1:
            return None
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6) and isinstance(value, bytes):
            form = "f" if number == 5 else "d"
            values += struct.unpack(f"<{len(value) // struct.calcsize(form)}{form}", value)
        elif number in (7, 10):
            values += [_signed(value)] if isinstance(value, int) else map(_signed, _varints(value))
    form = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}.get(kind, "")
    if not form:
        return None
    if content and len(content) == struct.calcsize(form):
        values = [struct.unpack(form, content)[0]]
    return float(values[0]) if len(values) == 1 else None


def _elements(shape: bytes) -> int:
    """TensorShapeProto: dim = 2, its size = 1."""
    count = 1
    for number, _, dim in _fields(shape):
        if number == 2 and isinstance(dim, bytes):
            sizes = [value for inner, _, value in _fields(dim) if inner == 1 and isinstance(value, int)]
            count *= sizes[0] if sizes else 0
    return count


def _fields(record: bytes) -> Iterator[_Field]:
    """(number, wire type, value) of a message: varints as numbers, all else as bytes."""
    at = 0
    while at < len(record):
        key, at = _varint(record, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(record, at)
            yield number, wire, value
            continue
        if wire == 2:
            size, at = _varint(record, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(record):
            raise ValueError("a message that is cut")
        yield number, wire, record[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number that does not end")


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
