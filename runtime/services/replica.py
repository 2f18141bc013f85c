"""One replica on its host: a group of ranks that is started, watched and restarted as one.

Each attempt is a run of `Runs`. When a rank fails, the others are ended at once, and the supervisor decides
what follows; the spool tells it. Nobody else is needed for that: keeper and server may be gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import time

import anyio
import anyio.abc

from ..agent.context import HostContext
from ..consequences import find_cause
from ..errors import MilkweedError, NotFound
from ..job_records import ReplicaPlan, attempt_id
from ..records import EndReason, Exit, HostPlan, ReplicaNote
from ..supervision import Escalate, Failure, Hands, RestartChild, Supervisor
from .host_run import HostRun
from .runs import Runs

__all__ = ["Replica", "attempt_plan"]

_GROUP = "group"
_PEER_GRACE_S = 2.0
_SETTLE_S = 10.0
_TAIL_BYTES = 4 * 1024
_TAIL_LINES = 40


def attempt_plan(plan: ReplicaPlan, attempt: int, port: int) -> HostPlan:
    """The run of an attempt: its ranks meet at a port of its own and know which attempt they are."""
    env = {
        "MASTER_PORT": str(port),
        "MILKWEED_ATTEMPT": str(attempt),
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
    }
    processes = tuple(replace(one, env={**one.env, **env}) for one in plan.plan.processes)
    return replace(plan.plan, run=attempt_id(plan.plan.run, attempt), processes=processes, reserved_port=port)


class Replica:
    """`begin` starts it, in the tasks of its owner; `ended` is set while nothing of it lives or will."""

    def __init__(
        self, context: HostContext, plan: ReplicaPlan, runs: Runs, tasks: anyio.abc.TaskGroup
    ) -> None:
        self.plan = plan
        self.ended = anyio.Event()
        self._context = context
        self._runs = runs
        self._tasks = tasks
        self._restarts_before = 0
        self._reason: EndReason = "cancelled"
        self._grace_s = _PEER_GRACE_S
        self._processes_ended = 0
        # Of each attempt: it is known to `Runs`, or never will be.
        self._placed: defaultdict[int, anyio.Event] = defaultdict(anyio.Event)
        self._supervisor = self._new_supervisor(0)

    @property
    def attempt(self) -> int:
        """The number of the latest attempt, 0 before the first."""
        child = self._supervisor.state.child(_GROUP)
        return child.attempt if child is not None else 0

    def begin(self) -> None:
        self._tasks.start_soon(self._supervise, self._supervisor)

    async def restart(self) -> int:
        """Ends the attempt that runs and starts another, which counts as no failure; returns its number.

        A replica that was given up, or that was done, begins anew.
        """
        wanted = self.attempt + 1
        supervisor = self._supervisor
        if supervisor.state.over or supervisor.state.phase != "running":
            await self.ended.wait()
            if self._supervisor is supervisor:  # nobody else has begun it anew meanwhile
                self._restarts_before += supervisor.state.total
                self.ended = anyio.Event()
                self._supervisor = self._new_supervisor(self.attempt)
                self.begin()
        else:
            supervisor.tell(RestartChild(_GROUP, supervisor.now()))
        with anyio.move_on_after(_SETTLE_S):
            while self.attempt < wanted and not self.ended.is_set():
                await self._supervisor.wait_changed()
        return wanted

    async def stop(self, reason: EndReason, grace_s: float) -> int:
        """Ends it for good; returns how many processes that ended."""
        if self.ended.is_set():
            return 0
        self._reason, self._grace_s = reason, grace_s
        self._supervisor.stop()
        with anyio.move_on_after(grace_s + _SETTLE_S):
            await self.ended.wait()
        return self._processes_ended

    def _new_supervisor(self, attempts: int) -> Supervisor:
        hands = Hands(self._live, self._end, self._escalate)
        return Supervisor(self.plan.restart, {_GROUP: attempts}, hands)

    async def _supervise(self, supervisor: Supervisor) -> None:
        await supervisor.run()
        child = supervisor.state.child(_GROUP)
        if child is not None and child.phase == "done":
            self._say("replica_succeeded")
        elif supervisor.state.phase == "stopping":
            self._say("replica_stopped", detail=self._reason)
        self.ended.set()

    async def _live(self, _: str, attempt: int, started: Callable[[], None]) -> Failure | None:
        self._say("replica_started")
        try:
            run = await self._start(attempt)
        except MilkweedError as error:
            return self._failed(None, Exit(error=f"{error.code}: {error.cause}"), ())
        finally:
            self._placed[attempt].set()
        started()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_peers, run)
            await run.ended.wait()
            tasks.cancel_scope.cancel()
        failures = run.failures()
        tails = [_tail(run, rank) for rank, _ in failures]
        cause = find_cause(tails)
        return self._failed(*failures[cause], tails[cause]) if failures else None

    async def _start(self, attempt: int) -> HostRun:
        port = await self._runs.reserve_port()
        plan = attempt_plan(self.plan, attempt, port)
        try:
            await self._runs.start(plan)
        except MilkweedError:
            await self._runs.release_port(port)
            raise
        return self._runs.find(plan.run)

    async def _end_peers(self, run: HostRun) -> None:
        await run.failed.wait()
        await self._runs.end(run.plan.run, None, "peer_failed", _PEER_GRACE_S)

    async def _end(self, _: str, attempt: int) -> None:
        await self._placed[attempt].wait()
        with suppress(NotFound):  # it never started
            run = attempt_id(self.plan.plan.run, attempt)
            self._processes_ended += await self._runs.end(run, None, self._reason, self._grace_s)

    def _failed(self, rank: int | None, ending: Exit, tail: tuple[str, ...]) -> Failure:
        child = self._supervisor.state.child(_GROUP)
        if child is not None and child.phase != "ending":
            self._say("replica_failed", rank=rank, ending=ending, tail=tail)
        who = "group" if rank is None else str(rank)
        run = attempt_id(self.plan.plan.run, self.attempt)
        ranks = () if rank is None else (rank,)
        return Failure(
            "rank", f"{who} of {run}", self._context.mesh, ranks, exit=ending, at=time(), tail=tail
        )

    def _escalate(self, escalation: Escalate) -> None:
        self._say("replica_gave_up", detail=escalation.reason)

    def _say(
        self,
        kind: str,
        *,
        rank: int | None = None,
        ending: Exit | None = None,
        detail: str = "",
        tail: tuple[str, ...] = (),
    ) -> None:
        restarts = self._restarts_before + self._supervisor.state.total
        note = ReplicaNote(self.plan.job, self.plan.replica, self.attempt, restarts, tail)
        run = attempt_id(self.plan.plan.run, self.attempt)
        self._context.spool.append(kind, run=run, rank=rank, exit=ending, detail=detail, note=note)


def _tail(run: HostRun, rank: int) -> tuple[str, ...]:
    with suppress(OSError):
        piece = run.read(rank, None, _TAIL_BYTES, _TAIL_BYTES)
        return tuple(piece.data.decode(errors="replace").splitlines()[-_TAIL_LINES:])
    return ()
