"""Checks of one mesh, on the hosts that answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from ..actor import Actor, endpoint
from ..checking import HostCheck, HostFacts, MeshCheck, apart
from ..checking.records import AllReduce, AllReduceTurn, Clock, Surroundings, Turn
from ..devices import HostDevices
from ..errors import MilkweedError
from ..paths import MeshPaths
from ..services.devices import Devices
from ..services.fitness import Fitness
from ..services.runs import Runs
from .clocks import measure_clock
from .hosts import Hosts
from .links import HostLink
from .mesh_keeper import MeshKeeper
from .workspace_python import workspace_python

if TYPE_CHECKING:
    from ..checking.checking import Checking

__all__ = ["Checks"]

# Of the time that a caller waits: what is left for an all-reduce is that less what the rest took.
_ALL_S = 38.0
_SURVEY_S = 8.0
_DEVICES_S = 5.0
_CLOCK_ROUNDS = 5
_CLOCK_S = 2.0
_REDUCE_MOST_S, _REDUCE_LEAST_S = 15.0, 5.0
_REDUCE_SPARE_S = 2.0
_REDUCE_BYTES = 16 * 1024 * 1024
_REDUCE_HOSTS = 8


@dataclass(slots=True)
class _Told:
    """What a host's agent told, as far as it came in time."""

    clock: Clock | None = None
    surroundings: Surroundings | None = None
    devices: HostDevices | None = None


@dataclass(slots=True)
class _Survey:
    """Asks all agents at once, each thing of each host for itself."""

    links: Sequence[HostLink]
    python: str
    told: dict[int, _Told] = field(default_factory=dict)

    async def run(self) -> None:
        self.told = {link.host: _Told() for link in self.links}
        with anyio.move_on_after(_SURVEY_S):
            async with anyio.create_task_group() as tasks:
                for link in self.links:
                    for ask in (self._clock, self._surroundings, self._devices):
                        tasks.start_soon(self._quietly, ask, link)

    async def _quietly(self, ask: object, link: HostLink) -> None:
        try:
            await ask(link)  # type: ignore[operator]
        except MilkweedError:
            return  # what it did not tell is missing; why a host is gone is said elsewhere

    async def _clock(self, link: HostLink) -> None:
        self.told[link.host].clock = await measure_clock(link, rounds=_CLOCK_ROUNDS, within_s=_CLOCK_S)

    async def _surroundings(self, link: HostLink) -> None:
        found = await link.call_within(_SURVEY_S, Fitness, Fitness.surroundings, self.python)
        self.told[link.host].surroundings = found

    async def _devices(self, link: HostLink) -> None:
        self.told[link.host].devices = await link.call_within(_SURVEY_S, Devices, Devices.look, _DEVICES_S)


class Checks(Actor):
    def __init__(self, keeper: MeshKeeper, paths: MeshPaths, hosts: Hosts) -> None:
        self._keeper = keeper
        self._paths = paths
        self._hosts = hosts
        self._checking: Checking | None = None

    @endpoint
    async def check(self, hosts: Sequence[int] | None) -> MeshCheck:
        """What the hosts (None: all) have, how fast memory moves within and between them, and collectives.

        It takes at most forty seconds.

        Of a host that does not answer, or is lost meanwhile, that is said.

        Raises:
            NotFound: host_not_found. Conflict: mesh_not_ready, mesh_released.
        """
        from ..checking.checking import Checking
        from ..meshes.members import HostRef

        self._keeper.require_live()
        until = anyio.current_time() + _ALL_S
        if self._checking is None:
            self._checking = Checking()
        links = [self._hosts[host] for host in (sorted(self._hosts.links) if hosts is None else hosts)]
        places = {
            link.host: HostRef(link.view().name, str(self._paths.host_socket(link.host)))
            for link in links
            if link.state == "ready"
        }
        python = workspace_python(self._keeper.mesh.spec.workspace)
        survey = _Survey([link for link in links if link.state == "ready"], python)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(survey.run)
            found, measured = await self._checking.check(places)
        facts = {host: one.facts for host, one in found.items() if one.facts is not None and not one.error}
        reduced = await self._all_reduce(facts, python, until - anyio.current_time())
        checks = [_at_the_end(link, found.get(link.host), survey.told.get(link.host)) for link in links]
        return MeshCheck(tuple(checks), measured, reduced)

    async def _all_reduce(
        self, facts: Mapping[int, HostFacts], python: str, left_s: float
    ) -> AllReduce | None:
        """None where all hosts are one place, which tells nothing of what is between hosts."""
        hosts = apart(
            {host: (one.machine.boot, one.machine.network) for host, one in facts.items()}, _REDUCE_HOSTS
        )
        if not hosts:
            return None
        seconds = min(_REDUCE_MOST_S, left_s - _REDUCE_SPARE_S)
        if seconds < _REDUCE_LEAST_S:
            return AllReduce(hosts, _REDUCE_BYTES, skipped="there was no time left")
        first = self._hosts[hosts[0]]
        try:
            port = await first.call(Runs, Runs.reserve_port)
        except MilkweedError as error:
            return AllReduce(hosts, _REDUCE_BYTES, skipped=error.cause)
        address = first.view().address
        turns = {
            host: AllReduceTurn(python, rank, len(hosts), address, port, _REDUCE_BYTES, seconds)
            for rank, host in enumerate(hosts)
        }
        try:
            answers = await self._hosts.ask(
                hosts,
                lambda link: link.call_within(
                    seconds + _REDUCE_SPARE_S, Fitness, Fitness.all_reduce, turns[link.host]
                ),
            )
        finally:
            with anyio.move_on_after(1.0, shield=True):
                await self._hosts.ask(hosts[:1], lambda link: link.call(Runs, Runs.release_port, port))
        return AllReduce(
            hosts,
            _REDUCE_BYTES,
            {
                host: Turn(error=answer.cause) if isinstance(answer, MilkweedError) else answer
                for host, answer in answers.items()
            },
        )


def _at_the_end(link: HostLink, found: HostCheck | None, told: _Told | None) -> HostCheck:
    """What was found of a host, with what the keeper knows now: it knows best why a host is gone."""
    check = found or HostCheck(link.host, error="it came back during the check")
    if told is not None:
        check = replace(check, clock=told.clock, surroundings=told.surroundings, devices=told.devices)
    if link.state == "ready":
        return check
    return replace(check, error=link.reason or link.state, state=link.state)
