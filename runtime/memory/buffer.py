"""RDMABuffer: memory of one process that others read and write by themselves."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from ..errors import InvalidArgument
from ..node import Future, node
from .choosing import NAMES, Transport
from .handle import READ, WRITE, Handle
from .holding import hold
from .memory import Memory, Wanted
from .pinned import allocate

__all__ = ["RDMAAction", "RDMABuffer"]

TIMEOUT_S = 60.0


class RDMABuffer:
    """Memory of the process that makes it; pickled, a handle by which any other process may use it.

        buffer = RDMABuffer(tensor)                  # or a numpy array, anything bytes-like, a size in bytes
        await trainer.step.call(buffer)              # there: await buffer.read_into(mine)
        await buffer.drop()

    The memory is held where it is until `drop`. Whoever has the handle may use it as its rights say: they are
    those of the memory, less what `read=False` or `write=False` takes away. Transfers at the same time, and
    the owner's own work, may see each other's bytes half written. `handle` and `only` are not to be set.
    A tensor may be on a CUDA or HIP device: it offers what was queued on the device's current stream when the
    buffer was made; what is queued later is to be waited for before others are told.
    """

    __slots__ = ("handle", "only")

    def __init__(self, memory: Any, *, read: bool = True, write: bool = True) -> None:
        """A size is new memory, zeros, which processes of this host can map.

        Raises:
            InvalidArgument: it is no contiguous memory of this process or its devices; no right is left.
            Conflict: too_many_buffers.
            OSError: there is no room for so much.
        """
        held = allocate(int(memory)) if _is_size(memory) else hold(memory)
        rights = (READ if read else 0) | (WRITE if write and not held.is_readonly else 0)
        if not rights:
            raise InvalidArgument("invalid_argument", "a buffer without rights", "Allow reads or writes.")
        self.handle = _memory().register(held, rights)
        self.only: str | None = None

    def size(self) -> int:
        """In bytes."""
        return self.handle.size

    @property
    def memory(self) -> memoryview:
        """The bytes themselves, in the process that owns them.

        Raises:
            Conflict: not_the_owner; buffer_dropped.
            InvalidArgument: it is on a device.
        """
        return _memory().view_of(self.handle)

    def read_into(
        self, dst: Any, offset: int = 0, length: int | None = None, *, timeout: float = TIMEOUT_S
    ) -> Future[None]:
        """Copies bytes from `offset` on into the start of `dst`: as many as there are, or `length`.

        After an error, or a cancel, some of `dst` may have been written. Cancelled, it ends within a few
        megabytes; `dst` is held until then.

        Raises:
            InvalidArgument: out_of_range; wrong_key; `dst` cannot be written to.
            Conflict: buffer_dropped; access_refused.
            Unavailable: buffer_owner_lost, deadline_exceeded, cancelled, transport_unusable, transfer_failed.
            ProtocolError: somebody else answers in the owner's place.
        """
        return _memory().start([Wanted(self.handle, dst, offset, length, self.only, write=False)], timeout)

    def write_from(
        self, src: Any, offset: int = 0, length: int | None = None, *, timeout: float = TIMEOUT_S
    ) -> Future[None]:
        """Copies the start of `src`, all of it or `length` bytes, to `offset`.

        Raises:
            as `read_into`.
        """
        return _memory().start([Wanted(self.handle, src, offset, length, self.only, write=True)], timeout)

    def drop(self, *, timeout: float = TIMEOUT_S) -> Future[None]:
        """Offers it no longer: at once no transfer begins, and when none is under way the memory is let go.

        Safe to repeat.

        Raises:
            Conflict: not_the_owner.
            Unavailable: deadline_exceeded, a transfer is still under way and the memory held.
        """
        return _memory().drop(self.handle, timeout)

    @property
    def transport(self) -> Transport:
        """By what this process moves its bytes, how fast that was, and why nothing better.

        Raises:
            Unavailable: transport_unusable; buffer_owner_lost.
        """
        return _memory().transport(self.handle, self.only)

    def over(self, transport: str) -> RDMABuffer:
        """The same buffer, to be used in one way only: `local`, `shared`, `process_vm`, `unix`, `rdma` or
        `tcp`.

        Raises:
            InvalidArgument: there is no such transport.
        """
        if transport not in NAMES:
            raise InvalidArgument(
                "invalid_argument", f"no transport {transport!r}", f"There are: {', '.join(NAMES)}."
            )
        return _made(self.handle, transport)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.handle, self.only)

    def __repr__(self) -> str:
        return f"RDMABuffer({self.size()} bytes of {self.handle.owner})"


class RDMAAction:
    """Many transfers, submitted at once and waited for once.

    await RDMAAction().read_remote(mine, one).write_remote(other, theirs).submit()
    """

    def __init__(self) -> None:
        self._wanted: list[Wanted] = []

    def read_remote(
        self, dst: Any, src: RDMABuffer, offset: int = 0, length: int | None = None
    ) -> RDMAAction:
        """Adds `src.read_into(dst, offset, length)`.

        Raises:
            InvalidArgument: out_of_range; `dst` cannot be written to; `src` is no buffer.
        """
        _check_remote(src, "read_remote(dst, src): src")
        self._wanted.append(Wanted(src.handle, dst, offset, length, src.only, write=False))
        return self

    def write_remote(
        self, dst: RDMABuffer, src: Any, offset: int = 0, length: int | None = None
    ) -> RDMAAction:
        """Adds `dst.write_from(src, offset, length)`.

        Raises:
            InvalidArgument: out_of_range; `src` is no memory; `dst` is no buffer.
        """
        _check_remote(dst, "write_remote(dst, src): dst")
        self._wanted.append(Wanted(dst.handle, src, offset, length, dst.only, write=True))
        return self

    def submit(self, *, timeout: float = TIMEOUT_S) -> Future[None]:
        """Moves all of it, in any order; one that fails keeps no other from its end. May be repeated.

        Raises:
            the first error in the order of the batch, as `RDMABuffer.read_into` has them.
        """
        return _memory().start(self._wanted, timeout)


def _is_size(memory: Any) -> bool:
    """Numpy's integers too (such as `np.prod` gives), which are memory of a few bytes as well."""
    return isinstance(memory, Integral) and not isinstance(memory, bool)


def _check_remote(buffer: Any, name: str) -> None:
    if not isinstance(buffer, RDMABuffer):
        raise InvalidArgument(
            "invalid_argument",
            f"{name} is of type {type(buffer).__name__}",
            "Give an RDMABuffer there, and memory of this process for the other.",
        )


def _memory() -> Memory:
    return node().part(Memory, Memory)


def _made(handle: Handle, only: str | None) -> RDMABuffer:
    made = RDMABuffer.__new__(RDMABuffer)
    made.handle = handle
    made.only = only
    return made
