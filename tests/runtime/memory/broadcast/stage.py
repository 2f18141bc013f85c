"""What broadcasts are tested with: processes that stand for hosts, a source that fills on order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import anyio
import numpy as np

from milkweed.runtime import RDMABuffer, broadcast_buffer
from milkweed.runtime.memory.broadcast.arrivals import Arrivals
from milkweed.runtime.memory.broadcast.pieces import Pieces, piece_size
from milkweed.runtime.memory.handle import Machine
from milkweed.runtime.memory.memory import Memory
from milkweed.runtime.node import node
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, Peer, open_peer, pattern

__all__ = ["SIZE", "Source", "begin_broadcast", "filling", "on_host", "open_peers", "reaches", "right"]

SIZE = 4 * 1024 * 1024 + 7
_LOOK_S = 0.02


@contextmanager
def open_peers(count: int) -> Iterator[list[Peer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(open_peer(MILKWEED_BUFFER_ADDRESS="127.0.0.1")) for _ in range(count)]


def on_host(buffer: RDMABuffer, number: int) -> RDMABuffer:
    """The buffer, as if its process was on a host of that number."""
    owner = replace(buffer.handle.owner, machine=Machine(f"host {number}", 1, 1))
    moved = buffer.over("tcp")
    moved.handle, moved.only = replace(buffer.handle, owner=owner), None
    return moved


class Source:
    """A buffer of this process, of which the pieces are there that it was told."""

    def __init__(self, seed: int, arrivals: Arrivals) -> None:
        self.data = pattern(seed, SIZE)
        self.buffer = RDMABuffer(self.data)
        self.pieces = Pieces(SIZE, piece_size(SIZE))
        self._arrivals = arrivals

    def add(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._arrivals.add(number)

    @property
    def half(self) -> range:
        return range(self.pieces.count // 2)

    @property
    def rest(self) -> range:
        return range(self.pieces.count // 2, self.pieces.count)


@contextmanager
def filling(seed: int) -> Iterator[Source]:
    buffer_source = Source(seed, Arrivals())
    with node().part(Memory, Memory).desk.filling(buffer_source.buffer.handle) as arrivals:
        buffer_source._arrivals = arrivals
        yield buffer_source
    buffer_source.buffer.drop().get(DEADLINE_S)


async def reaches(buffer: RDMABuffer, source: Source, numbers: Sequence[int]) -> None:
    """Waits until a receiver has these pieces."""
    await until(lambda: has(buffer, source, numbers))


def has(buffer: RDMABuffer, source: Source, numbers: Sequence[int]) -> bool:
    mine = np.zeros(SIZE, np.uint8)
    buffer.read_into(mine, 0, SIZE).get(DEADLINE_S)
    spans = [source.pieces.span(number) for number in numbers]
    return all((mine[at : at + length] == source.data[at : at + length]).all() for at, length in spans)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while not holds():
            await anyio.sleep(_LOOK_S)


def right(buffer: RDMABuffer, source: Source) -> bool:
    return has(buffer, source, range(source.pieces.count))


def begin_broadcast(source: RDMABuffer, into: list[RDMABuffer]) -> None:
    """In a peer: the broadcast goes on while it waits for what it is told next."""
    peers._Held.drops[-9] = broadcast_buffer(source, into)  # type: ignore[assignment]
