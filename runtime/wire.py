"""Frames on a stream socket, as pure functions: bytes in, frames out.

A frame is a 24-byte header and a payload:

    magic 2s "mw" | version u8 | kind u8 | buffers u32 | call id u64 | payload length u64

Without buffers the payload is the body. With n buffers it is a table of n + 1 lengths (u64: the body's, then
the buffers'), the body, and the buffers, each begun at a multiple of 64: large arrays cross beside the body
that describes them and are received into the memory that they will be used in.

HELLO and GOODBYE bodies are JSON in every version, so that any two versions can tell each other why they
part. All other bodies are pickles: both ends are processes of one user behind a 0700 directory and a peer
check.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .errors import ProtocolError
from .receiving import fresh_memory

__all__ = [
    "MAX_BUFFERS",
    "MAX_PAYLOAD",
    "SAME_VERSION",
    "WIRE_VERSION",
    "FrameReader",
    "Kind",
    "Part",
    "WireFrame",
    "decode_json",
    "encode",
    "encode_json",
]

WIRE_VERSION = 3
SAME_VERSION = "Both sides must be the same version of Milkweed."
MAX_PAYLOAD = 16 * 1024**3
MAX_BUFFERS = 64 * 1024
_HEADER = struct.Struct("!2sBBIQQ")
_MAGIC = b"mw"
_ALIGN = 64
_CHUNK = 256 * 1024
_FIRST_CHUNK = 8 * 1024
_KINDS: dict[int, Kind]

Part = bytes | bytearray | memoryview
_Header = tuple[bytes, int, int, int, int, int]


class Kind(enum.IntEnum):
    HELLO = 1
    CALL = 2
    RESULT = 3
    ERROR = 4
    CANCEL = 5
    GOODBYE = 6
    TELL = 7
    PART = 8  # some of an answer: more will follow
    KEPT = 9  # an answer that is too large for the way back: it is kept to be asked for directly


_KINDS = {int(kind): kind for kind in Kind}


class WireFrame(NamedTuple):
    kind: Kind
    call: int
    body: bytes | memoryview
    buffers: tuple[memoryview, ...] = ()
    version: int = WIRE_VERSION


def encode(kind: Kind, call: int, body: Part = b"", buffers: Sequence[memoryview] = ()) -> list[Part]:
    """One frame, as parts to be sent one after the other; `buffers` are flat bytes and are not copied.

    Raises:
        ProtocolError: the payload is larger than `MAX_PAYLOAD`, or has more than `MAX_BUFFERS` buffers.
    """
    if not buffers:
        _check_sizes(0, len(body), MAX_PAYLOAD)
        return [_HEADER.pack(_MAGIC, WIRE_VERSION, kind, 0, call, len(body)) + body]
    table = struct.pack(f"!{len(buffers) + 1}Q", len(body), *(len(buffer) for buffer in buffers))
    at = len(table) + len(body)
    rest: list[Part] = []
    for buffer in buffers:
        padding = -at % _ALIGN
        rest += (bytes(padding), buffer) if padding else (buffer,)
        at += padding + len(buffer)
    _check_sizes(len(buffers), at, MAX_PAYLOAD)
    return [_HEADER.pack(_MAGIC, WIRE_VERSION, kind, len(buffers), call, at) + table + body, *rest]


def encode_json(kind: Kind, value: dict[str, Any]) -> bytes:
    return b"".join(encode(kind, 0, json.dumps(value).encode()))


def decode_json(frame: WireFrame) -> dict[str, Any]:
    try:
        value = json.loads(bytes(frame.body))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProtocolError(
            "protocol_error", f"the {frame.kind.name} frame holds no JSON object", SAME_VERSION
        )
    return value


class FrameReader:
    """Tells where to receive to, and gives whole frames; a malformed header is an error before its payload.

        n = sock.recv_into(reader.space())
        for frame in reader.received(n): ...

    Payloads that do not fit into what is left of the chunk get memory of their own, received into directly:
    what `memory` gives for their size.
    The chunk is small until much comes at once: most connections are quiet, and there may be thousands.
    """

    def __init__(
        self, max_payload: int = MAX_PAYLOAD, memory: Callable[[int], memoryview] = fresh_memory
    ) -> None:
        self.max_payload = max_payload
        self._memory = memory
        self._chunk = memoryview(bytearray(_FIRST_CHUNK))
        self._begin = 0
        self._end = 0
        self._large: memoryview | None = None
        self._filled = 0
        self._header: _Header = (b"", 0, 0, 0, 0, 0)

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame; at the end of the stream anything but 0 is a truncated frame."""
        return _HEADER.size + self._filled if self._large is not None else self._end - self._begin

    def space(self) -> memoryview:
        """Where the next bytes are to be received, never empty."""
        return self._large[self._filled :] if self._large is not None else self._chunk[self._end :]

    def feed(self, data: bytes) -> list[WireFrame]:
        """`received`, of bytes that are elsewhere."""
        frames: list[WireFrame] = []
        rest = memoryview(data)
        while rest:
            space = self.space()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            frames += self.received(count)
            rest = rest[count:]
        return frames

    def received(self, count: int) -> Iterator[WireFrame]:
        """The frames that `count` bytes more in `space()` complete, to be taken before anything else is done.

        What follows a frame is looked at when that has been taken: `max_payload` may change by it.

        Raises:
            ProtocolError: not our magic, an unknown kind, another version (except in HELLO and GOODBYE), too
            large, or lengths that contradict each other.
        """
        if self._large is not None:
            self._filled += count
            if self._filled == len(self._large):
                payload, self._large = self._large, None
                yield self._frame(self._header, payload)
            return
        self._end += count
        while self._end - self._begin >= _HEADER.size:
            magic, version, kind, buffers, call, length = header = _HEADER.unpack_from(
                self._chunk, self._begin
            )
            if (
                magic != _MAGIC
                or version != WIRE_VERSION
                or kind not in _KINDS
                or buffers
                or length > self.max_payload
            ):
                self._check_header(header)
            start = self._begin + _HEADER.size
            if start + length <= self._end:
                self._begin = start + length
                payload = self._chunk[start : self._begin]
                if buffers:
                    yield self._frame(header, _copied(payload))
                else:
                    yield WireFrame(_KINDS[kind], call, bytes(payload), (), version)
                continue
            if start + length > len(self._chunk):
                try:
                    self._begin_large(header, start)
                except (MemoryError, OverflowError):
                    raise ProtocolError(
                        "protocol_error",
                        f"a frame of {length:,} bytes is larger than memory",
                        "Send less at once.",
                    ) from None
            break
        if self._begin == self._end < len(self._chunk):
            self._begin = self._end = 0
        else:
            self._make_room()

    def _begin_large(self, header: _Header, start: int) -> None:
        self._header = header
        self._large = self._memory(header[-1])
        self._filled = self._end - start
        self._large[: self._filled] = self._chunk[start : self._end]
        self._begin = self._end

    def _make_room(self) -> None:
        """The unfinished rest moves to the front, so that its frame fits; a chunk that was filled grows."""
        left = self._end - self._begin
        rest = self._chunk[self._begin : self._end]
        if self._end == len(self._chunk) < _CHUNK:
            self._chunk = memoryview(bytearray(_CHUNK))
            self._chunk[:left] = rest
        elif left and self._begin:
            self._chunk[:left] = bytes(rest)
        self._begin, self._end = 0, left

    def _check_header(self, header: _Header) -> None:
        magic, version, kind, buffers, _, length = header
        if magic != _MAGIC:
            raise ProtocolError(
                "protocol_error", f"the peer sent no Milkweed frame (it began with {magic!r})", SAME_VERSION
            )
        if kind not in _KINDS:
            raise ProtocolError("protocol_error", f"unknown frame kind {kind}", SAME_VERSION)
        if version != WIRE_VERSION and kind not in (Kind.HELLO, Kind.GOODBYE):
            raise ProtocolError(
                "version_mismatch",
                f"the peer speaks wire version {version}, this is {WIRE_VERSION}",
                SAME_VERSION,
            )
        _check_sizes(buffers, length, self.max_payload)

    @staticmethod
    def _frame(header: _Header, payload: memoryview) -> WireFrame:
        _, version, kind, count, call, length = header
        if not count:
            body = bytes(payload) if length <= _CHUNK else payload
            return WireFrame(_KINDS[kind], call, body, (), version)
        at = 8 * (count + 1)
        if at > length:
            raise _contradiction()
        sizes = struct.unpack(f"!{count + 1}Q", payload[:at])
        parts = []
        for number, size in enumerate(sizes):
            at += -at % _ALIGN if number else 0
            if at + size > length:
                raise _contradiction()
            parts.append(payload[at : at + size])
            at += size
        if at != length:
            raise _contradiction()
        return WireFrame(_KINDS[kind], call, parts[0], tuple(parts[1:]), version)


def _copied(payload: memoryview) -> memoryview:
    """The chunk is written again; what a frame keeps has memory of its own."""
    return memoryview(bytearray(payload))


def _check_sizes(buffers: int, length: int, most: int) -> None:
    if buffers > MAX_BUFFERS:
        raise ProtocolError(
            "protocol_error",
            f"a frame of {buffers:,} buffers is over the limit of {MAX_BUFFERS:,}",
            "Send less at once.",
        )
    if length > most:
        raise ProtocolError(
            "protocol_error",
            f"a frame of {length:,} bytes is over the limit of {most:,}",
            "Send less at once.",
        )


def _contradiction() -> ProtocolError:
    return ProtocolError("protocol_error", "a frame's lengths contradict each other", SAME_VERSION)
