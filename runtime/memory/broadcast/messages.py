"""What is said about a buffer that goes to many hosts, as bytes. Pure.

whoever leads    Join                                }  a receiver's own buffer
the receiver     Joined                              }
whoever leads    Take, again and again; Finish       }
the receiver     Held, every now and then; Lost      }
the receiver     Finished                            }

who takes        Watch                               }  the buffer that it takes from
who has it       There, when there is more; Gone     }
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias, get_args

from ...errors import Conflict, InvalidArgument, MilkweedError, NotFound, ProtocolError, Unavailable
from ...wire import SAME_VERSION
from ..handle import Handle, Machine, Owner

__all__ = [
    "Finish",
    "Finished",
    "Gone",
    "Held",
    "Join",
    "Joined",
    "Lost",
    "Message",
    "Take",
    "There",
    "Watch",
    "pack",
    "unpack",
]


@dataclass(frozen=True, slots=True)
class Join:
    """Receive `size` bytes in pieces of `piece`."""

    size: int
    piece: int


@dataclass(frozen=True, slots=True)
class Joined:
    """`buffer` is what others may take from."""

    buffer: Handle


@dataclass(frozen=True, slots=True)
class Take:
    """From now on from `buffer` alone, which is that of `member`."""

    member: int
    buffer: Handle
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """So many pieces are here; the last came by `transport`."""

    pieces: int
    transport: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing can be taken from `member` any more."""

    member: int
    error: MilkweedError


@dataclass(frozen=True, slots=True)
class Finish:
    """Stop, and let go of everything."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is under way any more."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Tell which pieces there are."""


@dataclass(frozen=True, slots=True)
class There:
    """These pieces too can be read from now on, or all of them (`whole`)."""

    numbers: tuple[int, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """The buffer that was talked about can no longer be used."""

    error: MilkweedError


Message: TypeAlias = Join | Joined | Take | Held | Lost | Finish | Finished | Watch | There | Gone
_ERRORS: Mapping[str, type[MilkweedError]] = {
    kind.__name__: kind for kind in (Conflict, InvalidArgument, NotFound, ProtocolError, Unavailable)
}
_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}


def pack(message: Message) -> bytes:
    return json.dumps([type(message).__name__, _plain(message)], separators=(",", ":")).encode()


def unpack(data: bytes) -> Message:
    """
    Raises:
        ProtocolError: it is no message.
    """
    try:
        name, parts = _revived(json.loads(data))
        message: Message = _KINDS[name](**{key: _READ.get(key, _same)(part) for key, part in parts.items()})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ProtocolError("protocol_error", f"no message: {error}", SAME_VERSION) from None
    return message


def _plain(value: Any) -> Any:
    if isinstance(value, MilkweedError):
        name = type(value).__name__
        return [name if name in _ERRORS else "Unavailable", value.code, value.cause, value.next_step]
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _revived(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_revived, value))
    if isinstance(value, dict):
        if value.keys() == {"hex"}:
            return bytes.fromhex(value["hex"])
        return {name: _revived(part) for name, part in value.items()}
    return value


def _handle(parts: dict[str, Any]) -> Handle:
    owner = parts["owner"]
    return Handle(**{**parts, "owner": Owner(**{**owner, "machine": Machine(**owner["machine"])})})


def _error(parts: tuple[str, ...]) -> MilkweedError:
    name, code, cause, next_step = parts
    kind = _ERRORS[name]
    return kind(str(code), str(cause), str(next_step))


def _same(value: Any) -> Any:
    return value


_READ: Mapping[str, Callable[[Any], Any]] = {"buffer": _handle, "error": _error}
