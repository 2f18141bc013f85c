"""The local scheduler: simulated hosts on this machine, as daemons with directories of their own.

By default they share the machine's network and file system. With `options={"isolation": "namespaces"}` each
has its own mount, network and UTS namespaces (see `namespaces.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import anyio
import anyio.to_thread

from ..daemon import spawn_daemon
from ..errors import InvalidArgument, Unavailable
from ..names import quoted
from ..paths import MeshPaths
from ..records import MeshSpec
from . import namespaces
from .base import AllocationPlan, HostHandle, HostPlace, Order, SchedulerView, Tell, Ticket
from .events import Lost, Starting
from .forking import HostOrder, fork_hosts
from .processes import HOST_MARK, end_marked, host_id, start_time, wait_gone

__all__ = ["LocalScheduler"]

MAX_PROCS = 512
# Fewer are executed as fast.
_FORKED_FROM = 4
_LOOPBACK = "127.0.0.1"
_END_GRACE_S = 5.0
_OPTIONS = {"isolation": ("none", "namespaces")}


class LocalScheduler:
    """Hosts as processes of this user on this machine."""

    name = "local"

    async def capacity(self) -> SchedulerView:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        return SchedulerView(
            name=self.name,
            available=True,
            hosts="simulated, on this machine",
            devices=f"{os.cpu_count()} CPU cores, {memory:.0f} GiB memory",
            limits=f"hosts x procs_per_host at most {MAX_PROCS}; options: isolation=none|namespaces",
        )

    async def plan(self, _mesh: str, spec: MeshSpec, _paths: MeshPaths) -> AllocationPlan:
        if spec.world_size > MAX_PROCS:
            raise InvalidArgument(
                "invalid_argument",
                f"{spec.hosts} hosts x {spec.procs_per_host} procs are {spec.world_size:,} processes;"
                f" one machine is given at most {MAX_PROCS}",
                "Ask for fewer, or use another scheduler (list_schedulers).",
            )
        for name, value in spec.options.items():
            if name not in _OPTIONS:
                raise InvalidArgument(
                    "invalid_argument",
                    f"no option '{quoted(name)}'; options: {', '.join(_OPTIONS)}",
                    "Leave it out.",
                )
            if value not in _OPTIONS[name]:
                raise InvalidArgument(
                    "invalid_argument",
                    f"{name} must be one of {', '.join(_OPTIONS[name])}, not '{quoted(value)}'",
                    "Call it with one of those.",
                )
        if _isolated(spec):
            namespaces.check_possible()
        return AllocationPlan()

    async def submit(self, order: Order) -> Ticket:
        await self.release(order, None)
        try:
            places = [_place(order, host) for host in range(order.spec.hosts)]
            started = await _start_hosts(
                places, [_host_order(order.mesh, place, order.command(place)) for place in places]
            )
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.release(order, None)
            if not isinstance(error, OSError):
                raise
            raise Unavailable(
                "allocation_failed", f"a host cannot be started: {error}", "Free the disk or mend the path."
            ) from None
        return Ticket(handles=started)

    async def reattach(self, _order: Order, ticket: Ticket | None) -> Ticket | None:
        return ticket

    async def watch(self, _order: Order, ticket: Ticket, tell: Tell) -> None:
        async def one(handle: HostHandle) -> None:
            await wait_gone(handle.pid, handle.start_time)
            await tell(Lost((handle.host,)))

        await tell(Starting())
        async with anyio.create_task_group() as group:
            for handle in ticket.handles:
                group.start_soon(one, handle)

    async def addresses(self, _order: Order, ticket: Ticket) -> tuple[HostHandle, ...]:
        return ticket.handles

    async def extend(self, _order: Order, _ticket: Ticket, _left_s: float) -> None:
        """Nobody else has a say in it."""

    async def end_host(self, order: Order, host: int) -> int:
        return await end_marked(order.mesh, (host,), _END_GRACE_S)

    async def release(self, order: Order, ticket: Ticket | None) -> int:
        hosts = range(order.spec.hosts)
        ended = await end_marked(order.mesh, hosts, _END_GRACE_S)
        for handle in ticket.handles if ticket else ():
            with anyio.move_on_after(_END_GRACE_S):
                await wait_gone(handle.pid, handle.start_time)
        if _isolated(order.spec):
            await anyio.to_thread.run_sync(namespaces.remove_bridge, order.mesh, order.spec.hosts)
        return ended


def _place(order: Order, host: int) -> HostPlace:
    mesh, spec, directory = order.mesh, order.spec, order.paths.host(host)
    name = f"{spec.name}-{host}"
    if not _isolated(spec):
        return HostPlace(host, name, _LOOPBACK, directory)
    return HostPlace(
        host=host,
        name=name,
        address=namespaces.address_of(host),
        directory=directory,
        enter=namespaces.enter_command(mesh, host, spec.hosts, name, directory),
        leave=namespaces.leave_commands(mesh, host),
    )


def _host_order(mesh: str, place: HostPlace, command: Sequence[str]) -> HostOrder:
    env = {**os.environ, HOST_MARK: host_id(mesh, place.host)}
    return HostOrder(tuple(command), env, place.directory / "agent.log")


async def _start_hosts(places: Sequence[HostPlace], orders: Sequence[HostOrder]) -> tuple[HostHandle, ...]:
    """
    Raises:
        OSError: one cannot be started; others may have been.
    """
    started = await fork_hosts(orders) if len(orders) >= _FORKED_FROM else None
    if started is None:
        started = []
        for order in orders:
            pid = spawn_daemon(order.argv, env=order.env, log=order.log)
            started.append((pid, start_time(pid) or 0))
    pairs = zip(places, started, strict=True)
    return tuple(
        HostHandle(place.host, place.name, place.address, pid, began) for place, (pid, began) in pairs
    )


def _isolated(spec: MeshSpec) -> bool:
    return spec.options.get("isolation") == "namespaces"
