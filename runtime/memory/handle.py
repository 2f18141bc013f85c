"""What names a region in another process: plain data, which is pickled wherever a buffer goes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import InvalidArgument

__all__ = ["KEY_BYTES", "READ", "WRITE", "Handle", "Machine", "Owner", "span"]

READ, WRITE = 1, 2
KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """What processes of one host have in common: the boot of its kernel, the namespaces of pids and network.

    Simulated hosts with a network of their own count as machines of their own.
    """

    boot: str
    pids: int
    network: int


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that owns regions, and where they can be reached.

    `token` is random and names the process for ever. `table_fd` is its table's descriptor there; `unix` the
    name of its abstract socket; `tcp` address and port, None where it offers nothing to other machines.
    """

    token: bytes
    pid: int
    machine: Machine
    table_fd: int
    unix: str
    tcp: tuple[str, int] | None = None

    def __str__(self) -> str:
        return f"process {self.pid}"


@dataclass(frozen=True, slots=True)
class Handle:
    """One region, in its `generation`: that of a later region in the same slot is another.

    `rights` are READ, WRITE or both; `mappable`: its memory is a file, which others can map.
    """

    owner: Owner
    slot: int
    generation: int
    key: bytes = field(repr=False)
    size: int
    rights: int
    mappable: bool = False


def span(size: int, local: int, offset: int, length: int | None, *, write: bool) -> int:
    """How many bytes are moved between a region of `size` and `local` bytes here.

    Without a length a read moves all that follows the offset, a write all that is here.

    Raises:
        InvalidArgument: out_of_range.
    """
    if length is None:
        length = local if write else size - offset
    if offset < 0 or length < 0 or offset + length > size:
        raise InvalidArgument(
            "out_of_range",
            f"bytes {offset} to {offset + length} of a buffer of {size}",
            "Give an offset and a length within the buffer.",
        )
    if length > local:
        raise InvalidArgument(
            "out_of_range",
            f"{length} bytes are to be moved, and the memory here has {local}",
            "Give a length, or memory that is as large.",
        )
    return length
