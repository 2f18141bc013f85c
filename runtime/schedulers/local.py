"""The local scheduler: simulated hosts on this machine, as daemons with directories of their own.

By default they share the machine's network and file system. With `options={"isolation": "namespaces"}` each
has its own mount, network and UTS namespaces (see `namespaces.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from ..daemon import spawn_daemon
from ..errors import InvalidArgument, Unavailable
from ..names import quoted
from ..records import MeshSpec
from . import namespaces
from .base import HostHandle, HostPlace, SchedulerView
from .forking import HostOrder, fork_hosts
from .processes import HOST_MARK, end_all, marked, start_time, wait_gone

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

    def describe(self) -> SchedulerView:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        return SchedulerView(
            name=self.name,
            available=True,
            hosts="simulated, on this machine",
            devices=f"{os.cpu_count()} CPU cores, {memory:.0f} GiB memory",
            limits=f"hosts x procs_per_host at most {MAX_PROCS}; options: isolation=none|namespaces",
        )

    def check(self, spec: MeshSpec) -> None:
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

    async def start(
        self,
        mesh: str,
        spec: MeshSpec,
        directory: Callable[[int], Path],
        command: Callable[[HostPlace], Sequence[str]],
    ) -> tuple[HostHandle, ...]:
        await self.give_back(mesh, spec, ())
        try:
            places = [_place(mesh, spec, host, directory(host)) for host in range(spec.hosts)]
            return await _start_hosts(places, [_order(mesh, place, command(place)) for place in places])
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.give_back(mesh, spec, ())
            if not isinstance(error, OSError):
                raise
            raise Unavailable(
                "allocation_failed", f"a host cannot be started: {error}", "Free the disk or mend the path."
            ) from None

    async def wait_lost(self, handle: HostHandle) -> None:
        await wait_gone(handle.pid, handle.start_time)

    async def end_host(self, mesh: str, host: int) -> int:
        return await end_all(lambda: list(marked({_host_id(mesh, host)}.__contains__)), _END_GRACE_S)

    async def give_back(self, mesh: str, spec: MeshSpec, handles: Sequence[HostHandle]) -> int:
        hosts = {_host_id(mesh, k) for k in range(spec.hosts)}
        ended = await end_all(lambda: list(marked(hosts.__contains__)), _END_GRACE_S)
        for handle in handles:
            with anyio.move_on_after(_END_GRACE_S):
                await wait_gone(handle.pid, handle.start_time)
        if _isolated(spec):
            await anyio.to_thread.run_sync(namespaces.remove_bridge, mesh, spec.hosts)
        return ended


def _place(mesh: str, spec: MeshSpec, host: int, directory: Path) -> HostPlace:
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


def _order(mesh: str, place: HostPlace, command: Sequence[str]) -> HostOrder:
    env = {**os.environ, HOST_MARK: _host_id(mesh, place.host)}
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


def _host_id(mesh: str, host: int) -> str:
    return f"{mesh}.{host}"
