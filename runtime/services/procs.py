"""The procs of one host, as an actor: started for an owner, watched, and ended with it.

An owner keeps a call of `hold` open for as long as it wants its procs. When that call ends, in whatever way,
they are ended.
"""

from __future__ import annotations

import errno
import itertools
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel

from ..actor import Actor, endpoint
from ..agent.capping import CapPolicy, OutputCap
from ..agent.children import Child
from ..agent.context import HostContext
from ..agent.forked import ForkedStarter
from ..agent.starter import Starters
from ..errors import Conflict, InvalidArgument, Unavailable
from ..names import quoted
from ..output import read_output
from ..proc_records import ProcEvent, ProcHealth, ProcOfRun, ProcOutput, ProcStarted, SpawnProcs
from ..records import EndReason, Exit
from .commands import check_command, check_directory
from .host_proc import HostProc
from .proc_health import HealthLook

__all__ = ["COMMAND", "Procs"]

logger = logging.getLogger(__name__)

COMMAND = ("-m", "milkweed.runtime.proc")
_OWNER_GONE_GRACE_S = 1.0
_STRAGGLER_GRACE_S = 0.5
_SETTLE_S = 10.0
_HOLD_S = 1.0
_EVENTS_KEPT = 4096
_OUTPUTS_KEPT = 64
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(slots=True, eq=False)
class _Owner:
    name: str
    seq: int = 0
    events: deque[ProcEvent] = field(default_factory=lambda: deque(maxlen=_EVENTS_KEPT))
    changed: anyio.Event = field(default_factory=anyio.Event)
    numbers: dict[str, int] = field(default_factory=dict)
    gone: bool = False

    def tell(self, event: ProcEvent) -> None:
        self.seq += 1
        self.events.append(replace(event, seq=self.seq))
        self.changed.set()
        self.changed = anyio.Event()

    def after(self, seq: int) -> tuple[ProcEvent, ...]:
        """Events later than `seq`; those up to it are forgotten, since the owner has them."""
        while self.events and self.events[0].seq <= seq:
            self.events.popleft()
        return tuple(self.events)


