"""Whether the runs of one host move: sampled from outside, looked at when quiet, told by the spool."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..attach_records import ATTACH_VARIABLE
from ..errors import MilkweedError
from ..evidence.asking import ask_flight
from ..evidence.records import Flight
from ..metrics.latest import LATEST_BYTES, latest_step
from ..output import read_slice
from ..records import ProcessStacks
from ..tasks import background_tasks
from ..watching.evidence import StillEvidence, read_evidence, write_evidence
from ..watching.machine import (
    Action,
    AskFlightRecorder,
    Event,
    FlightSeq,
    MovesAgain,
    Sample,
    Sampled,
    SaveEvidence,
    StacksTaken,
    State,
    Still,
    TakeStacks,
    begin,
    step,
)
from ..watching.pace import Pace, follow
from ..watching.policy import WatchPolicy
from ..watching.sampling import RankProcess, sample_rank, sizes_in
from ..watching.signature import signatures, trimmed
from .host_run import HostRun
from .runs import Runs

__all__ = ["Dumps", "FlightRecorder", "Watching"]

logger = logging.getLogger(__name__)

_THREADS = 8
_SAMPLE_S = 5.0
_QUIET_SHARE = 0.5
_PACE_RANKS = 4


class Dumps(Protocol):
    """What is needed of the Stacks service."""

    async def dump(
        self,
        run: str,
        ranks: tuple[int, ...] | None,
        native: bool = False,
        locals: bool = False,  # noqa: A002
        timeout_s: float = 10.0,
    ) -> tuple[ProcessStacks, ...]: ...


class FlightRecorder(Protocol):
    """Who can ask a process what collectives it has begun: `evidence.asking.ask_flight`."""

    async def __call__(self, run_directory: Path, pid: int, timeout_s: float) -> Flight: ...


@dataclass(slots=True)
class _Followed:
    run: HostRun
    state: State = field(default_factory=begin)
    pace: Pace = field(default_factory=Pace)
    pace_at: float = 0.0
    pace_rank: int | None = None
    stacks: tuple[ProcessStacks, ...] = ()


class Watching(Actor):
    """Made by `Watching.open`, whose block its background work lives in."""

    def __init__(
        self,
        context: HostContext,
        stacks: Dumps,
        policy: WatchPolicy,
        tasks: anyio.abc.TaskGroup,
        ask_flight: FlightRecorder = ask_flight,
    ) -> None:
        self._context = context
        self._stacks = stacks
        self._policy = policy
        self._tasks = tasks
        self._ask_flight = ask_flight
        self._followed: dict[str, _Followed] = {}
        self._threads = anyio.CapacityLimiter(_THREADS)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        context: HostContext,
        runs: Runs,
        stacks: Dumps,
        policy: WatchPolicy,
        ask_flight: FlightRecorder = ask_flight,
    ) -> AsyncIterator[Watching]:
        """Follows every run that starts in the block."""
        async with background_tasks() as tasks:
            watching = cls(context, stacks, policy, tasks, ask_flight)
            runs.be_followed(watching if policy.on else None)
            try:
                yield watching
            finally:
                runs.be_followed(None)

    @endpoint
    async def moved_at(self, run: str) -> float | None:
        """When a living run was last seen to move here, wall clock; None where that is not known."""
        found = self._followed.get(run)
        moved = found.state.moved_at if found is not None else None
        return None if moved is None else _wall(moved)

    def stands_still(self, run: str) -> bool:
        """Whether its part of a living run here stands still by now."""
        found = self._followed.get(run)
        return found is not None and found.state.still_since is not None

    @endpoint
    async def evidence(self, run: str) -> StillEvidence | None:
        """What was kept when it last stood still here."""
        return await anyio.to_thread.run_sync(read_evidence, self._context.run_directory(run))

    def follow(self, run: HostRun) -> None:
        """Watches a run until it ends; not the program of a controller, which waits for others' work."""
        if any(ATTACH_VARIABLE in process.env for process in run.plan.processes):
            return
        followed = self._followed[run.plan.run] = _Followed(run)
        self._tasks.start_soon(self._follow, followed)

    async def _follow(self, followed: _Followed) -> None:
        run = followed.run
        try:
            while not run.ended.is_set():
                await self._tick(followed)
                with anyio.move_on_after(self._pause(followed.state)):
                    await run.ended.wait()
        except Exception:
            logger.exception("%s is no longer watched", run.plan.run)
        finally:
            self._followed.pop(run.plan.run, None)

    def _pause(self, state: State) -> float:
        left = state.look_at - time.monotonic()
        return min(self._policy.sample_s, max(left, self._policy.sample_s / 4))

    async def _tick(self, followed: _Followed) -> None:
        if (event := await self._sample(followed)) is not None:
            await self._take(followed, event)
        if time.monotonic() >= followed.pace_at:
            followed.pace_at = time.monotonic() + self._policy.pace_s
            await self._follow_pace(followed)

    async def _follow_pace(self, followed: _Followed) -> None:
        """Tells when the run has become slow, or is no longer; of one rank here that tells of its steps."""
        run, was = followed.run, followed.pace.slow
        ranks = [rank for rank, _ in run.living()][:_PACE_RANKS]
        if followed.pace_rank is not None:
            ranks = [rank for rank in ranks if rank == followed.pace_rank]
        labels = {rank: run.label(rank) for rank in ranks}
        with anyio.move_on_after(_SAMPLE_S):
            read = partial(_step_of, self._context, run.plan.run, labels)
            found = await anyio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._threads)
            if found is None or run.ended.is_set():
                return
            followed.pace_rank, step_now = found
            followed.pace = follow(self._policy, followed.pace, time.monotonic(), step_now)
            if (slow := followed.pace.slow) != was:
                told = None if slow is None else replace(slow, since=_wall(slow.since))
                self._context.spool.append("run_slow" if told else "run_at_pace", run=run.plan.run, slow=told)

    async def _take(self, followed: _Followed, event: Event) -> None:
        followed.state, actions = step(self._policy, followed.state, event)
        for action in actions:
            await self._do(followed, action)

    async def _do(self, followed: _Followed, action: Action) -> None:
        run = followed.run.plan.run
        if isinstance(action, AskFlightRecorder):
            await self._ask_recorders(followed, action.ranks)
        elif isinstance(action, TakeStacks):
            await self._look(followed, action.ranks)
        elif isinstance(action, SaveEvidence):
            await self._save(followed, action.since)
        elif isinstance(action, Still):
            self._context.spool.append("run_still", run=run, detail=f"{_wall(action.since):.3f}")
        elif isinstance(action, MovesAgain):
            self._context.spool.append("run_moves", run=run)

    async def _sample(self, followed: _Followed) -> Sampled | None:
        """None where /proc does not answer, or the run has just ended."""
        run, moved = followed.run, followed.state.moved_at
        quiet = moved is not None and time.monotonic() - moved >= self._policy.quiet_s * _QUIET_SHARE
        living = run.living()
        labels = {rank: run.label(rank) for rank, _ in living}
        read = partial(_read, self._context, run.plan.run, living, labels, full=quiet)
        with anyio.move_on_after(_SAMPLE_S):
            samples = await anyio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._threads)
            return None if run.ended.is_set() else Sampled(time.monotonic(), samples)
        return None

    async def _ask_recorders(self, followed: _Followed, ranks: tuple[int, ...]) -> None:
        found: dict[int, int] = {}

        async def ask(rank: int, pid: int) -> None:
            flight = await self._ask_flight(followed.run.directory, pid, self._policy.flight_s)
            if flight.entries:
                found[rank] = _begun(flight)

        async with anyio.create_task_group() as tasks:
            for rank, pid in followed.run.living():
                if rank in ranks:
                    tasks.start_soon(ask, rank, pid)
        await self._take(followed, FlightSeq(time.monotonic(), found))

    async def _look(self, followed: _Followed, ranks: tuple[int, ...]) -> None:
        if not followed.state.looking:  # the flight recorder told that they move
            return
        try:
            found = await self._stacks.dump(followed.run.plan.run, ranks, timeout_s=self._policy.look_s)
        except MilkweedError as error:
            logger.info("no look at %s: %s", followed.run.plan.run, error)
            found = ()
        followed.stacks = found or followed.stacks
        if (event := await self._sample(followed)) is not None:  # what moved meanwhile is told first
            await self._take(followed, event)
        seen = signatures(found)
        await self._take(followed, StacksTaken(time.monotonic(), {rank: seen.get(rank) for rank in ranks}))

    async def _save(self, followed: _Followed, since: float) -> None:
        run, ranks = followed.run, followed.state.ranks
        evidence = StillEvidence(
            run.plan.run,
            time.time(),
            _wall(since),
            trimmed(followed.stacks),
            tuple(rank.last for rank in ranks.values()),
            {number: cores for number, rank in ranks.items() if (cores := rank.cores) is not None},
            {number: rank.sequence for number, rank in ranks.items() if rank.sequence >= 0},
        )
        if not await anyio.to_thread.run_sync(write_evidence, run.directory, evidence):
            logger.warning("what is known of %s standing still cannot be written", run.plan.run)


