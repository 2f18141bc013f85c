"""Frames on a stream socket, as pure functions: bytes in, frames out.

A frame is a 20-byte header and a body:

    magic 2s "mw" | version u8 | kind u8 | call id u64 | body length u32 | reserved u32 (0)

HELLO and GOODBYE bodies are JSON in every version, so that any two versions can tell each other why they
part. All other bodies are pickles: both ends are processes of one user behind a 0700 directory and a peer
check.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .errors import ProtocolError

__all__ = [
    "MAX_BODY",
    "SAME_VERSION",
    "WIRE_VERSION",
    "FrameReader",
    "Kind",
    "WireFrame",
    "decode_json",
    "encode",
    "encode_json",
]

WIRE_VERSION = 1
SAME_VERSION = "Both sides must be the same version of Milkweed."
MAX_BODY = 256 * 1024 * 1024
_HEADER = struct.Struct("!2sBBQII")
_MAGIC = b"mw"


class Kind(enum.IntEnum):
    HELLO = 1
    CALL = 2
    RESULT = 3
    ERROR = 4
    CANCEL = 5
    GOODBYE = 6


@dataclass(frozen=True, slots=True)
class WireFrame:
    kind: Kind
    call: int
    body: bytes
    version: int = WIRE_VERSION


def encode(kind: Kind, call: int, body: bytes = b"") -> bytes:
    """One frame as bytes.

    Raises:
        ProtocolError: the body is larger than `MAX_BODY`.
    """
    if len(body) > MAX_BODY:
        raise ProtocolError(
            "protocol_error",
            f"a message of {len(body):,} bytes is over the limit of {MAX_BODY:,}",
            "Send less at once.",
        )
    return _HEADER.pack(_MAGIC, WIRE_VERSION, kind, call, len(body), 0) + body


def encode_json(kind: Kind, value: dict[str, Any]) -> bytes:
    return encode(kind, 0, json.dumps(value).encode())


def decode_json(frame: WireFrame) -> dict[str, Any]:
    try:
        value = json.loads(frame.body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProtocolError(
            "protocol_error", f"the {frame.kind.name} frame holds no JSON object", SAME_VERSION
        )
    return value


class FrameReader:
    """Collects bytes and gives whole frames; a malformed header is an error before its body is awaited."""

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._buffer = bytearray()
        self._max_body = max_body

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame; at the end of the stream anything but 0 is a truncated frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[WireFrame]:
        """Adds bytes and yields the frames they complete.

        Raises:
            ProtocolError: not our magic, an unknown kind, another version (except in HELLO and GOODBYE), or
            too large.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            magic, version, kind, call, length, reserved = _HEADER.unpack_from(self._buffer)
            self._check(magic, version, kind, length, reserved)
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield WireFrame(Kind(kind), call, body, version)

    def _check(self, magic: bytes, version: int, kind: int, length: int, reserved: int) -> None:
        if magic != _MAGIC or reserved:
            raise ProtocolError(
                "protocol_error", f"the peer sent no Milkweed frame (it began with {magic!r})", SAME_VERSION
            )
        if kind not in Kind.__members__.values():
            raise ProtocolError("protocol_error", f"unknown frame kind {kind}", SAME_VERSION)
        if version != WIRE_VERSION and kind not in (Kind.HELLO, Kind.GOODBYE):
            raise ProtocolError(
                "version_mismatch",
                f"the peer speaks wire version {version}, this is {WIRE_VERSION}",
                SAME_VERSION,
            )
        if length > self._max_body:
            raise ProtocolError(
                "protocol_error",
                f"a frame of {length:,} bytes is over the limit of {self._max_body:,}",
                "Send less at once.",
            )