class Procs(Actor):
    """Made by `Procs.open`, whose block its background work lives in."""

    def __init__(
        self,
        context: HostContext,
        host_socket: Path,
        tasks: anyio.abc.TaskGroup,
        starters: Starters,
        cap: OutputCap,
        command: tuple[str, ...],
    ) -> None:
        self._context = context
        self._host_socket = host_socket
        self._tasks = tasks
        self._starters = starters
        self._cap = cap
        self._command = command
        self._health = HealthLook(context.children)
        self._numbers = itertools.count()
        self._owners: dict[str, _Owner] = {}
        self._procs: dict[str, tuple[_Owner, HostProc]] = {}
        self._over: deque[HostProc] = deque()
        self._to_sweep: list[tuple[HostProc, bool]] = []
        self._grew = anyio.Event()
        self._held = anyio.Event()
        self._ending = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        context: HostContext,
        host_socket: Path,
        *,
        modules: Sequence[str] = (),
        forked: ForkedStarter | None = None,
        command: tuple[str, ...] = COMMAND,
    ) -> AsyncIterator[Procs]:
        """The procs service for the length of the block; procs that are left at its end are ended at once.

        Args:
            host_socket: that of the agent; the sockets of procs lie beside it.
            modules: what procs find imported when they start warm.
            forked: the starter that this process has forked, if it has.
            command: what a proc is, behind its interpreter.
        """
        async with anyio.create_task_group() as tasks:
            cap = OutputCap(CapPolicy())
            mark = {"MILKWEED_HOST_ID": context.instance}
            starters = Starters(
                context.children,
                tasks,
                context.directory / "proc-starters",
                mark,
                modules=(command[1], *modules),
                forks=None if forked is None else forked.open(context.children),
            )
            procs = cls(context, host_socket, tasks, starters, cap, command)
            tasks.start_soon(cap.run)
            tasks.start_soon(procs._sweep)
            try:
                yield procs
            finally:
                with anyio.CancelScope(shield=True):
                    await procs.end_all("released", 0.0)
                tasks.cancel_scope.cancel()

    @endpoint
    async def hold(self, owner: str) -> None:
        """Makes the caller the owner of what it will spawn under this name. Never returns.

        Raises:
            Conflict: name_in_use, somebody holds that name.
            Unavailable: host_ending.
        """
        self._refuse_while_ending()
        if owner in self._owners:
            raise Conflict("name_in_use", f"{quoted(owner)} owns procs here already", "Take another name.")
        held = self._owners[owner] = _Owner(owner)
        self._held.set()
        self._held = anyio.Event()
        try:
            await anyio.sleep_forever()
        finally:
            held.gone = True
            del self._owners[owner]
            self._tasks.start_soon(self._end_of_owner, held)

    async def _end_of_owner(self, owner: _Owner) -> None:
        with anyio.CancelScope(shield=True):
            count = await self._end(self._of(owner), "released", _OWNER_GONE_GRACE_S)
        if count:
            logger.info("the owner %s is gone; %d processes of its procs ended", owner.name, count)

    @endpoint
    async def spawn(self, request: SpawnProcs) -> tuple[ProcStarted, ...]:
        """Starts procs, in the order asked; all of them, or none.

        One that was killed since is given all the same: its end is an event. A caller that leaves meanwhile
        has none.

        Raises:
            InvalidArgument: a name that is none, or twice; invalid_path.
            NotFound: command_not_found (the interpreter), file_not_found (the directory).
            Conflict: name_in_use (a proc of that name lives), owner_gone (nobody holds that owner's name).
            Unavailable: host_ending; allocation_failed, where a process cannot be started.
        """
        self._refuse_while_ending()
        owner = await self._holder(request.owner)
        await self._swept(owner, request)
        self._check(request)
        procs = [
            HostProc(self._context, request, spec, self._host_socket, self._number_of(owner, spec.proc))
            for spec in request.procs
        ]
        for proc in procs:
            self._procs[proc.name] = (owner, proc)
            self._context.children.enter(proc)
        failures: list[Exception] = []
        with anyio.CancelScope(shield=True):  # a caller that leaves does not leave half of them
            async with anyio.create_task_group() as tasks:
                for proc in procs:
                    tasks.start_soon(self._launch, owner, proc, failures)
                    await anyio.lowlevel.checkpoint()
            started = [proc.started for proc in procs]
        try:
            if failures:
                raise failures[0]
            await anyio.lowlevel.checkpoint_if_cancelled()
            if None in started or owner.gone:
                self._refuse_while_ending()
                raise _owner_gone(request.owner)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._discard(procs)
            raise
        return tuple(one for one in started if one is not None)

    async def _swept(self, owner: _Owner, request: SpawnProcs) -> None:
        """Returns when nothing is left of those that have ended and are to come again."""
        with anyio.move_on_after(_SETTLE_S):
            for spec in request.procs:
                held, proc = self._procs.get(spec.proc, (None, None))
                if held is owner and proc is not None and proc.exit is not None:
                    await proc.ended.wait()

    def _number_of(self, owner: _Owner, name: str) -> int:
        """Of a proc's sockets; one that comes again has those it had, so that handles to it stay right."""
        if name not in owner.numbers:
            owner.numbers[name] = next(self._numbers)
        return owner.numbers[name]

    def _check(self, request: SpawnProcs) -> None:
        names = [spec.proc for spec in request.procs]
        for name in names:
            if not _NAME.fullmatch(name):
                raise InvalidArgument(
                    "invalid_argument",
                    f"a proc cannot be called {quoted(name)}",
                    "Use letters, digits, '.', '_' and '-', at most 100.",
                )
            if name in self._procs:
                raise Conflict("name_in_use", f"there is a proc {name} on this host", "Take another name.")
        if len(set(names)) < len(names):
            raise InvalidArgument("invalid_argument", "two procs of one name", "Give each its own.")
        where = f" on {self._context.name}"
        check_directory(request.cwd)
        check_command((request.python,), request.cwd, {}, where)

    async def _launch(self, owner: _Owner, proc: HostProc, failures: list[Exception]) -> None:
        try:
            if owner.gone or self._ending:
                proc.wanted = False
            on_exit = partial(self._exited, proc)
            there = await proc.launch(self._starters, self._command, self._cap, on_exit)
        except (OSError, ValueError) as error:
            there = False
            failures.append(_cannot_start(proc.name, error))
        if not there:
            self._note_over(proc)

    async def _discard(self, procs: Sequence[HostProc]) -> None:
        """Ends procs that nobody was told of."""
        for proc in procs:
            proc.untold = True
        await self._end(procs, "cancelled", 0.0)

    @endpoint
    async def events(self, owner: str, after: int, wait_s: float) -> tuple[ProcEvent, ...]:
        """Ends of the owner's procs with a number above `after`; waits up to `wait_s` for the first one.

        To ask for what comes after a number tells that all up to it has arrived.

        Raises:
            Conflict: owner_gone.
        """
        found = self._owner(owner)
        with anyio.move_on_after(wait_s):
            while not found.after(after):
                await found.changed.wait()
        return found.after(after)

    @endpoint
    async def output(
        self, owner: str, cursors: Mapping[str, tuple[int, int]], max_bytes: int
    ) -> tuple[ProcOutput, ...]:
        """What is new in the outputs of procs, asked for by name, pid and the offset to go on from.

        Those that wrote nothing are left out. Each gives at most `max_bytes`; another process of that name
        gives its output from the start.

        Raises:
            Conflict: owner_gone.
        """
        mine = self._owner(owner)
        known = {proc.name: proc for proc in (*self._over, *self._of(mine))}
        found = []
        for name, (pid, offset) in cursors.items():
            if (proc := known.get(name)) is not None and proc.child is not None:
                start = offset if proc.child.pid == pid else 0
                piece = read_output(
                    proc.directory, name, 0, offset=start, max_bytes=max_bytes, ended=proc.exit is not None
                )
                if piece.data:
                    found.append(ProcOutput(name, proc.child.pid, piece.data, piece.next))
        return tuple(found)

    @endpoint
    async def end(self, owner: str, procs: tuple[str, ...] | None, grace_s: float) -> int:
        """Ends procs of an owner (None: all) with all they started: SIGTERM, and SIGKILL after `grace_s`.

        Those that have ended, or never were, are passed over. Nothing of them is left on return, and their
        events are there.

        Returns:
            How many processes were ended.

        Raises:
            Conflict: owner_gone.
        """
        return await self._end(self._of(self._owner(owner), procs), "cancelled", grace_s)

    @endpoint
    async def health(self, owner: str, procs: tuple[str, ...] | None) -> tuple[ProcHealth, ...]:
        """How the owner's procs are, in the order asked (None: all). Within about two seconds.

        Raises:
            Conflict: owner_gone.
        """
        mine = {proc.name: proc for proc in self._of(self._owner(owner))}
        return await self._health.look({name: mine.get(name) for name in (mine if procs is None else procs)})

    @endpoint
    async def survey(self) -> tuple[ProcOfRun, ...]:
        """All living procs here, with the runs that they belong to, and how they are; within two seconds."""
        living = {proc.name: proc for _, proc in self._procs.values() if proc.is_alive}
        looks = await self._health.look(living)
        return tuple(ProcOfRun(living[one.proc].run, one) for one in looks)

    async def find(self, owner: str | None, procs: tuple[str, ...] | None) -> tuple[tuple[int, int], ...]:
        """(position, pid) of the living procs among those asked for, or among all of an owner, or of all."""
        living = {
            name: proc.child.pid
            for name, (held, proc) in self._procs.items()
            if owner in (None, held.name) and proc.child is not None and proc.exit is None
        }
        names = living if procs is None else procs
        return tuple((at, living[name]) for at, name in enumerate(names) if name in living)

    def of_run(self, run: str) -> tuple[HostProc, ...]:
        """The living procs that belong to a run, whoever in it spawned them."""
        return tuple(proc for _, proc in self._procs.values() if proc.run == run and proc.is_alive)

    async def end_all(self, reason: EndReason, grace_s: float) -> int:
        """Ends the procs of all owners for good; returns how many processes there were."""
        self._ending = True
        return await self._end([proc for _, proc in self._procs.values()], reason, grace_s)

    async def _end(self, procs: Iterable[HostProc], reason: EndReason, grace_s: float) -> int:
        self._context.children.collect()  # what has ended by itself was not ended by us
        procs = list(procs)
        for proc in procs:
            proc.wanted = False
            if proc.exit is None:
                proc.ended_by = proc.ended_by or reason
        with anyio.CancelScope(shield=True):
            for proc in procs:
                proc.enders += 1
            trees = [tree for proc in procs if (tree := proc.tree()) is not None]
            count = await self._context.children.end_trees(trees, grace_s) if trees else 0
            for proc in procs:
                proc.enders -= 1
                if proc.over and not proc.enders:
                    self._sweep_soon(proc, all_ended=True)
            with anyio.move_on_after(_SETTLE_S):
                for proc in procs:
                    await proc.ended.wait()
        return count

    def _exited(self, proc: HostProc, child: Child, ending: Exit) -> None:
        proc.close_sockets()
        proc.child = child  # it may have ended before its start was told
        proc.exit = replace(ending, ended_by=proc.ended_by)
        owner, _ = self._procs[proc.name]
        if not proc.untold:
            words = proc.last_words()
            event = ProcEvent(0, proc.name, child.pid, proc.exit, time.time(), words.tail, words.stacks)
            owner.tell(event)
        if proc.exit.ended_by is None:
            self._context.spool.append(
                "proc_died", pid=child.pid, exit=proc.exit, detail=f"proc {proc.name} of {owner.name}"
            )
        self._note_over(proc)

    def _note_over(self, proc: HostProc) -> None:
        proc.over = True
        if not proc.enders:
            self._sweep_soon(proc, all_ended=proc.child is None)

    def _sweep_soon(self, proc: HostProc, *, all_ended: bool) -> None:
        if not proc.swept:
            proc.swept = True
            self._to_sweep.append((proc, all_ended))
            self._grew.set()

    async def _sweep(self) -> None:
        """Ends what procs left behind, for ever: of those that end together in one go."""
        while True:
            await self._grew.wait()
            self._grew = anyio.Event()
            procs, self._to_sweep = self._to_sweep, []
            with anyio.CancelScope(shield=True):
                left = [proc.tree() for proc, all_ended in procs if not all_ended]
                if trees := [tree for tree in left if tree is not None]:
                    await self._context.children.end_trees(trees, _STRAGGLER_GRACE_S)
                for proc, _ in procs:
                    await self._context.children.leave(proc)
                    await self._cap.finish(proc.directory, proc.name)
                    self._forget(proc)

    def _forget(self, proc: HostProc) -> None:
        proc.tidy_up()
        del self._procs[proc.name]
        proc.ended.set()
        # Outputs of the last ones stay for those who look.
        self._over.append(proc)
        while len(self._over) > _OUTPUTS_KEPT:
            old = self._over.popleft()
            if old.name not in self._procs and all(other.name != old.name for other in self._over):
                old.remove_output()

    def _of(self, owner: _Owner, names: tuple[str, ...] | None = None) -> list[HostProc]:
        return [
            proc
            for name, (held, proc) in self._procs.items()
            if held is owner and (names is None or name in names)
        ]

    def _owner(self, name: str) -> _Owner:
        if name not in self._owners:
            raise _owner_gone(name)
        return self._owners[name]

    async def _holder(self, name: str) -> _Owner:
        """As `_owner`, for a caller whose `hold` may still be on its way."""
        with anyio.move_on_after(_HOLD_S):
            while name not in self._owners:
                await self._held.wait()
        return self._owner(name)

    def _refuse_while_ending(self) -> None:
        if self._ending:
            raise Unavailable("host_ending", f"{self._context.name} is ending", "See mesh_status.")


def _owner_gone(name: str) -> Conflict:
    return Conflict(
        "owner_gone", f"nobody holds the name {quoted(name)} here", "Call hold first, and keep it."
    )


def _cannot_start(name: str, error: OSError | ValueError) -> Unavailable:
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    step = "Make room on that disk." if full else "Mend that, or ask for fewer procs."
    return Unavailable("allocation_failed", f"the proc {name} cannot be started: {why}", step)
