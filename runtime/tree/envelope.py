"""What goes before a message that is numbered or passed on, and what relays answer: bytes, as pure functions.

A *numbered* message is one that can reach a proc in more than one way. Numbers are those of its sender, for
all its messages together, and rise; they are made of the sender's clock, so that the age of a message is
the difference of two of them.
"""

from __future__ import annotations

import enum
import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..addresses import SYSTEM, address_of
from ..errors import ProtocolError
from ..pickling import Pickled
from ..wire import SAME_VERSION, Kind, WireFrame
from .routing import Branch

__all__ = [
    "Answer",
    "Envelope",
    "Header",
    "Mode",
    "Standing",
    "Status",
    "numbered",
    "pack",
    "read_header",
    "read_numbered",
    "relayed",
    "standing",
    "unpack",
]

_ENVELOPE = struct.Struct("!QQQQ")
_LENGTH = struct.Struct("!I")
_NUMBERED = address_of(SYSTEM, "numbered")
_RELAYED = address_of(SYSTEM, "relay")

_ABOUT_NS = 10**9 * 10

Mode = Literal["call", "tell", "reduce"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """`number` is the message's own, 0 for one that goes directly and cannot be met again. It is to start
    after the sender's message `previous` (0: after none). Outcomes of numbers below `done` are not asked for
    again. `now` is the sender's clock.
    """

    number: int
    previous: int
    done: int
    now: int


Standing = Literal["new", "follows", "awaits", "may await", "too old"]


def standing(envelope: Envelope, last: int, up: int) -> Standing:
    """Of a message that has not come before, in a process that has been `up` for so long (in ns) and has
    taken all up to `last`.

    `too old`: it was first sent before this process was, to one that may have run it. `awaits`: what it
    follows has not come yet; where that was sent before this process was, it will not, and the message
    merely `follows`. `may await`: that was sent at about that time.
    """
    if envelope.number and envelope.now - envelope.number > up:
        return "too old"
    if envelope.previous <= last:
        return "new"
    age = envelope.now - envelope.previous
    if age > up:
        return "follows"
    return "may await" if age > up - _ABOUT_NS else "awaits"


def numbered(envelope: Envelope, message: Pickled) -> Pickled:
    body, buffers = message
    head = _ENVELOPE.pack(envelope.number, envelope.previous, envelope.done, envelope.now)
    return b"".join((_NUMBERED, head, body)), buffers


def read_numbered(rest: memoryview) -> tuple[Envelope, memoryview]:
    """Of what follows the address of a numbered message.

    Raises:
        ProtocolError: it is none.
    """
    try:
        return Envelope(*_ENVELOPE.unpack_from(rest)), rest[_ENVELOPE.size :]
    except struct.error:
        raise _unreadable("a numbered message") from None


@dataclass(frozen=True, slots=True)
class Header:
    """Of a message to relays, the same for all of them.

    `previous` is that of all positions but those in `others`. Answers are sent on after `flush_s` at the
    latest. `operation` is that of a reduction, as the caller pickled it.
    """

    mode: Mode
    number: int
    previous: int
    done: int
    now: int
    flush_s: float = 0.0
    others: Mapping[int, int] = field(default_factory=dict)
    operation: bytes = b""

    def envelope(self, position: int) -> Envelope:
        previous = self.others.get(position, self.previous) if self.others else self.previous
        return Envelope(self.number, previous, self.done, self.now)


def relayed(header: Header, slot: int, branch: Branch | None, message: Pickled) -> Pickled:
    """To the relay of a branch; `slot` names it on its connection, where the first message to use a slot
    anew has the branch itself.
    """
    body, buffers = message
    fields = (header.mode, header.number, header.previous, header.done, header.now, header.flush_s)
    head = pickle.dumps((slot, branch, *fields, header.others, header.operation), 5)
    return b"".join((_RELAYED, _LENGTH.pack(len(head)), head, body)), buffers


def read_header(rest: memoryview) -> tuple[int, Branch | None, Header, memoryview]:
    """Slot, branch, header and message, of what follows the address of a message to a relay.

    Raises:
        ProtocolError: it is none.
    """
    try:
        (length,) = _LENGTH.unpack_from(rest)
        at = _LENGTH.size + length
        slot, branch, *fields = pickle.loads(rest[_LENGTH.size : at])
        return slot, branch, Header(*fields), rest[at:]
    except Exception:
        raise _unreadable("a message to a relay") from None


class Status(enum.IntEnum):
    """Of one answer in a bundle."""

    RESULT = 1
    ERROR = 2
    ASK = 3  # the relay has no answer of that rank: it is to be asked directly
    COMBINED = 4  # one value of several ranks; `body` is (positions, value)
    BUNDLE = 5  # the bundle of a relay below, as it came


@dataclass(frozen=True, slots=True)
class Answer:
    position: int
    status: Status
    body: bytes | memoryview = b""
    buffers: tuple[memoryview, ...] = ()

    @classmethod
    def of(cls, position: int, frame: WireFrame) -> Answer:
        """Of a rank's own frame."""
        if frame.kind is Kind.KEPT:
            return cls(position, Status.ASK)
        status = Status.RESULT if frame.kind is Kind.RESULT else Status.ERROR
        return cls(position, status, frame.body, frame.buffers)

    @property
    def frame(self) -> WireFrame:
        kind = Kind.RESULT if self.status is Status.RESULT else Kind.ERROR
        return WireFrame(kind, 0, self.body, self.buffers)


def pack(answers: Iterable[Answer]) -> Pickled:
    """A bundle."""
    rows = []
    buffers: list[memoryview] = []
    for one in answers:
        rows.append((one.position, int(one.status), bytes(one.body), len(one.buffers)))
        buffers += one.buffers
    return pickle.dumps(rows, 5), buffers


def unpack(body: bytes | memoryview, buffers: Sequence[memoryview]) -> list[Answer]:
    """The answers in a bundle, those of bundles in it among them.

    Raises:
        ProtocolError: it is none.
    """
    answers: list[Answer] = []
    try:
        at = 0
        for position, status, inner, count in pickle.loads(body):
            own = tuple(buffers[at : at + count])
            at += count
            if status == Status.BUNDLE:
                answers += unpack(inner, own)
            else:
                answers.append(Answer(position, Status(status), inner, own))
    except ProtocolError:
        raise
    except Exception:
        raise _unreadable("the answer of a relay") from None
    return answers


def _unreadable(what: str) -> ProtocolError:
    return ProtocolError("protocol_error", f"{what} cannot be read", SAME_VERSION)
