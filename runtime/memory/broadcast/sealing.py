"""Messages that only the two ends of a connection can read or write: they have keys of buffers in them. Pure.

Each is sealed by the number that it has in its direction, so that none can be left out, changed, sent again.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from ...errors import ProtocolError
from ..protocol import CODE_BYTES

__all__ = ["HEAD_BYTES", "Opener", "Sealer"]

_HEAD = struct.Struct("!I")
HEAD_BYTES = _HEAD.size
_MOST = 16 * 1024 * 1024


class Sealer:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, body: bytes) -> bytes:
        head = _HEAD.pack(len(body))
        hidden = _mixed(self._key, self._number, body)
        code = _code(self._key, self._number, head + hidden)
        self._number += 1
        return head + hidden + code


class Opener:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    @staticmethod
    def rest(head: bytes) -> int:
        """How many bytes follow a head.

        Raises:
            ProtocolError: more than any message has.
        """
        (length,) = _HEAD.unpack(head)
        if length > _MOST:
            raise _forged()
        return int(length) + CODE_BYTES

    def open(self, head: bytes, rest: bytes) -> bytes:
        """
        Raises:
            ProtocolError: it is not the peer's next message.
        """
        hidden, code = rest[:-CODE_BYTES], rest[-CODE_BYTES:]
        if not hmac.compare_digest(code, _code(self._key, self._number, head + hidden)):
            raise _forged()
        body = _mixed(self._key, self._number, hidden)
        self._number += 1
        return body


def _mixed(key: bytes, number: int, data: bytes) -> bytes:
    stream = hashlib.shake_256(b"hides" + key + number.to_bytes(8, "big")).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def _code(key: bytes, number: int, data: bytes) -> bytes:
    return hmac.digest(key, b"signs" + number.to_bytes(8, "big") + data, hashlib.sha256().name)


def _forged() -> ProtocolError:
    return ProtocolError("protocol_error", "a message that the peer did not send", "See who else is there.")
