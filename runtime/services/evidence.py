"""Evidence of a run on this host: all kinds at once, each as far as it is there in time."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..codec import to_json
from ..devices.records import HostDevices
from ..evidence.asking import ask_flight, kept_flight
from ..evidence.fingerprint import chosen_variables, read_fingerprint
from ..evidence.kernel import (
    cpu_seconds,
    mounts_below,
    read_disk,
    read_kernel_log,
    read_listeners,
    read_memory,
    read_process_facts,
    waited_seconds,
)
from ..evidence.records import (
    Disk,
    Fault,
    Fingerprint,
    Flight,
    HostEvidence,
    KernelLine,
    Listener,
    Memory,
    ProcessFacts,
    RankEvidence,
)
from ..evidence.remains import (
    kept_evidence,
    read_faults,
    read_group,
    read_modules,
    read_raised,
    read_surroundings,
)
from ..metrics.reading import read_rank_metrics
from ..metrics.series import RankMetrics
from ..output import read_output
from ..records import EndReason, HostPlan, ProcessPlan, ProcessStacks
from .devices import Devices
from .rank_env import environment
from .runs import Runs
from .stacks import Stacks

__all__ = ["Evidence"]

logger = logging.getLogger(__name__)

_STACKS_SHARE = 0.8
_DEVICES_SHARE = 0.8
_WATCHED_S = 0.4
_STOPPED = ("T", "t")
_STOPPED_LOOKS = 8
_STOPPED_LOOK_S = 0.02
_FLIGHT_S = 1.0
_KEEP_S = 2.5
_SETTLE_S = 1.5
_PRINTED_BYTES = 512 * 1024
_BEFORE_S = 5.0
_SAVED = "evidence.json"
_LOOKED_AT_BEFORE: tuple[EndReason, ...] = ("timeout", "peer_failed")


class Evidence(Actor):
    """It also keeps what is known of a run that fails, or is ended, before that is gone."""

    def __init__(
        self,
        context: HostContext,
        runs: Runs,
        stacks: Stacks,
        devices: Devices,
        stands_still: Callable[[str], bool],
    ) -> None:
        self._context = context
        self._runs = runs
        self._stacks = stacks
        self._devices = devices
        self._stands_still = stands_still

    @endpoint
    async def collect(
        self,
        run: str,
        ranks: tuple[int, ...] | None,
        timeout_s: float,
        locals: bool = False,  # noqa: A002
    ) -> HostEvidence:
        """What is known here of a run and its ranks (None: all here), living or not.

        Raises:
            NotFound: run_not_found.
        """
        found = self._runs.find(run)
        chosen = found.ranks if ranks is None else ranks
        lives = dict(await self._runs.processes(run, tuple(chosen)))
        if not lives:  # what it left behind is told when that has ended too
            with anyio.move_on_after(min(_SETTLE_S, 0.5 * timeout_s)):
                await found.ended.wait()
        search = _Search(
            self._context, found.plan, found.directory, chosen, lives, found.pids, timeout_s, self._devices
        )
        stacks = self._stacks.dump(run, ranks, False, locals, timeout_s * _STACKS_SHARE) if lives else None
        return await search.collect(stacks)

    async def before_ending(self, run: str, reason: EndReason) -> None:
        """Keeps what a run looks like that is about to be ended: where that was not its caller's wish, or it
        stands still, so that nobody could say later why."""
        if reason in _LOOKED_AT_BEFORE or self._stands_still(run):
            with anyio.move_on_after(_KEEP_S + 0.5):
                await self._keep(await self.collect(run, None, _KEEP_S), run)

    async def has_ended(self, run: str) -> None:
        """Keeps what is known of a run that has failed."""
        with anyio.move_on_after(_KEEP_S):
            found = self._runs.find(run)
            search = _Search(
                self._context,
                found.plan,
                found.directory,
                found.ranks,
                {},
                found.pids,
                _KEEP_S,
                self._devices,
            )
            await self._keep(await search.collect(None), run)

    async def _keep(self, evidence: HostEvidence, run: str) -> None:
        path = self._context.run_directory(run) / _SAVED
        with suppress(OSError):  # a full disk: it can still be collected while the host is there
            await anyio.to_thread.run_sync(_write, path, json.dumps(to_json(evidence)))


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


@dataclass(slots=True)
class _Search:
    """Fills its fields at the same time; what is still empty at the end was late."""

    context: HostContext
    plan: HostPlan
    directory: Path
    ranks: Sequence[int]
    lives: Mapping[int, int]
    pids: Mapping[int, int]
    timeout_s: float
    devices: Devices
    late: list[str] = field(default_factory=list)
    stacks: tuple[ProcessStacks, ...] = ()
    flights: dict[int, Flight] = field(default_factory=dict)
    facts: dict[int, ProcessFacts] = field(default_factory=dict)
    prints: dict[int, Fingerprint] = field(default_factory=dict)
    faults: dict[int, tuple[Fault, ...]] = field(default_factory=dict)
    metrics: dict[int, RankMetrics | None] = field(default_factory=dict)
    memory: Memory | None = None
    disks: tuple[Disk, ...] = ()
    kernel: tuple[KernelLine, ...] = ()
    listeners: tuple[Listener, ...] = ()
    device_view: HostDevices | None = None

    async def collect(self, stacks: Awaitable[tuple[ProcessStacks, ...]] | None) -> HostEvidence:
        async with anyio.create_task_group() as tasks:
            for name, work in (
                ("flight recorders", self._ask_flights),
                ("processes", self._watch_processes),
                ("devices", self._look_at_devices),
                ("environments", lambda: self._in_thread(self._read_environments)),
                ("metrics", lambda: self._in_thread(self._read_metrics)),
                ("kernel", lambda: self._in_thread(self._read_kernel)),
                ("disks", lambda: self._in_thread(self._read_disks)),
            ):
                tasks.start_soon(self._in_time, name, work)
            if stacks is not None:
                tasks.start_soon(self._in_time, "stacks", lambda: self._take_stacks(stacks))
        before = await anyio.to_thread.run_sync(kept_evidence, self.directory)
        return HostEvidence(
            host=self.context.host,
            ranks=tuple(self._rank(rank, before.get(rank)) for rank in self.ranks),
            memory=self.memory,
            disks=self.disks,
            kernel=self.kernel,
            listeners=self.listeners,
            devices=self.device_view,
            late=tuple(self.late),
        )

    async def _in_time(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Whatever a run has done to what is read here, its host lives on, and the rest is told."""
        with anyio.move_on_after(self.timeout_s) as scope:
            try:
                await work()
            except Exception:
                logger.exception("%s of %s cannot be read", name, self.plan.run)
                self.late.append(name)
        if scope.cancelled_caught:
            self.late.append(name)

    async def _in_thread(self, read: Callable[[], None]) -> None:
        await anyio.to_thread.run_sync(read, abandon_on_cancel=True)

    async def _take_stacks(self, stacks: Awaitable[tuple[ProcessStacks, ...]]) -> None:
        self.stacks = await stacks

    async def _ask_flights(self) -> None:
        async def ask(rank: int, pid: int) -> None:
            self.flights[rank] = await ask_flight(self.directory, pid, min(_FLIGHT_S, 0.8 * self.timeout_s))

        async with anyio.create_task_group() as tasks:
            for rank, pid in self.lives.items():
                tasks.start_soon(ask, rank, pid)

    async def _look_at_devices(self) -> None:
        self.device_view = await self.devices.look(_DEVICES_SHARE * self.timeout_s)

    async def _watch_processes(self) -> None:
        if not self.lives:
            return
        started, before = time.monotonic(), {}
        for rank, pid in self.lives.items():
            before[rank] = cpu_seconds(pid), waited_seconds(pid)
        await anyio.sleep(min(_WATCHED_S, 0.5 * self.timeout_s))
        took = time.monotonic() - started
        for rank, pid in self.lives.items():
            ran, waited = before[rank]
            cpu = max(0.0, cpu_seconds(pid) - ran) / took
            wanted = cpu + max(0.0, waited_seconds(pid) - waited) / took
            if (facts := read_process_facts(pid, round(cpu, 2), round(wanted, 2))) is not None:
                self.facts[rank] = facts
        await self._watch_stopped()

    async def _watch_stopped(self) -> None:
        """Who reads a stack stops its process too, for a moment: one that lasts is meant."""
        for _ in range(_STOPPED_LOOKS):
            stopped = [rank for rank, facts in self.facts.items() if facts.os_state in _STOPPED]
            if not stopped:
                return
            await anyio.sleep(_STOPPED_LOOK_S)
            for rank in stopped:
                if (facts := read_process_facts(self.lives[rank])) is not None:
                    self.facts[rank] = replace(self.facts[rank], os_state=facts.os_state)

    def _read_environments(self) -> None:
        known: dict[tuple[object, ...], Fingerprint] = {}
        for rank in self.ranks:
            process = self._process(rank)
            label = f"rank-{rank}"
            told = read_surroundings(self.directory, label)
            env = environment(self.context, self.plan, process, os.environ) | told
            cwd = self.context.resolve(process.cwd)
            argv = (told["sys.executable"], *process.argv[1:]) if told.get("sys.executable") else process.argv
            key = (argv, env.get("PATH"), cwd)
            if key not in known:
                known[key] = read_fingerprint(argv, env, cwd)
            self.prints[rank] = replace(
                known[key],
                python=told.get("sys.version") or known[key].python,
                variables=chosen_variables(env),
                modules=read_modules(self.directory, label),
            )

    def _read_metrics(self) -> None:
        began = self._began()
        for rank in self.ranks:
            label = f"rank-{rank}"
            output = read_output(
                self.directory,
                label,
                rank,
                tail_bytes=_PRINTED_BYTES,
                max_bytes=_PRINTED_BYTES,
                ended=rank not in self.lives,
            )
            self.metrics[rank] = read_rank_metrics(
                self.directory,
                label,
                pids=[pid for pid in (self.pids.get(rank),) if pid],
                cwd=self.context.resolve(self._process(rank).cwd),
                since=began,
                output=output.data,
            )

    def _began(self) -> float:
        """When the run was started; just now where the run has removed what tells it."""
        try:
            return (self.directory / "plan.json").stat().st_mtime
        except OSError:
            return time.time()

    def _process(self, rank: int) -> ProcessPlan:
        """What started a rank: itself, or its host's launcher."""
        return next((one for one in self.plan.processes if one.rank == rank), self.plan.processes[0])

    def _read_kernel(self) -> None:
        for rank in self.ranks:
            self.faults[rank] = read_faults(self.directory, f"rank-{rank}")
        began = self._began()
        self.memory = read_memory(next(iter(self.lives.values()), None))
        self.kernel = read_kernel_log(began - _BEFORE_S)
        ports = {one.env.get("MASTER_PORT", "") for one in self.plan.processes}
        self.listeners = read_listeners({int(port) for port in ports if port.isdecimal()})

    def _read_disks(self) -> None:
        places = [self.context.workspace, "/tmp", "/dev/shm", str(self.context.directory)]
        places += {self.context.resolve(one.cwd) for one in self.plan.processes}
        places += mounts_below(self.context.workspace)
        disks = [disk for place in dict.fromkeys(places) if (disk := read_disk(place)) is not None]
        self.disks = tuple(disks)

    def _rank(self, rank: int, before: RankEvidence | None) -> RankEvidence:
        stacks = tuple(one for one in self.stacks if one.rank == rank)
        flight = self.flights.get(rank) or kept_flight(self.directory, f"rank-{rank}")
        found = RankEvidence(
            rank,
            process=self.facts.get(rank),
            stacks=stacks,
            flight=flight,
            faults=self.faults.get(rank, ()),
            fingerprint=self.prints.get(rank, Fingerprint()),
            metrics=self.metrics.get(rank),
            group=read_group(self.directory, f"rank-{rank}"),
            raised=read_raised(self.directory, f"rank-{rank}", self.pids.get(rank)),
        )
        if before is None or rank in self.lives:
            return found
        return replace(
            found,
            process=found.process or before.process,
            stacks=found.stacks or before.stacks,
            flight=found.flight if found.flight.entries else before.flight,
            kept=not found.stacks and bool(before.stacks),
        )
