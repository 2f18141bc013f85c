"""What names a region in another process: plain data, which is pickled wherever a buffer goes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import InvalidArgument
from ..mesh_secret import NO_MESH

__all__ = ["KEY_BYTES", "READ", "WRITE", "Handle", "Machine", "Owner", "process_in_words", "span"]

READ, WRITE = 1, 2
KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """What processes of one host have in common: the boot of its kernel, the namespaces of pids and network.

    Simulated hosts with a network of their own count as machines of their own; `simulated` is a process on
    one that may be such. One that is on none is on the machine that all of them are simulated by.
    """

    boot: str
    pids: int
    network: int
    simulated: bool = False

    def shares_memory(self, other: Machine) -> bool:
        """Whether a process here may see the other's as one of its own host."""
        return (self.boot, self.pids) == (other.boot, other.pids) and (
            self.network == other.network or not (self.simulated and other.simulated)
        )

    def shares_network(self, other: Machine) -> bool:
        """Names of abstract sockets belong to a network namespace."""
        return (self.boot, self.network) == (other.boot, other.network)

    def is_cut_off(self, other: Machine) -> bool:
        """Whether one of both is outside the network of simulated hosts, and the other in it."""
        return (
            (self.boot, self.pids) == (other.boot, other.pids)
            and self.network != other.network
            and self.simulated != other.simulated
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that owns regions, and where they can be reached.

    `token` is random and names the process for ever. `table_fd` is its table's descriptor there; `unix` the
    name of its abstract socket; `tcp` address and port, None where it offers nothing to other machines.
    `meshes` are those whose secret it knew when the handle was made: who asks on a socket proves one of them.
    `name` is what a mesh calls it, for people, such as `rank 2 of run-4xk`; empty outside of one.
    """

    token: bytes
    pid: int
    machine: Machine
    table_fd: int
    unix: str
    tcp: tuple[str, int] | None = None
    meshes: tuple[str, ...] = (NO_MESH,)
    name: str = ""

    def __str__(self) -> str:
        return process_in_words(self.pid, self.name)


@dataclass(frozen=True, slots=True)
class Handle:
    """One region, in its `generation`: that of a later region in the same slot is another.

    `rights` are READ, WRITE or both; `mappable`: its memory is a file, which others can map. `device` is the
    name of the one that it is on, empty for memory of the host.
    """

    owner: Owner
    slot: int
    generation: int
    key: bytes = field(repr=False)
    size: int
    rights: int
    mappable: bool = False
    device: str = ""


def process_in_words(pid: int, name: str) -> str:
    return f"process {pid} ({name})" if name else f"process {pid}"


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
