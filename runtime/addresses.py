"""Where procs and their actors are: what a handle carries from process to process."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .errors import ProtocolError
from .wire import SAME_VERSION

__all__ = ["SYSTEM", "ProcAddress", "address_of", "read_address"]

SYSTEM = ""
"""The id of the actor that every proc has; a proc calls its owner so too."""

_NAME = struct.Struct("!HH")


@dataclass(frozen=True, slots=True)
class ProcAddress:
    """A proc: `socket` is where its actors are called, `control` where it answers though they are busy."""

    proc: str
    host: str
    socket: str
    control: str


def address_of(actor_id: str, method: str) -> bytes:
    """How a message begins: whom it is for. Its arguments follow, pickled."""
    actor, name = actor_id.encode(), method.encode()
    return _NAME.pack(len(actor), len(name)) + actor + name


def read_address(body: bytes | memoryview) -> tuple[str, str, memoryview]:
    """Actor id, endpoint, and the pickled arguments.

    Raises:
        ProtocolError: it is no message to an actor.
    """
    try:
        actor, name = _NAME.unpack_from(body)
        at = _NAME.size + actor
        end = at + name
        if end > len(body):
            raise ValueError
        return str(body[_NAME.size : at], "utf-8"), str(body[at:end], "utf-8"), memoryview(body)[end:]
    except (ValueError, struct.error):
        raise ProtocolError("protocol_error", "a call names no actor", SAME_VERSION) from None
