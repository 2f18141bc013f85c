"""What is said on a socket about a region, as bytes. Pure.

    asks    magic, nonce, which mesh it will prove to be of
    serves  nonce, proof of the mesh's secret
    asks    proof of the mesh's secret
    asks    request, its code by the buffer's key             } again and again
    serves  reply, its code; then the bytes of a read         }
    asks    the bytes of a write, after a reply of DONE       }
    serves  a second reply, when they are in the region       }
    serves  a grant, its length and its code by the buffer's key, after a reply of DONE to a request for RDMA

Memory of a device that no network card reaches goes through a stage, memory of the host that a grant is for.
A request loads an area of it from the region, or stores one there, and is answered when that is done.

A request to talk about a region is answered with a reply; then both send sealed messages (`sealing.py`).

Neither secret nor key is ever sent. Codes are HMAC-SHA256 over both nonces, so that none is good for another
connection, and over a number, so that none is good twice. The bytes themselves are neither hidden nor signed.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ProtocolError

__all__ = [
    "CODE_BYTES",
    "HELLO_BYTES",
    "NONCE_BYTES",
    "REPLY_BYTES",
    "REQUEST_BYTES",
    "SEALED_BYTES",
    "Request",
    "Session",
    "hello",
    "mesh_of",
    "nonce_of",
]

_MAGIC = b"mwmem\x003\n"
NONCE_BYTES = 32
CODE_BYTES = 32
_TALK = 2
_RDMA = 4  # and what a transfer would say
_STAGED = 8  # and what a transfer, or RDMA, would say
_KINDS = {0, 1, _TALK} | {
    write | staged | rdma for write in (0, 1) for staged in (0, _STAGED) for rdma in (0, _RDMA)
}
_REQUEST = struct.Struct("!BBxxIQQQQ")
_REPLY = struct.Struct("!BxxxiQ")
_SEALED = struct.Struct("!QH")
_TAG_BYTES = 16
HELLO_BYTES = len(_MAGIC) + NONCE_BYTES + _TAG_BYTES
REQUEST_BYTES = _REQUEST.size + CODE_BYTES
REPLY_BYTES = _REPLY.size + CODE_BYTES
SEALED_BYTES = _SEALED.size
_FORGED = "Look at who else listens or connects there."


def hello(nonce: bytes, mesh: str) -> bytes:
    return _MAGIC + nonce + _tag(mesh)


def nonce_of(data: bytes) -> bytes:
    """
    Raises:
        ProtocolError: it is no hello.
    """
    if not data.startswith(_MAGIC):
        raise ProtocolError("protocol_error", "the peer does not speak of buffers", _FORGED)
    return data[len(_MAGIC) : -_TAG_BYTES]


def mesh_of(data: bytes, known: Iterable[str]) -> str | None:
    """Which of the meshes a hello names."""
    return next((mesh for mesh in known if data[-_TAG_BYTES:] == _tag(mesh)), None)


def _tag(mesh: str) -> bytes:
    return hashlib.sha256(b"mesh" + mesh.encode()).digest()[:_TAG_BYTES]


@dataclass(frozen=True, slots=True)
class Request:
    """Of a transfer, unless one of these is set: `talk` about a region, what it takes to reach it by `rdma`
    (for reads, or writes). `staged`: by way of the stage, in that `area` of it.
    """

    write: bool
    slot: int
    generation: int
    offset: int
    length: int
    talk: bool = False
    rdma: bool = False
    staged: bool = False
    area: int = 0


class Session:
    """The codes of one connection, to the owner that `token` names."""

    def __init__(self, secret: bytes, token: bytes, asking: bytes, serving: bytes) -> None:
        both = token + asking + serving
        self.asking_proof = _code(secret, b"asks" + both)
        self.serving_proof = _code(secret, b"serves" + both)
        self._key = _code(secret, b"session" + both)

    def request(self, request: Request, key: bytes, number: int) -> bytes:
        fields = (request.slot, request.generation, request.offset, request.length)
        kind = _TALK if request.talk else request.write | request.rdma * _RDMA | request.staged * _STAGED
        packed = _REQUEST.pack(kind, request.area, *fields, number)
        return packed + self._signed(key, b"request" + packed)

    def read_request(self, data: bytes, number: int) -> Request:
        """Of whoever; `is_signed` tells whether the buffer's key was known.

        Raises:
            ProtocolError: it is no request, or not the next one.
        """
        kind, area, slot, generation, offset, length, found = _REQUEST.unpack_from(data)
        if found != number or kind not in _KINDS:
            raise ProtocolError("protocol_error", "a request out of order", _FORGED)
        talk, rdma, staged = kind == _TALK, bool(kind & _RDMA), bool(kind & _STAGED)
        return Request(bool(kind & 1), slot, generation, offset, length, talk, rdma, staged, area)

    def is_signed(self, data: bytes, key: bytes) -> bool:
        packed, code = data[: _REQUEST.size], data[_REQUEST.size :]
        return hmac.compare_digest(code, self._signed(key, b"request" + packed))

    def reply(self, status: int, number: int, key: bytes | None, error: int = 0) -> bytes:
        """`key`: the buffer's, where the status is DONE."""
        packed = _REPLY.pack(status, error, number)
        return packed + self._signed(key, b"reply" + packed)

    def read_reply(self, data: bytes, number: int, key: bytes, done: int) -> tuple[int, int]:
        """Status and errno.

        Raises:
            ProtocolError: it is not of the owner, or not of this request.
        """
        packed, code = data[: _REPLY.size], data[_REPLY.size :]
        status, error, found = _REPLY.unpack(packed)
        expected = self._signed(key if status == done else None, b"reply" + packed)
        if found != number or not hmac.compare_digest(code, expected):
            raise ProtocolError("protocol_error", "a reply that the buffer's owner did not give", _FORGED)
        return status, error

    def talk_keys(self, key: bytes, number: int) -> tuple[bytes, bytes]:
        """What the messages are sealed by that follow request `number`: of who asks, of who serves."""
        told = number.to_bytes(8, "big")
        return self._signed(key, b"asks talk" + told), self._signed(key, b"serves talk" + told)

    def sealed(self, data: bytes, number: int, key: bytes) -> bytes:
        """A grant, which is no longer than 65535 bytes."""
        packed = _SEALED.pack(number, len(data)) + data
        return packed + self._signed(key, b"grant" + packed)

    @staticmethod
    def length_of_sealed(head: bytes) -> int:
        """How many bytes follow the first SEALED_BYTES."""
        length: int = _SEALED.unpack(head)[1]
        return length + CODE_BYTES

    def read_sealed(self, data: bytes, number: int, key: bytes) -> bytes:
        """
        Raises:
            ProtocolError: it is not of the owner, or not of this request.
        """
        packed, code = data[:-CODE_BYTES], data[-CODE_BYTES:]
        right = hmac.compare_digest(code, self._signed(key, b"grant" + packed))
        if not right or _SEALED.unpack_from(packed)[0] != number:
            raise ProtocolError("protocol_error", "a grant that the buffer's owner did not give", _FORGED)
        return packed[SEALED_BYTES:]

    def _signed(self, key: bytes | None, data: bytes) -> bytes:
        return _code(self._key if key is None else self._key + key, data)


def _code(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256().name)
