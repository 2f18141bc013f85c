"""One run on one host: its processes from start to end, and what the spool says of them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import anyio
import anyio.lowlevel

from ..agent.capping import OutputCap
from ..agent.children import Child
from ..agent.context import HostContext
from ..agent.hook_protocol import clear_stack_files
from ..agent.ptree import Process, Tree, read_environ, read_process, snapshot
from ..agent.starter import Started, Starters
from ..codec import to_json
from ..errors import NotFound, Unavailable
from ..filesystems import is_full
from ..mesh import format_ranks
from ..output import Layout, output_file, read_slice
from ..records import EndReason, Exit, HostPlan, OutputSlice, ProcessPlan
from . import torchrun
from .commands import script_argv
from .rank_env import environment, find_ranks, marks

__all__ = ["HostRun", "RunWatcher"]

_STRAGGLER_GRACE_S = 0.5
_TIMEOUT_GRACE_S = 2.0
_LOOK_S = 0.1
_DISK_FULL = "the disk of its output was full when it failed"
_SUMMARY_BYTES = 256 * 1024
_MOMENT_S = 0.5


@dataclass(slots=True)
class _Member:
    plan: ProcessPlan
    child: Child | None = None
    exit: Exit | None = None


class RunWatcher(Protocol):
    """Is told of the ends of runs, and is done in seconds; what it raises is a bug."""

    async def before_ending(self, run: str, reason: EndReason) -> None: ...
    async def has_ended(self, run: str) -> None: ...


class HostRun:
    """See the module. `supervise` is its life after `start`; `ended` is set when nothing of it is left.

    `failed` is set when the first rank fails by itself.
    """

    def __init__(
        self,
        context: HostContext,
        plan: HostPlan,
        cap: OutputCap,
        starters: Starters,
        watcher: RunWatcher | None = None,
    ) -> None:
        self._watcher = watcher
        self.plan = plan
        self.directory = context.run_directory(plan.run)
        self.started = anyio.Event()
        self.failed = anyio.Event()
        self.ended = anyio.Event()
        self._first_failure: tuple[int, Exit] | None = None
        self._context = context
        self._cap = cap
        self._starters = starters
        self._members = {member.rank: _Member(member) for member in plan.processes}
        self._launched: dict[int, Process] = {}
        self._ended_by: dict[int, EndReason] = {}
        self._unclear: dict[int, tuple[_Member, Exit, asyncio.TimerHandle]] = {}
        self._ending: EndReason | None = None
        self._failed_on_full_disk: set[int] = set()
        self._mains_ended = anyio.Event()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the run on this host, without launchers."""
        return tuple(sorted(self.plan.child_ranks or (rank for rank in self._members if rank >= 0)))

    def label(self, rank: int) -> str:
        """Raises NotFound(rank_not_found) for a rank that this host does not have."""
        if rank in self.plan.child_ranks:
            return f"rank-{rank}"
        if rank not in self._members:
            raise NotFound(
                "rank_not_found",
                f"run {self.plan.run} has no rank {rank} on {self._context.name},"
                f" only {format_ranks(self.ranks) or 'none'}",
                "Name one of those.",
            )
        return self._members[rank].plan.label

    def prepare(self) -> None:
        """Makes the run's directory.

        Raises:
            Unavailable: disk_full, or another reason why the directory cannot be written.
        """
        try:
            self._context.temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.directory / "plan.json").write_text(json.dumps(to_json(self.plan)))
            if self.plan.script is not None:
                path = self.directory / "script"
                path.write_text(self.plan.script, errors="replace")
                path.chmod(0o700)
        except OSError as error:
            shutil.rmtree(self.directory, ignore_errors=True)  # so that it can be tried again
            raise Unavailable(
                "disk_full", f"cannot write {self.directory}: {error.strerror}", "Make room on that disk."
            ) from None

    def argv(self, member: ProcessPlan) -> tuple[str, ...]:
        """What is started: the plan's command, behind the script if the run is one."""
        if self.plan.script is None:
            return member.argv
        start = script_argv(self.directory / "script", self.plan.script, self.plan.interpreter)
        return (*start, *member.argv)

    async def start(self) -> None:
        """Starts every process; one that cannot be started is told as an event."""
        for rank in self.plan.child_ranks:
            with suppress(OSError):  # torchrun's rank opens it again, and fails if it cannot
                os.close(self._watch_output(rank, self.label(rank)))
        async with anyio.create_task_group() as tasks:
            for member in self._members.values():
                tasks.start_soon(self._start, member)
                await anyio.lowlevel.checkpoint()
        self.started.set()
        self._note_ends()

    async def _start(self, member: _Member) -> None:
        rank = member.plan.rank
        try:
            started = await self._launch(member)
        except (OSError, ValueError) as error:
            self._failed_to_start(member, Exit(error=_reason(error)))
            return
        if started is None:
            self._failed_to_start(member, Exit(ended_by=self._ended_by.get(rank, self._ending)))
            return
        member.child = started.child
        self._say("rank_started", rank, pid=started.child.pid, detail=started.how)

    async def _launch(self, member: _Member) -> Started | None:
        """The process of a rank; None where it was ended before it ran.

        Raises:
            OSError, ValueError: it cannot be started.
        """
        plan = member.plan
        output = self._watch_output(plan.rank, plan.label)
        try:
            return await self._starters.start(
                self.argv(plan),
                env=environment(self._context, self.plan, plan, os.environ),
                cwd=self._context.resolve(plan.cwd),
                output=output,
                on_exit=lambda _, ending: self._child_ended(member, ending),
                wanted=lambda: self._ending is None and plan.rank not in self._ended_by,
                cold=plan.cold,
            )
        finally:
            os.close(output)

    def _watch_output(self, rank: int, label: str) -> int:
        """Opens the output file of a rank, new if need be, and has it capped."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        output = os.open(output_file(self.directory, label), flags, 0o600)
        self._cap.watch(self.directory, label, lambda layout: self._capped(rank, layout))
        return output

    def _capped(self, rank: int, layout: Layout) -> None:
        text = f"output over {self._cap.policy.cap >> 20} MiB: its middle falls out from here on"
        self._say("output_capped", rank, detail=f"{text} ({layout.note})" if layout.note else text)

    def _failed_to_start(self, member: _Member, ending: Exit) -> None:
        member.exit = ending
        self._note_failure(member.plan.rank, ending)
        self._say("rank_failed_to_start", member.plan.rank, ending=ending)

    def _child_ended(self, member: _Member, ending: Exit) -> None:
        """Who ends a host from outside may signal its processes along with the agent: of one that ended by
        that signal it is known a moment later whether it ended with its host.
        """
        rank = member.plan.rank
        if not self._context.is_signalled_as_one or not _is_terminated(ending) or rank in self._ended_by:
            self._exited(member, ending)
        elif self._ending is not None:
            self._ended_by[rank] = self._ending
            self._exited(member, ending)
        else:
            timer = asyncio.get_running_loop().call_later(_MOMENT_S, self._decide, rank)
            self._unclear[rank] = (member, ending, timer)

    def _decide(self, rank: int) -> None:
        member, ending, timer = self._unclear.pop(rank)
        timer.cancel()
        self._exited(member, ending)

    def _exited(self, member: _Member, ending: Exit) -> None:
        rank = member.plan.rank
        member.exit = replace(ending, ended_by=self._ended_by.get(rank))
        if not member.exit.ok and member.exit.ended_by is None and is_full(self.directory):
            self._failed_on_full_disk |= {rank, *self.plan.child_ranks}
        self._note_failure(rank, member.exit)
        if self.plan.child_ranks:
            self._launcher_exited(member.plan, member.exit)
        self._say("rank_exited", rank, pid=member.child.pid if member.child else None, ending=member.exit)
        self._note_ends()

    def failures(self) -> tuple[tuple[int, Exit], ...]:
        """The ranks that did not end well: the first that failed, others that failed, those that we ended."""
        ended = [(rank, one.exit) for rank, one in self._members.items() if one.exit and not one.exit.ok]
        ended.sort(key=lambda one: (one != self._first_failure, one[1].ended_by is not None, one[0]))
        return tuple(ended)

    def _note_failure(self, rank: int, ending: Exit) -> None:
        if self._first_failure is None and not ending.ok and ending.ended_by is None:
            self._first_failure = (rank, ending)
            self.failed.set()

    def _launcher_exited(self, launcher: ProcessPlan, ending: Exit) -> None:
        text = ""
        with suppress(OSError):
            tail = self._slice(
                launcher.label, launcher.rank, None, _SUMMARY_BYTES, _SUMMARY_BYTES, ended=True
            )
            text = tail.data.decode(errors="replace")
        for rank, exit_ in torchrun.endings(self.plan.child_ranks, ending, text):
            ended_by = self._ended_by.get(rank, exit_.ended_by)
            found = self._launched.get(rank)
            self._say(
                "rank_exited",
                rank,
                pid=found.pid if found else None,
                ending=replace(exit_, ended_by=ended_by),
            )

    def _note_ends(self) -> None:
        if self.started.is_set() and all(member.exit is not None for member in self._members.values()):
            self._mains_ended.set()

    def _say(
        self,
        kind: str,
        rank: int | None = None,
        *,
        pid: int | None = None,
        ending: Exit | None = None,
        detail: str = "",
    ) -> None:
        self._context.spool.append(kind, run=self.plan.run, rank=rank, pid=pid, exit=ending, detail=detail)

    async def supervise(self) -> None:
        """Keeps the time limit, waits for the processes to end, and ends what they left behind."""
        await self.started.wait()
        timeout_s = self.plan.timeout_s
        async with anyio.create_task_group() as tasks:
            if self.plan.child_ranks:
                tasks.start_soon(self._find_launched)
            with anyio.move_on_after(timeout_s) as limit:
                await self._mains_ended.wait()
            if limit.cancelled_caught:
                await self.end(None, "timeout", _TIMEOUT_GRACE_S)
                await self._mains_ended.wait()
            tasks.cancel_scope.cancel()
        whose = self._left_behind()
        left = await self._context.children.end_trees(self._trees(None), _STRAGGLER_GRACE_S)
        left += await self._context.children.leave(self)
        await self._cap.finish(self.directory)
        if self._watcher is not None and self._first_failure is not None:
            await self._watcher.has_ended(self.plan.run)
        clear_stack_files(self.directory)
        plural = "" if left == 1 else "es"
        self._say("run_ended", detail=f"{left} background process{plural} of {whose} ended" if left else "")
        self.ended.set()

    def _left_behind(self) -> str:
        """Whose processes live on behind the main ones: `ranks 0-3`, or `it` where they do not tell."""
        marks_of = [read_environ(pid) for pid in self._context.children.find(self._trees(None))]
        ranks = {int(one["MILKWEED_RANK"]) for one in marks_of if one.get("MILKWEED_RANK", "").isdecimal()}
        return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}" if ranks else "it"

    async def _find_launched(self) -> None:
        while not self._look_for_launched():  # noqa: ASYNC110 - /member tells nobody of a change
            await anyio.sleep(_LOOK_S)

    def _look_for_launched(self) -> bool:
        """Learns the pids of the ranks that launchers have started; whether all are known."""
        table = snapshot()
        for member in self._members.values():
            if member.child is None or member.exit is not None:
                continue
            for rank, process in find_ranks(table, member.child.pid, self.plan.child_ranks).items():
                if self._launched.get(rank) != process:
                    if not self._is(self._launched.get(rank), process):
                        self._say("rank_started", rank, pid=process.pid)
                    self._launched[rank] = process
        return set(self.plan.child_ranks) <= self._launched.keys()

    @staticmethod
    def _is(one: Process | None, other: Process) -> bool:
        return one is not None and (one.pid, one.start_time) == (other.pid, other.start_time)

    async def end(self, ranks: Sequence[int] | None, reason: EndReason, grace_s: float) -> int:
        """Ends ranks (None: all, and launchers) with their trees; returns how many processes there were."""
        if ranks is None:
            self._ending = self._ending or reason
        for rank in [rank for rank in self._unclear if ranks is None or rank in ranks]:
            self._ended_by.setdefault(rank, reason)
            self._decide(rank)
        if self._watcher is not None and not self._mains_ended.is_set():
            await self._watcher.before_ending(self.plan.run, reason)
        self._context.children.collect()  # what has ended by itself was not ended by us
        for rank in [*self._members, *self.plan.child_ranks] if ranks is None else ranks:
            member = self._members.get(rank)
            if member is None or member.exit is None:
                self._ended_by.setdefault(rank, reason)
        count = 0
        with anyio.CancelScope(shield=True):
            count += await self._context.children.end_trees(self._trees(ranks), grace_s)
        return count

    def _trees(self, ranks: Iterable[int] | None) -> list[Tree]:
        if ranks is None:
            mine = marks(self._context, self.plan.run)
            return [self._context.children.tree(p.child.pid, mine) for p in self._members.values() if p.child]
        if self.plan.child_ranks:
            self._look_for_launched()
        trees = []
        for rank in ranks:
            if rank in self._launched:
                mine = {**marks(self._context, self.plan.run), "RANK": str(rank)}
                found = self._launched[rank]
                trees.append(Tree(found.pid, found.start_time, mine))
            elif (member := self._members.get(rank)) is not None and member.child is not None:
                trees.append(
                    self._context.children.tree(member.child.pid, marks(self._context, self.plan.run, rank))
                )
        return trees

    @property
    def pids(self) -> dict[int, int]:
        """Of the main processes of ranks, of those that have ended too."""
        found = {rank: one.child.pid for rank, one in self._members.items() if one.child is not None}
        return found | {rank: process.pid for rank, process in self._launched.items()}

    def processes(self, ranks: Sequence[int] | None) -> tuple[tuple[int, int], ...]:
        """(rank, pid) of the main processes that live; launchers only if named."""
        if self.plan.child_ranks and not self._mains_ended.is_set():
            self._look_for_launched()
        return self._known(self.ranks if ranks is None else ranks)

    def living(self) -> tuple[tuple[int, int], ...]:
        """(rank, pid) of the ranks that are known to live; where a launcher has none by now, of launchers.

        What launchers started is looked for only where all that were known have ended.
        """
        found = self._known(self.ranks)
        if found or not self.plan.child_ranks or self._mains_ended.is_set():
            return found
        self._look_for_launched()
        return self._known(self.ranks) or self._known(tuple(self._members))

    def _known(self, ranks: Sequence[int]) -> tuple[tuple[int, int], ...]:
        found = []
        for rank in ranks:
            if rank in self._launched:
                process = read_process(self._launched[rank].pid)
                if process is not None and process.alive and self._is(self._launched[rank], process):
                    found.append((rank, process.pid))
            elif (
                (member := self._members.get(rank)) is not None
                and member.child is not None
                and member.exit is None
            ):
                found.append((rank, member.child.pid))
        return tuple(found)

    def read(self, rank: int, offset: int | None, tail_bytes: int | None, max_bytes: int) -> OutputSlice:
        """A slice of one rank's output (see `output.read_slice`)."""
        label = self.label(rank)
        member = self._members.get(rank)
        ended = member.exit is not None if member is not None else self._mains_ended.is_set()
        found = self._slice(label, rank, offset, tail_bytes, max_bytes, ended=ended)
        return replace(found, note=_DISK_FULL) if rank in self._failed_on_full_disk else found

    def _slice(
        self,
        label: str,
        rank: int,
        offset: int | None,
        tail_bytes: int | None,
        max_bytes: int,
        *,
        ended: bool,
    ) -> OutputSlice:
        return read_slice(
            self._context.directory,
            self.plan.run,
            label,
            rank,
            offset=offset,
            tail_bytes=tail_bytes,
            max_bytes=max_bytes,
            ended=ended,
        )


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        if error.errno == errno.ENOEXEC:
            hint = "it has no #! line and is no program of this machine: name its interpreter"
            return f"{error.strerror}: {hint}"
        return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    return str(error)


def _is_terminated(ending: Exit) -> bool:
    """By SIGTERM; a shell exits as its child did."""
    return ending.signal == signal.SIGTERM or ending.code == 128 + signal.SIGTERM
