"""A check of the hosts of a mesh: procs on each, what they find and measure, and their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

import anyio

from ..errors import ActorError, MilkweedError
from ..extent import Extent
from ..meshes.actor_mesh import ActorMesh
from ..meshes.host_mesh import HostMesh
from ..meshes.members import HostRef
from ..region import Region
from .checker import Checker
from .planning import Visit, rounds_of, share_s, size_for, slow_links, tell_apart, visits_of
from .records import LATE, HostCheck, HostFacts, LinkCheck, Measured

__all__ = ["Checking"]

logger = logging.getLogger(__name__)

_BEGIN_S = 15.0
_MEASURING_S = 18.0
_ALL_S = 34.0
_OFFER_S = 4.0
_MEASURE_SLACK_S = 4.0
_WITHDRAW_S = 2.0
_END_S = 4.0
_AGAIN_S, _PATIENT_S = 5.0, 0.25
# Of the process that was asked, not of what it did.
_GONE = ("proc_lost", "host_lost", "connection_lost", "deadline_exceeded", "uncancellable", "mesh_stopped")


class Checking:
    """Checks of one mesh, several at once if need be.

    Procs of a host that does not answer are ended when it does.
    """

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[None]] = set()

    async def check(self, hosts: Mapping[int, HostRef]) -> tuple[dict[int, HostCheck], tuple[LinkCheck, ...]]:
        """Within forty seconds, whatever becomes of the hosts; what was spawned for it is ended then."""
        spots = {host: _Spot(host, ref) for host, ref in hosts.items()}
        links: dict[tuple[int, int], LinkCheck] = {}
        try:
            with anyio.move_on_after(_ALL_S):
                await _all(spot.begin() for spot in spots.values())
                await self._measure(spots, links)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(spots.values())
        return {host: spot.found() for host, spot in spots.items()}, tuple(links.values())

    async def _measure(self, spots: Mapping[int, _Spot], links: dict[tuple[int, int], LinkCheck]) -> None:
        known = {host: spot.facts for host, spot in spots.items() if spot.facts is not None}
        machines = {host: facts.machine.boot for host, facts in known.items()}
        visits = visits_of(list(known))
        links |= {
            (reader, visit.source): LinkCheck(reader, visit.source, error=LATE)
            for visit in visits
            for reader in visit.readers
        }
        rounds = rounds_of(visits, machines)
        ends = anyio.current_time() + _MEASURING_S
        for at, one in enumerate(rounds):
            seconds = share_s(rounds[at:], ends - anyio.current_time())
            await _all(_visit(spots, visit, seconds, links) for visit in one)
        # What looks slow may have met something else that went on: it gets a second try, and more time.
        ends = anyio.current_time() + _AGAIN_S
        for reader, source in slow_links(tuple(links.values()), machines):
            if anyio.current_time() < ends:
                await _visit(spots, Visit(source, (reader,)), _PATIENT_S, links)
        for visit in tell_apart(slow_links(tuple(links.values()), machines), links, known):
            if anyio.current_time() < ends:
                await _visit(spots, visit, _PATIENT_S, links)

    async def _end(self, spots: Iterable[_Spot]) -> None:
        """Awaits it for a while: a host that is stopped would keep all others' answers back."""
        tasks = {asyncio.create_task(spot.end()) for spot in spots}
        self._ending |= tasks
        for task in tasks:
            task.add_done_callback(self._ending.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S)


async def _all(works: Iterable[object]) -> None:
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(_awaited, work)


async def _awaited(work: object) -> None:
    await work  # type: ignore[misc]


async def _visit(
    spots: Mapping[int, _Spot], visit: Visit, seconds: float, links: dict[tuple[int, int], LinkCheck]
) -> None:
    source = spots[visit.source]
    if not source.error:
        await source.offer(size_for(seconds))
    for reader in visit.readers:
        before = links.get((reader, visit.source))
        found = LinkCheck(reader, visit.source)
        if trouble := spots[reader].error or source.error:
            found = replace(found, error=trouble)
        else:
            found = await _read(spots[reader], source, seconds)
        if (
            before is None
            or before.measured is None
            or (found.measured is not None and found.measured.gb_per_s > before.measured.gb_per_s)
        ):
            links[reader, visit.source] = found
    if not source.error:
        await source.withdraw()


async def _read(reader: _Spot, source: _Spot, seconds: float) -> LinkCheck:
    link = LinkCheck(reader.host, source.host)
    try:
        return replace(link, measured=await reader.measure(source, seconds))
    except ActorError as error:
        raised = error.exception
        if isinstance(raised, MilkweedError):
            if raised.code == "buffer_owner_lost":
                source.error = source.error or raised.cause
            return replace(link, error=f"{raised.code}: {raised.cause}")
        return replace(link, error=error.raised)
    except MilkweedError as error:
        if error.code in _GONE:
            reader.error = reader.error or error.cause
        return replace(link, error=f"{error.code}: {error.cause}")


class _Spot:
    """One host, with two procs: the first offers, the second reads. `error`: it takes no part any more."""

    def __init__(self, host: int, ref: HostRef) -> None:
        self.host = host
        self.facts: HostFacts | None = None
        self.error = ""
        self._buffer: object = None
        self._actors: ActorMesh | None = None
        mesh = HostMesh(Region.of(Extent()), (ref,))
        self._procs = mesh.spawn_procs({"procs": 2}, name="check", output="keep")

    async def begin(self) -> None:
        self.error = f"its processes were not there after {_BEGIN_S:.0f} s"
        with anyio.move_on_after(_BEGIN_S):
            try:
                procs = await self._procs
                self._actors = await procs.spawn("checker", Checker)
                self.facts = await self._first.facts.within(_BEGIN_S).call_one()
                self.error = ""
            except MilkweedError as error:
                self.error = error.cause

    @property
    def _first(self) -> ActorMesh:
        assert self._actors is not None
        return self._actors.slice(procs=0)

    async def offer(self, size: int) -> None:
        try:
            self._buffer = await self._first.offer.within(_OFFER_S).call_one(size)
        except MilkweedError as error:
            self.error = error.cause

    async def measure(self, source: _Spot, seconds: float) -> Measured:
        """
        Raises:
            MilkweedError: this host is gone, or (ActorError) what `Checker.measure` raised.
        """
        assert self._actors is not None
        second = self._actors.slice(procs=1).measure.within(seconds + _MEASURE_SLACK_S)
        measured: Measured = await second.call_one(source._buffer, seconds)
        return measured

    async def withdraw(self) -> None:
        try:
            await self._first.withdraw.within(_WITHDRAW_S).call_one()
        except MilkweedError as error:
            self.error = error.cause

    def found(self) -> HostCheck:
        return HostCheck(self.host, self.facts, self.error)

    async def end(self) -> None:
        """Of what was spawned, and of what just was being."""
        self._procs.cancel()
        try:
            procs = await self._procs
            await procs.stop(0.0)
        except (MilkweedError, asyncio.CancelledError) as error:  # they have not come to be
            logger.debug("no procs on host %d: %r", self.host, error)
