"""Procs with named dimensions, on which actors are spawned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

from ..actor import Actor, check_arguments, endpoints_of, is_async
from ..errors import Conflict, MilkweedError
from ..extent import Point
from ..node import Feed, Future, node
from ..pickling import Pickled, dumps
from ..proc_records import ProcHealth
from ..records import ProcessStacks
from ..region import Region
from ..supervision import Failure
from .actor_mesh import ActorMesh, check_actor_class
from .calling import Explain
from .crew import Crew
from .shaped import Shaped
from .spawned_actors import SpawnedMesh
from .value_mesh import ValueMesh

__all__ = ["ProcMesh"]


class ProcMesh(Shaped):
    """Made by `HostMesh.spawn_procs`. Its procs end with `stop`, and with the process that spawned them."""

    def __init__(self, crew: Crew, region: Region) -> None:
        self._crew = crew
        self._region = region

    @property
    def region(self) -> Region:
        return self._region

    @property
    def name(self) -> str:
        return self._crew.name

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each rank's proc, as last started."""
        return {rank: self._crew.members[rank].pid for rank in self.ranks}

    @property
    def starts(self) -> dict[int, str]:
        """How each rank's proc was started: `warm`, `cold`, or `cold: ` and why."""
        return {rank: self._crew.members[rank].start for rank in self.ranks}

    def _over(self, region: Region) -> ProcMesh:
        return ProcMesh(self._crew, region)

    def spawn(self, name: str, cls: type[Actor], /, *args: Any, **kwargs: Any) -> Future[ActorMesh]:
        """One actor on each proc held, made there by `cls(*args, **kwargs)`; their mesh.

        Its ranks are numbered from 0 in the shape of this mesh. `__init__` runs on the main thread, or on the
        loop if all endpoints are async.

        Raises:
            InvalidArgument: no actor class; arguments that do not fit or cannot be sent. Nothing was sent.
            MeshError: `__init__` raised, the class cannot be imported there, or a proc died; by rank. Then
                there are no such actors on any rank.
        """
        check_actor_class(cls)
        check_arguments(cls, "__init__", args, kwargs)
        return node().start(self._spawn(name, cls, dumps((cls, args, kwargs))))

    async def _spawn(self, name: str, cls: type[Actor], pickled: Pickled) -> ActorMesh:
        region = Region.of(self.extent)
        on_loop = all(is_async(cls, endpoint) for endpoint in endpoints_of(cls))
        procs = tuple(self.ranks)
        points: dict[int, Point] = {proc: region.point(rank) for rank, proc in enumerate(procs)}
        spawned = SpawnedMesh(f"{name}-{token_hex(4)}", name, points, on_loop, pickled)
        errors = await self._crew.make_actors(spawned)
        if errors:
            ranks = {points[proc].rank: error for proc, error in errors.items()}
            _raise(region, ranks)
        addresses = [self._crew.members[proc].address for proc in procs]
        known = [address for address in addresses if address is not None]
        return ActorMesh(name, spawned.actor_id, cls, region, known, self._explain(procs))

    def _explain(self, procs: Sequence[int]) -> Explain:
        crew = self._crew
        return lambda rank, error, tell: crew.explain(procs[rank], error, tell)

    def remove(self, actors: ActorMesh) -> Future[None]:
        """Forgets actors; calls of them are `actor_not_found` from then on."""
        return node().start(self._crew.remove_actors(actors.actor_id))

    def stop(self, grace_s: float = 2.0) -> Future[int]:
        """Ends the procs of the whole mesh with all that they started: SIGTERM, and SIGKILL after `grace_s`.

        Returns:
            How many processes there were.
        """
        return node().start(self._crew.stop(grace_s))

    def end(self, grace_s: float = 0.0) -> Future[int]:
        """Ends only the procs held, whatever they are stuck in; the rest of the mesh goes on.

        It is no failure, and no policy starts them again: calls of them are `proc_lost` from then on.

        Returns:
            How many processes there were.
        """
        return node().start(self._crew.end(tuple(self.ranks), grace_s))

    def health(self) -> Future[dict[int, ProcHealth]]:
        """How each rank's proc is, told by its host, whatever keeps it busy; within about two seconds."""
        return node().start(self._crew.health(tuple(self.ranks)))

    def stacks(self) -> Future[tuple[ProcessStacks, ...]]:
        """Python stacks of the procs held and of their Python children, whatever they are stuck in."""
        return node().start(self._crew.stacks(tuple(self.ranks)))

    @asynccontextmanager
    async def failures(self) -> AsyncIterator[Feed[Failure]]:
        """Failures of procs and of actors of the whole mesh, live, from now on: `async for` them.

        It ends when the mesh is stopped.
        """
        feed = self._crew.failures.listen()
        try:
            yield feed
        finally:
            self._crew.failures.ignore(feed)

    def __reduce__(self) -> tuple[Any, ...]:
        raise Conflict(
            "not_the_owner", "a mesh of procs stays with its owner", "Send the actors spawned on it instead."
        )

    def __repr__(self) -> str:
        return f"ProcMesh({self.name}: {self._region.described()})"


def _raise(region: Region, errors: dict[int, MilkweedError]) -> None:
    values = {rank: None for rank in region.ranks if rank not in errors}
    ValueMesh(region, values, dict(errors)).raise_for_errors()
