"""One buffer to many: what `memory/broadcast/` does, with an outcome for each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import Conflict, InvalidArgument
from ..extent import Extent
from ..memory import RDMABuffer, Received
from ..memory.broadcast import Outcome, Receiver
from ..memory.handle import READ, WRITE
from ..memory.memory import Memory
from ..node import Future, node
from ..region import Region
from .value_mesh import ValueMesh

__all__ = ["broadcast_buffer"]

TIMEOUT_S = 600.0


def broadcast_buffer(
    source: RDMABuffer, into: ValueMesh[RDMABuffer] | Sequence[RDMABuffer], *, timeout: float = TIMEOUT_S
) -> Future[ValueMesh[Received]]:
    """Copies all of `source` to the start of every buffer of `into`, whoever owns them.

        buffers = await trainers.weights.call()  # an endpoint that returns an RDMABuffer of each rank's own
        await broadcast_buffer(mine, buffers)  # one value or one error a rank

    Hosts pass it on to each other in the order of `into`, each while it still receives; the buffers of one
    host are filled within it. A receiver that ends or is stopped has an error, and those behind it take from
    another. Ranks that have an error in `into` keep it. After an error, or a cancel, a part of a buffer may
    have been written; nothing is when the waiter has gone on, unless that receiver is stopped or unreachable.

    Raises:
        InvalidArgument: out_of_range, a buffer is smaller than the source; one is no buffer, or given twice.
        Conflict: access_refused, the source cannot be read, or a buffer not be written to.

    Each rank's error is one of
        Conflict: buffer_dropped. Unavailable: buffer_owner_lost, deadline_exceeded, transport_unusable,
        transfer_failed. ProtocolError.
    """
    given = into if isinstance(into, ValueMesh) else _numbered(into)
    buffers = given.ok()
    _check(source, buffers)
    receivers = [Receiver(buffer.handle, source.only) for buffer in buffers.values()]

    def told(outcomes: Sequence[Outcome]) -> ValueMesh[Received]:
        return _by_rank(given, tuple(buffers), outcomes)

    return node().part(Memory, Memory).broadcast(source.handle, receivers, told, timeout)


def _numbered(into: Sequence[RDMABuffer]) -> ValueMesh[RDMABuffer]:
    if isinstance(into, RDMABuffer):
        raise _wrong("the buffers are a single RDMABuffer", "Give a list of them, or what an endpoint gave.")
    return ValueMesh(Region.of(Extent(buffers=len(into))), dict(enumerate(into)))


def _check(source: RDMABuffer, buffers: Mapping[int, RDMABuffer]) -> None:
    if not isinstance(source, RDMABuffer):
        raise _wrong(f"the source is of type {type(source).__name__}", "Give an RDMABuffer.")
    if not source.handle.rights & READ:
        raise _refused("the source cannot be read")
    seen = {_region(source): "the source"}
    for rank, buffer in buffers.items():
        if not isinstance(buffer, RDMABuffer):
            raise _wrong(f"that of rank {rank} is of type {type(buffer).__name__}", "Give RDMABuffers.")
        if (same := seen.setdefault(_region(buffer), f"that of rank {rank}")) != f"that of rank {rank}":
            raise _wrong(f"the buffer of rank {rank} is {same} too", "Give each one once.")
        if not buffer.handle.rights & WRITE:
            raise _refused(f"the buffer of rank {rank} cannot be written to")
        if buffer.size() < source.size():
            raise InvalidArgument(
                "out_of_range",
                f"the buffer of rank {rank} has {buffer.size()} bytes, and the source {source.size()}",
                "Give buffers that are as large.",
            )


def _region(buffer: RDMABuffer) -> tuple[bytes, int, int]:
    return buffer.handle.owner.token, buffer.handle.slot, buffer.handle.generation


def _wrong(cause: str, next_step: str) -> InvalidArgument:
    return InvalidArgument("invalid_argument", cause, next_step)


def _refused(cause: str) -> Conflict:
    return Conflict("access_refused", cause, "Its owner says which rights it has, when it makes it.")


def _by_rank(
    given: ValueMesh[RDMABuffer], ranks: Sequence[int], outcomes: Sequence[Outcome]
) -> ValueMesh[Received]:
    values: dict[int, Received] = {}
    errors = given.errors()
    for rank, outcome in zip(ranks, outcomes, strict=True):
        if isinstance(outcome, Received):
            place = outcome.taken_from
            values[rank] = replace(outcome, taken_from=None if place is None else ranks[place])
        else:
            errors[rank] = outcome
    return ValueMesh(given.region, values, errors)