def _read(
    context: HostContext,
    run: str,
    living: Sequence[tuple[int, int]],
    labels: Mapping[int, str],
    *,
    full: bool,
) -> tuple[Sample, ...]:
    reported = sizes_in(context.run_directory(run))
    samples = []
    for rank, pid in living:
        label = labels[rank]
        output = read_slice(context.directory, run, label, rank, tail_bytes=0, max_bytes=0, ended=False)
        samples.append(sample_rank(RankProcess(rank, label, pid, output.size), reported, full=full))
    return tuple(samples)


def _step_of(context: HostContext, run: str, labels: Mapping[int, str]) -> tuple[int, int] | None:
    """The first of these ranks that tells of its steps, and which it is at."""
    directory = context.run_directory(run)
    for rank, label in labels.items():
        output = read_slice(
            context.directory, run, label, rank, tail_bytes=LATEST_BYTES, max_bytes=LATEST_BYTES, ended=False
        )
        if (step_now := latest_step(directory, label, output.data)) is not None:
            return rank, step_now
    return None


def _begun(flight: Flight) -> int:
    """How many operations a rank has begun, by the last number in each of its sequences."""
    last: dict[tuple[str, bool], int] = {}
    for entry in flight.entries:
        last[entry.group, entry.p2p] = max(last.get((entry.group, entry.p2p), 0), entry.seq)
    return sum(last.values())


def _wall(monotonic: float) -> float:
    return time.time() - (time.monotonic() - monotonic)
