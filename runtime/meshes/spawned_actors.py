"""The actors that were spawned on the procs of a mesh: made, made again, removed."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..addresses import SYSTEM
from ..call import Connection
from ..errors import MilkweedError, Unavailable
from ..extent import Point
from ..pickling import Pickled
from .asking import ask
from .explaining import Explaining
from .members import Member

__all__ = ["SpawnedActors", "SpawnedMesh", "create"]

_REMOVE_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class SpawnedMesh:
    """Actors of one mesh: what makes them again. `points` is by rank of the proc."""

    actor_id: str
    name: str
    points: Mapping[int, Point]
    on_loop: bool
    pickled: Pickled


class SpawnedActors:
    """All that are on the members, by their ids; on the node's loop."""

    def __init__(
        self, members: Sequence[Member], connect: Callable[[Member], Connection], explaining: Explaining
    ) -> None:
        self._members = members
        self._connect = connect
        self._explaining = explaining
        self._spawned: dict[str, SpawnedMesh] = {}

    def name(self, actor_id: str) -> str:
        """That of their mesh; the id itself of what is not known (any more)."""
        spawned = self._spawned.get(actor_id)
        return actor_id if spawned is None else spawned.name

    async def make(self, spawned: SpawnedMesh) -> dict[int, MilkweedError]:
        """Makes them; the errors by rank of those that could not be, and then there are none."""
        self._spawned[spawned.actor_id] = spawned
        results = await asyncio.gather(*(self._tried(rank, spawned) for rank in spawned.points))
        errors = {
            rank: error for rank, error in zip(spawned.points, results, strict=True) if error is not None
        }
        if errors:
            await self.remove(spawned.actor_id)
        return errors

    async def _tried(self, rank: int, spawned: SpawnedMesh) -> MilkweedError | None:
        member = self._members[rank]
        try:
            await self._make_on(member, spawned)
        except Unavailable as error:
            return await self._explaining.explained(member, error)
        except MilkweedError as error:
            return error
        return None

    async def make_again(self, member: Member) -> None:
        """All that were on a proc which was started again.

        Raises:
            MilkweedError: why one of them cannot be.
        """
        for spawned in tuple(self._spawned.values()):
            if member.rank in spawned.points:
                await self._make_on(member, spawned)

    async def _make_on(self, member: Member, spawned: SpawnedMesh) -> None:
        body, buffers = spawned.pickled
        await create(
            self._connect(member),
            spawned.actor_id,
            spawned.name,
            spawned.points[member.rank],
            spawned.on_loop,
            body,
            map(pickle.PickleBuffer, buffers),
        )

    async def remove(self, actor_id: str) -> None:
        """Forgets actors, here and in their procs."""
        spawned = self._spawned.pop(actor_id, None)
        if spawned is None:
            return

        async def remove(rank: int) -> None:
            member = self._members[rank]
            if member.alive:
                await ask(self._connect(member), SYSTEM, "remove", actor_id, deadline_s=_REMOVE_S)

        await asyncio.gather(*(remove(rank) for rank in spawned.points), return_exceptions=True)


async def create(
    connection: Connection,
    actor_id: str,
    name: str,
    point: Point,
    on_loop: bool,
    body: bytes,
    buffers: Iterable[Any],
) -> None:
    """Has one actor made in a proc; arguments as those of `System.create`.

    Raises:
        MilkweedError: why it was not; ActorError: what its `__init__` raised.
    """
    await ask(connection, SYSTEM, "create", actor_id, name, point, on_loop, body, *buffers, deadline_s=None)
