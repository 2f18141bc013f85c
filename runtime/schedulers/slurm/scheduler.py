"""The Slurm scheduler: see `script.py` for the job, `states.py` for what is made of Slurm's answers."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ...errors import InvalidArgument, Unavailable
from ...names import quoted
from ...paths import MeshPaths
from ...records import MeshSpec
from ..base import AllocationPlan, HostHandle, HostPlace, Order, SchedulerView, Tell, Ticket
from ..processes import HOST_MARK, end_marked, host_id
from . import host_task
from .asking import Asking, is_own_address
from .commands import Commands, Refused, refusal
from .offers import Partition
from .script import OPTIONS, JobFiles, check_options, check_paths, render, time_limit_s
from .states import nodes_of_hosts
from .watcher import follow, read_note

__all__ = ["SlurmScheduler"]

_LOOPBACK = "127.0.0.1"
_END_GRACE_S = 5.0
_OVER_S = 15.0
_LOOK_S = 0.1
_GIVEN = ("RUNNING", "COMPLETING", "SUSPENDED")
_HAS_ENDED = (
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "DEADLINE",
    "OUT_OF_MEMORY",
)


class SlurmScheduler:
    """Nodes of the cluster that this machine is a login node of."""

    name = "slurm"

    def __init__(self, commands: Commands | None = None) -> None:
        self._asking = Asking(commands or Commands())

    async def capacity(self) -> SchedulerView:
        if not Commands.found():
            return SchedulerView(self.name, available=False, reason="there is no sbatch here")
        try:
            partitions = await self._asking.partitions()
        except (Unavailable, Refused) as error:
            return SchedulerView(self.name, available=False, reason=str(error)[:300])
        return SchedulerView(
            name=self.name,
            available=any(one.up for one in partitions),
            reason="" if any(one.up for one in partitions) else "no partition is up",
            hosts="; ".join(_nodes_in_words(one) for one in partitions)[:600],
            devices="; ".join(dict.fromkeys(_devices_in_words(one) for one in partitions))[:300],
            limits="; ".join(_limit_in_words(one) for one in partitions)[:300]
            + f"; options: {', '.join(OPTIONS)}",
        )

    async def plan(self, mesh: str, spec: MeshSpec, paths: MeshPaths) -> AllocationPlan:
        check_options(spec)
        check_paths(paths)
        script = render(mesh, spec, paths, _task(paths))
        try:
            partitions = await self._asking.partitions()
            _check_partition(spec, partitions)
            chosen = spec.options.get("partition") or next(
                (one.name for one in partitions if one.default), ""
            )
            elsewhere = await self._asking.elsewhere(chosen)
        except Refused as error:
            raise Unavailable(
                "scheduler_unusable", f"Slurm does not tell its nodes: {error}", "Try: sinfo"
            ) from None
        warnings, start_at = await self._try(script)
        return AllocationPlan(script, elsewhere, warnings, start_at)

    async def _try(self, script: str) -> tuple[tuple[str, ...], float | None]:
        """What Slurm says of the job without taking it. A no may be for now: submission has the last word."""
        try:
            said = await self._asking.commands.ask("sbatch", "--test-only", given=script)
        except Refused as error:
            return (f"Slurm would not start it as things are: {refusal(str(error)).cause}",), None
        match = re.search(r"to start at (\S+)", said)
        return (), time.mktime(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")) if match else None

    async def submit(self, order: Order) -> Ticket:
        files = JobFiles.of(order.paths)
        try:
            files.root.mkdir(mode=0o700, exist_ok=True)
            for host in range(order.spec.hosts):
                _write_command(order, host)
            files.script.write_text(render(order.mesh, order.spec, order.paths, _task(order.paths)))
        except OSError as error:
            raise Unavailable(
                "allocation_failed", f"cannot write {files.root}: {error.strerror}", "Make room on that disk."
            ) from None
        try:
            said = await self._asking.commands.ask("sbatch", "--parsable", str(files.script))
        except Refused as error:
            raise refusal(str(error)) from None
        return Ticket(job=said.strip().splitlines()[-1].partition(";")[0])

    async def reattach(self, order: Order, ticket: Ticket | None) -> Ticket | None:
        if ticket is not None:
            return ticket
        if not JobFiles.of(order.paths).script.exists():
            return None
        job = await self._asking.named(order.mesh)
        return Ticket(job=job) if job else None

    async def watch(self, order: Order, ticket: Ticket, tell: Tell) -> None:
        await follow(order, ticket.job, self._asking, tell)

    async def addresses(self, order: Order, ticket: Ticket) -> tuple[HostHandle, ...]:
        job = await self._asking.job(ticket.job)
        if job is None or job.state not in _GIVEN:
            return ()
        up = {}
        for host in range(order.spec.hosts):
            note = read_note(order.paths.host(host))
            if note is not None and (str(note.job), note.life) == (ticket.job, job.restarts):
                up[host] = note.node
        names = nodes_of_hosts(order.spec.hosts, job.nodes, up)
        try:
            found = {node.name: node.address for node in await self._asking.nodes(tuple(filter(None, names)))}
        except Refused:
            found = {}
        addresses = [found.get(name, name) for name in names]
        # Where all are this machine, its own address is the one that always works.
        here = await anyio.to_thread.run_sync(lambda: all(map(is_own_address, filter(None, set(addresses)))))
        return tuple(
            HostHandle(host, name or f"{order.spec.name}-{host}", _LOOPBACK if here else address)
            for host, (name, address) in enumerate(zip(names, addresses, strict=True))
        )

    async def extend(self, _order: Order, ticket: Ticket, left_s: float) -> None:
        job = await self._asking.job(ticket.job)
        if job is None or job.start_at is None:
            raise Unavailable("lease_fixed", f"job {ticket.job} has no hosts now", "Call mesh_status.")
        now = time.time()
        if job.end_at is None or now + left_s <= job.end_at:
            return
        minutes = math.ceil((now - job.start_at + left_s) / 60) + 2
        try:
            await self._asking.commands.ask(
                "scontrol", "update", f"JobId={ticket.job}", f"TimeLimit={minutes}"
            )
        except Refused as error:
            left = max(0.0, job.end_at - now) / 60
            raise Unavailable(
                "lease_fixed",
                f"Slurm ends job {ticket.job} in {left:.0f} min, and does not let you extend it ({error})",
                "Ask an administrator (scontrol update TimeLimit), or allocate with a longer lease or"
                " options={'time_limit_minutes': ...}.",
            ) from None

    async def end_host(self, order: Order, host: int) -> int:
        return await end_marked(order.mesh, (host,), _END_GRACE_S)

    async def release(self, order: Order, ticket: Ticket | None) -> int:
        found = await self.reattach(order, ticket)
        if found is not None:
            with suppress(Refused):  # it is over, and forgotten
                await self._asking.commands.ask("scancel", found.job)
            with anyio.move_on_after(_OVER_S):
                while not await self._is_over(found):  # noqa: ASYNC110 - Slurm tells nobody
                    await anyio.sleep(_LOOK_S)
        return await end_marked(order.mesh, range(order.spec.hosts), _END_GRACE_S)

    async def _is_over(self, ticket: Ticket) -> bool:
        job = await self._asking.job(ticket.job)
        return job is None or (job.state in _HAS_ENDED and "COMPLETING" not in job.states)


def _task(paths: MeshPaths) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(Path(host_task.__file__)), str(paths.root), str(paths.sockets))


def _write_command(order: Order, host: int) -> None:
    directory = order.paths.host(host)
    argv = order.command(HostPlace(host, "", "", directory))
    command = {"argv": list(argv), "env": {HOST_MARK: host_id(order.mesh, host)}}
    (directory / host_task.COMMAND_FILE).write_text(json.dumps(command))


def _check_partition(spec: MeshSpec, partitions: tuple[Partition, ...]) -> None:
    """Refuses what Slurm would take and never start.

    Raises:
        InvalidArgument: no such partition, or one that gives less time or fewer nodes.
    """
    wanted = spec.options.get("partition", "")
    names = [one.name for one in partitions]
    if not wanted:
        chosen = [one for one in partitions if one.default]
    else:
        chosen = [one for one in partitions if one.name in wanted.split(",")]
        if not chosen:
            raise InvalidArgument(
                "invalid_argument",
                f"no partition {quoted(wanted)}; partitions: {', '.join(dict.fromkeys(names))}",
                "Call list_schedulers.",
            )
    limits = [math.inf if one.limit_s is None else one.limit_s for one in chosen]
    if limits and time_limit_s(spec) > max(limits):
        raise InvalidArgument(
            "invalid_argument",
            f"partition {chosen[0].name} gives at most {max(limits) / 60:.0f} min, and the lease with"
            f" the time to end takes {time_limit_s(spec) / 60:.0f} min",
            "Ask for a shorter lease, or another partition (list_schedulers).",
        )
    nodes: dict[str, int] = {}
    for one in chosen:
        nodes[one.name] = nodes.get(one.name, 0) + one.total
    if nodes and spec.hosts > max(nodes.values()):
        raise InvalidArgument(
            "invalid_argument",
            f"partition {chosen[0].name} has {max(nodes.values())} nodes; {spec.hosts} hosts were asked for",
            "Ask for fewer hosts, or another partition (list_schedulers).",
        )


def _nodes_in_words(one: Partition) -> str:
    state = "" if one.up else ", down"
    return f"{one.name}{' (default)' if one.default else ''}: {one.idle} of {one.total} idle{state}"


def _devices_in_words(one: Partition) -> str:
    return ", ".join(filter(None, [one.gres, f"{one.cpus} CPUs", f"{one.memory_mb} MB", one.features]))


def _limit_in_words(one: Partition) -> str:
    return f"{one.name}: {'no time limit' if one.limit_s is None else f'at most {one.limit_s / 60:.0f} min'}"
