"""Buffers that go from actor to actor in messages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from milkweed.runtime import Actor, ActorMesh, ProcMesh, RDMABuffer, current_rank, endpoint, this_host
from milkweed.runtime.errors import ActorError, Conflict

DEADLINE_S = 60.0
pytestmark = pytest.mark.anyio


class Loader(Actor):
    def __init__(self, size: int) -> None:
        self.data = np.full(size, current_rank().rank + 1, np.uint8)
        self.buffer = RDMABuffer(self.data)

    @endpoint
    async def batch(self) -> RDMABuffer:
        return self.buffer

    @endpoint
    async def first(self) -> int:
        return int(self.data[0])

    @endpoint
    def drop(self) -> None:
        self.buffer.drop().get()


class Trainer(Actor):
    @endpoint
    async def add(self, *batches: RDMABuffer) -> int:
        total = 0
        for batch in batches:
            mine = np.zeros(batch.size(), np.uint8)
            await batch.read_into(mine)
            total += int(mine.sum())
            await batch.write_from(np.full(1, 200, np.uint8))
        return total


@pytest.fixture(scope="module")
def procs() -> Iterator[ProcMesh]:
    spawned = this_host().spawn_procs(per_host={"gpus": 2}, name="pair", output="keep").get(DEADLINE_S)
    yield spawned
    spawned.stop(0.0).get(DEADLINE_S)


async def spawn(procs: ProcMesh, cls: type[Actor], *arguments: object) -> ActorMesh:
    return await procs.spawn(cls.__name__.lower(), cls, *arguments)


async def test_buffers_pass_in_messages_and_their_bytes_beside_them(procs: ProcMesh) -> None:
    size = 300_000
    loaders, trainers = await spawn(procs, Loader, size), await spawn(procs, Trainer)
    batches = (await loaders.batch.call()).values()
    assert (await trainers.slice(gpus=1).add.call_one(*batches)) == 3 * size
    assert (await loaders.first.call()).values() == [200, 200]
    mine = np.zeros(size, np.uint8)
    await batches[1].read_into(mine)  # by the program itself
    assert (mine[0], mine[1]) == (200, 2)


async def test_a_buffer_that_was_dropped_is_an_error_where_it_is_used(procs: ProcMesh) -> None:
    loaders, trainers = await spawn(procs, Loader, 1000), await spawn(procs, Trainer)
    batch = await loaders.slice(gpus=0).batch.call_one()
    await loaders.drop.call()
    with pytest.raises(
        (Conflict, ActorError), match=r"buffer_dropped: .* by process \d+ \(proc pair-\w+-0\)"
    ):
        await trainers.slice(gpus=1).add.call_one(batch)
