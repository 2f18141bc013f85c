"""The runs of one host, as an actor: started, watched, read and ended here."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.capping import CapPolicy, OutputCap
from ..agent.context import HostContext
from ..agent.starter import DEFAULT_POLICY, Policy, Starters
from ..devices.own_device import traps_here
from ..errors import Conflict, NotFound, Unavailable
from ..names import quoted
from ..patterns import LinePattern, compile_pattern
from ..records import EndReason, HostPlan, OutputSlice
from .commands import check_command, check_directory, check_program, check_size, script_argv
from .host_run import HostRun, RunWatcher
from .rank_env import environment, open_starters
from .virtual_environments import Interpreters

__all__ = ["RunFollower", "Runs"]

_SETTLE_S = 10.0
_SEARCH_BYTES = 64 * 1024
_LONGEST_LINE = 4096
_RECENT = 5
_REMEMBERED = 50
_LINE_END = re.compile(r"[\r\n]")


class RunFollower(Protocol):
    """Is told of each run that starts."""

    def follow(self, run: HostRun) -> None: ...


class Runs(Actor):
    """Made by `Runs.open`, whose block its background work lives in."""

    def __init__(
        self, context: HostContext, cap: OutputCap, tasks: anyio.abc.TaskGroup, starters: Starters
    ) -> None:
        self._context = context
        self._cap = cap
        self._starters = starters
        self._tasks = tasks
        self._runs: dict[str, HostRun] = {}
        self._ports: dict[int, socket.socket] = {}
        self._interpreters = Interpreters(context.children)
        self._watcher: RunWatcher | None = None
        self._follower: RunFollower | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        context: HostContext,
        cap: OutputCap | None = None,
        *,
        warm_modules: Sequence[str] = (),
        policy: Policy = DEFAULT_POLICY,
    ) -> AsyncIterator[Runs]:
        """The runs service for the length of the block; runs that are left at its end are ended at once.

        Runs of Python start from a process that has imported `warm_modules`; without any, all start cold.
        """
        async with anyio.create_task_group() as tasks:
            cap = cap or OutputCap(CapPolicy())
            tasks.start_soon(cap.run)
            runs = cls(context, cap, tasks, open_starters(context, tasks, warm_modules, policy))
            try:
                yield runs
            finally:
                with anyio.CancelScope(shield=True):
                    await runs.end_all("released", 0.0)
                runs.close()
                tasks.cancel_scope.cancel()

    @endpoint
    async def check(self, plan: HostPlan) -> tuple[str, ...]:
        """Whether the plan could be started here; no effect. What its ranks should know is answered.

        Raises:
            NotFound: file_not_found (the working directory), command_not_found (with the nearest ones; or
                what a virtual environment stands on).
            InvalidArgument: the working directory is none, or the command is empty or too large; there is no
                device for a rank that is to have its own.
            Unavailable: mount_unusable, the working directory is in a mount that does not answer.
        """
        # First: a link that leads nowhere is all that is to be seen of a missing base interpreter.
        for process in plan.processes:
            program = os.path.join(self._context.resolve(process.cwd), *process.argv[:1])
            where = f" on {self._context.name}"
            await self._interpreters.check(program, where)
        # What it looks at may be in a mount that hangs, and this process has to go on to mend that.
        return await anyio.to_thread.run_sync(self._check, plan)

    def _check(self, plan: HostPlan) -> tuple[str, ...]:
        checked = set()
        notes: dict[str, None] = {}
        for process in plan.processes:
            cwd = self._context.resolve(process.cwd)
            env = environment(self._context, plan, process, os.environ)
            argv = process.argv
            if plan.script is not None:
                argv = script_argv(Path("script"), plan.script, plan.interpreter)
            if (key := (argv[:1], cwd, env.get("PATH"))) not in checked:
                checked.add(key)
                check_directory(cwd)
                where = f" on {self._context.name}"
                check_command(argv, cwd, env, where)
                check_program(argv, cwd, where)
                check_size(argv, env)
                notes |= dict.fromkeys(traps_here(env))
        return tuple(notes)

    @endpoint
    async def start(self, plan: HostPlan) -> None:
        """Starts a run; a run that was started already goes on as it is.

        Raises:
            NotFound, InvalidArgument: as `check`; nothing was started.
            Conflict: run_ended, a run of that id was here before this agent.
            Unavailable: disk_full.
        """
        if (known := self._runs.get(plan.run)) is not None:
            await known.started.wait()
            return
        self._check(plan)
        run = HostRun(self._context, plan, self._cap, self._starters, self._watcher)
        if plan.run in self._runs or run.directory.exists():
            raise Conflict("run_ended", f"run {plan.run} was here before", "Start a new run.")
        run.prepare()
        self._runs[plan.run] = run
        self._context.children.enter(run)
        self._tasks.start_soon(self._supervise, run)
        if self._follower is not None:
            self._follower.follow(run)
        with anyio.CancelScope(shield=True):  # a caller that leaves does not leave half a run
            await run.start()

    async def _supervise(self, run: HostRun) -> None:
        await run.supervise()
        await self.release_port(run.plan.reserved_port)
        # Their output stays on disk, where the keeper reads it when we no longer know them.
        over = [name for name, one in self._runs.items() if one.ended.is_set()]
        for name in over[:-_REMEMBERED]:
            del self._runs[name]

    @endpoint
    async def prepare(self, plan: HostPlan) -> None:
        """Has a starter for runs like this one ready, soon; where there can be none, it does nothing."""
        for process in plan.processes:
            env = environment(self._context, plan, process, os.environ)
            self._starters.prepare(process.argv, env=env, cwd=self._context.resolve(process.cwd))

    @endpoint
    async def end(self, run: str, ranks: tuple[int, ...] | None, reason: EndReason, grace_s: float) -> int:
        """Ends ranks of a run (None: all) with all they started: SIGTERM, and SIGKILL after `grace_s`.

        Returns:
            How many processes were ended; 0 where they had ended before.

        Raises:
            NotFound: run_not_found, rank_not_found.
        """
        found = self.find(run)
        for rank in ranks or ():
            found.label(rank)
        count = await found.end(ranks, reason, grace_s)
        if ranks is None:
            with anyio.move_on_after(_SETTLE_S):
                await found.ended.wait()
        return count

    @endpoint
    async def end_all(self, reason: EndReason, grace_s: float) -> int:
        """Ends every run; returns how many processes were ended. The spool has told all of it on return."""
        counts = []

        async def end(run: str) -> None:
            counts.append(await self.end(run, None, reason, grace_s))

        async with anyio.create_task_group() as tasks:
            for run, found in self._runs.items():
                if not found.ended.is_set():
                    tasks.start_soon(end, run)
        return sum(counts)

    @endpoint
    async def read(
        self,
        run: str,
        ranks: tuple[int, ...] | None,
        offsets: Mapping[int, int],
        tail_bytes: int | None,
        max_bytes: int,
    ) -> tuple[OutputSlice, ...]:
        """A slice of each rank's output (None: all ranks here), `max_bytes` of each at most.

        A rank in `offsets` is read from there, another one its last `tail_bytes`, or from its beginning.

        Raises:
            NotFound: run_not_found, rank_not_found.
        """
        found = self.find(run)
        chosen = found.ranks if ranks is None else ranks
        return tuple(
            found.read(rank, offsets.get(rank), None if rank in offsets else tail_bytes, max_bytes)
            for rank in chosen
        )

    @endpoint
    async def wait_output(
        self,
        run: str,
        ranks: tuple[int, ...] | None,
        offsets: Mapping[int, int],
        pattern: str | None,
        timeout_s: float,
    ) -> bool:
        """Waits until any rank has output behind its offset (default: 0), or a line there that matches.

        Returns:
            False when the time is up, or nothing more will come.

        Raises:
            NotFound: run_not_found, rank_not_found.
            InvalidArgument: the pattern is none.
        """
        found = self.find(run)
        chosen = found.ranks if ranks is None else ranks
        searches = [_Search(found, rank, offsets.get(rank, 0)) for rank in chosen]
        compiled = None if pattern is None else compile_pattern(pattern)
        pause = 0.01
        with anyio.move_on_after(timeout_s):
            while True:
                over = found.ended.is_set()
                for search in searches:
                    if await search.advance(compiled):
                        return True
                if over:
                    return False
                await anyio.sleep(pause)
                pause = min(pause * 1.5, 0.1)
        return False

    @endpoint
    async def processes(self, run: str, ranks: tuple[int, ...] | None) -> tuple[tuple[int, int], ...]:
        """(rank, pid) of the ranks that live.

        Raises:
            NotFound: run_not_found.
        """
        return self.find(run).processes(ranks)

    @endpoint
    async def reserve_port(self) -> int:
        """A TCP port that nobody else on this host is given until it is released, or its run ends.

        It is held by a socket that does not listen: a rank that sets SO_REUSEADDR, as torch's store does, can
        bind it.

        Raises:
            Unavailable: no port is free.
        """
        try:
            holder = _bound_socket()
        except OSError as error:
            raise Unavailable("allocation_failed", f"no free port: {error.strerror}", "Try again.") from None
        port = int(holder.getsockname()[1])
        self._ports[port] = holder
        return port

    @endpoint
    async def release_port(self, port: int) -> None:
        """Gives a reserved port back; safe to repeat."""
        if (holder := self._ports.pop(port, None)) is not None:
            holder.close()

    def be_watched(self, watcher: RunWatcher) -> None:
        """The watcher is told of the ends of runs that start from now on."""
        self._watcher = watcher

    def be_followed(self, follower: RunFollower | None) -> None:
        """The follower is told of the runs that start from now on."""
        self._follower = follower

    def find(self, run: str) -> HostRun:
        """
        Raises:
            NotFound: run_not_found.
        """
        if run not in self._runs:
            recent = ", ".join(list(self._runs)[-_RECENT:]) or "none"
            raise NotFound(
                "run_not_found",
                f"no run '{quoted(run)}' on {self._context.name}; its last ones: {recent}",
                "Call list_runs.",
            )
        return self._runs[run]

    def close(self) -> None:
        """Gives all ports back."""
        for holder in self._ports.values():
            holder.close()
        self._ports.clear()


class _Search:
    """Goes through one rank's output as it grows."""

    def __init__(self, run: HostRun, rank: int, offset: int) -> None:
        self._run = run
        self._rank = rank
        self._offset = offset
        self._unfinished = ""

    async def advance(self, pattern: LinePattern | None) -> bool:
        """Whether what came since holds a match (any output, without a pattern)."""
        while True:
            piece = self._run.read(self._rank, self._offset, None, _SEARCH_BYTES)
            if pattern is None or not piece.data:
                return bool(piece.data)
            self._offset = piece.next
            lines = _LINE_END.split(self._unfinished + piece.data.decode(errors="replace"))
            if any(pattern.search(line) for line in lines):
                return True
            self._unfinished = lines[-1][-_LONGEST_LINE:]
            await anyio.lowlevel.checkpoint()


def _bound_socket() -> socket.socket:
    holder = socket.socket(
        socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, socket.SOCK_STREAM
    )
    try:
        if holder.family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
    except OSError:
        holder.close()
        raise
    return holder
