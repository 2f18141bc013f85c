"""Every child of the agent: started, watched by pidfd, reaped, and ended with all that it started.

    async with open_children() as children:
        child = children.spawn(["sleep", "9"], env=env, cwd="/", output=fd, on_exit=note)
        await children.end_tree(child.pid, {"MILKWEED_RUN": "run-1"}, grace_s=2.0)

The process is a subreaper while the block runs, so daemons of a child stay below us, and what is reparented
to us is reaped. No thread and no asyncio child watcher is involved. Nothing else in this process may start or
wait for children meanwhile, unless `subreaper=False`, where only the known children are reaped.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel

from .. import _native
from ..errors import Unavailable
from ..records import Exit
from . import oom, ptree

__all__ = ["Child", "Children", "Completed", "open_children"]

OnExit = Callable[["Child", Exit], None]

_OOM_SAMPLE_S = 2.0
_DRAIN_BYTES = 64 * 1024
_CLOSE_S = 30.0
_STUCK_S = 15.0


@dataclass(frozen=True, slots=True)
class Completed:
    """What a helper process did; `code` is -N when signal N ended it."""

    code: int
    stdout: bytes
    stderr: bytes


@dataclass(slots=True, eq=False)
class Child:
    """One child: `exit` is None while it runs; `killed` says that we sent SIGKILL."""

    pid: int
    start_time: int
    started_at: float
    ended: anyio.Event = field(default_factory=anyio.Event)
    exit: Exit | None = None
    killed: bool = False


@dataclass(frozen=True, slots=True)
class _Watch:
    """What is kept of a child while it runs."""

    child: Child
    pidfd: int
    on_exit: OnExit | None
    oom_group: Path | None
    oom_before: oom.Counts


@asynccontextmanager
async def open_children(*, subreaper: bool = True) -> AsyncIterator[Children]:
    """Owns child processes for the length of the block; those that are left at its end are killed.

    Raises:
        OSError: the kernel has no pidfd (older than Linux 5.3).
    """
    os.close(os.pidfd_open(os.getpid()))
    children = Children(subreaper=subreaper)
    if subreaper:
        _native.set_child_subreaper(True)
    try:
        async with anyio.create_task_group() as tasks:
            if subreaper:
                await tasks.start(children.reap_orphans)
            tasks.start_soon(children.sample_oom)
            try:
                yield children
            finally:
                with anyio.move_on_after(_CLOSE_S, shield=True):
                    await children.end_all(grace_s=0.0)
                tasks.cancel_scope.cancel()
    finally:
        children.close()
        if subreaper:
            _native.set_child_subreaper(False)


class Children:
    """See `open_children`."""

    def __init__(self, *, subreaper: bool, history: oom.OomHistory | None = None) -> None:
        self._subreaper = subreaper
        self._history = history or oom.OomHistory()
        self._alive: dict[int, _Watch] = {}
        self._started = anyio.Event()
        self._tenants: set[object] = set()

    @property
    def subreaper(self) -> bool:
        """Whether what our descendants leave behind becomes our child."""
        return self._subreaper

    @property
    def alive(self) -> tuple[Child, ...]:
        return tuple(watch.child for watch in self._alive.values())

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: int,
        on_exit: OnExit,
        pass_fds: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
        errors: int | None = None,
    ) -> Child:
        """Starts a process in a session of its own: stdout is `output`, and stderr too, unless `errors` is.

        It inherits the descriptors `pass_fds` under their numbers, and no other.

        `on_exit` is called on the loop, once, after the child was reaped and before `ended` is set.

        Raises:
            OSError: it cannot be started; `errno` and `filename` tell why.
        """
        stderr = output if errors is None else errors
        return self._spawn(argv, env, cwd, output, stderr, on_exit, pass_fds, stdin)

    def adopt(self, pid: int, start_time: int, on_exit: OnExit) -> Child:
        """Watches, as one that `spawn` started, a process that was reparented to us: this very one.

        Raises:
            ProcessLookupError: it has ended. ChildProcessError: it is no child of ours.
        """
        pidfd = os.pidfd_open(pid)
        try:
            found = ptree.read_process(pid)
            if found is None or found.start_time != start_time:
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except OSError:
            os.close(pidfd)
            raise
        return self._watch(pid, pidfd, time.time(), self._history.counts(None), on_exit)

    def _spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        stderr: int,
        on_exit: OnExit | None,
        pass_fds: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> Child:
        before = self._history.counts(None)
        started_at = time.time()
        popen = subprocess.Popen(  # its pidfd is watched below; Popen itself never waits for it
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            pass_fds=pass_fds,
        )
        pid = popen.pid
        popen.returncode = 0  # else the garbage collector would queue it to be reaped behind our back
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED)
            raise
        return self._watch(pid, pidfd, started_at, before, on_exit)

    def _watch(
        self, pid: int, pidfd: int, started_at: float, before: oom.Counts, on_exit: OnExit | None
    ) -> Child:
        process = ptree.read_process(pid)
        group = oom.cgroup_counter(pid)
        oom_before = oom.Counts(before.machine, self._history.counts(group).group)
        child = Child(pid, process.start_time if process else 0, started_at)
        watch = _Watch(child, pidfd, on_exit, group, oom_before)
        self._alive[pid] = watch
        self._started.set()
        asyncio.get_running_loop().add_reader(pidfd, self._collect, watch)
        return child

    def collect(self) -> None:
        """Tells now of children that have ended, instead of at the next turn of the loop."""
        for watch in tuple(self._alive.values()):
            self._collect(watch)

    def _collect(self, watch: _Watch) -> None:
        """Reaps a known child if it has ended."""
        child = watch.child
        if child.exit is not None:
            return
        result = os.waitid(os.P_PIDFD, watch.pidfd, os.WEXITED | os.WNOHANG)
        if result is None:
            return
        self._forget(watch)
        if result.si_code == os.CLD_EXITED:
            child.exit = Exit(code=result.si_status)
        else:
            kills = 0
            if result.si_status == signal.SIGKILL and not child.killed:
                kills = self._history.rise_since(watch.oom_before, watch.oom_group)
            child.exit = Exit(signal=result.si_status, oom_kills=kills)
        try:
            if watch.on_exit is not None:
                watch.on_exit(child, child.exit)
        finally:
            child.ended.set()

    async def reap_orphans(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Reaps what was reparented to us, for ever."""
        with anyio.open_signal_receiver(signal.SIGCHLD) as signals:
            task_status.started()
            self._reap()
            async for _ in signals:
                self._reap()

    def _reap(self) -> None:
        while True:
            try:
                peek = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if peek is None:
                return
            # The peek shows the same child until it is reaped, so a known one is collected here and now.
            if (watch := self._alive.get(peek.si_pid)) is not None:
                self._collect(watch)
            else:
                with suppress(ChildProcessError):  # a thread that had started it was faster
                    os.waitid(os.P_PID, peek.si_pid, os.WEXITED | os.WNOHANG)

    async def sample_oom(self) -> None:
        """Keeps the counts of out-of-memory kills while any child runs, for ever."""
        while True:
            if not self._alive:
                self._started = anyio.Event()
                await self._started.wait()
            self._history.sample()
            await anyio.sleep(_OOM_SAMPLE_S)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        max_output: int = 4 * 1024 * 1024,
    ) -> Completed:
        """Runs a helper to its end and gives its output, each stream cut after `max_output` bytes.

        Raises:
            OSError: it cannot be started.
            Unavailable: deadline_exceeded; its tree was killed, as it is when the caller is cancelled.
        """
        outputs = [_Pipe(max_output), _Pipe(max_output)]
        try:
            child = self._spawn(
                argv,
                os.environ if env is None else env,
                cwd,
                outputs[0].write_end,
                outputs[1].write_end,
                None,
            )
            for output in outputs:
                output.close_write_end()
            try:
                with anyio.fail_after(timeout_s):
                    async with anyio.create_task_group() as tasks:
                        for output in outputs:
                            tasks.start_soon(output.drain)
                        await child.ended.wait()
                        # A daemon of the helper may hold the pipe open: what is there by now is all.
                        tasks.cancel_scope.cancel()
            except TimeoutError:
                raise Unavailable(
                    "deadline_exceeded",
                    f"{argv[0]} did not end within {timeout_s:g} s",
                    "Try again with a longer time.",
                ) from None
            finally:
                with anyio.CancelScope(shield=True):
                    await self.end_tree(child.pid, {}, 0.0)
            for output in outputs:
                output.take()
        finally:
            for output in outputs:
                output.close()
        ending = child.exit or Exit()
        return Completed(
            ending.code if ending.code is not None else -(ending.signal or 0),
            bytes(outputs[0].data),
            bytes(outputs[1].data),
        )

    async def end_tree(self, pid: int, marker: Mapping[str, str], grace_s: float) -> int:
        """`end_trees` of one process, named by its pid (a child, or the pid of one that has ended)."""
        return await self.end_trees([self.tree(pid, marker)], grace_s)

    def tree(self, pid: int, marker: Mapping[str, str]) -> ptree.Tree:
        """The tree of a child. Of a pid that is no living child of ours only session and marks count."""
        watch = self._alive.get(pid)
        return ptree.Tree(pid, watch.child.start_time if watch else -1, marker)

    async def end_trees(self, trees: Sequence[ptree.Tree], grace_s: float) -> int:
        """SIGTERM to all processes of the trees, SIGKILL to those left after `grace_s`, until none is left.

        A process that the kernel holds (state D) is given up after a while: its SIGKILL is pending.

        Returns:
            How many processes there were.
        """
        return await self._end(lambda table: ptree.members(table, os.getpid(), trees), grace_s)

    def find(self, trees: Sequence[ptree.Tree]) -> dict[int, ptree.Process]:
        """What lives of these trees now."""
        return ptree.members(ptree.snapshot(), os.getpid(), trees)

    def enter(self, tenant: object) -> None:
        """Tells of something whose processes may leave daemons that cannot be told from others' daemons."""
        self._tenants.add(tenant)

    async def leave(self, tenant: object) -> int:
        """The tenant has ended. Behind the last one, ends what was reparented to us and is no known child's.

        Those are daemons that shed their marks. Returns how many processes there were.
        """
        self._tenants.discard(tenant)

        def strays(table: Mapping[int, ptree.Process]) -> dict[int, ptree.Process]:
            if self._tenants:  # a new one may have a process that is ours already and not known yet
                return {}
            me = os.getpid()
            roots = [p.pid for p in table.values() if p.parent == me and p.pid not in self._alive]
            below = {*roots, *ptree.descendants(table, roots)}
            return {pid: table[pid] for pid in below if table[pid].alive}

        return 0 if self._tenants else await self._end(strays, 0.0)

    async def end_all(self, grace_s: float) -> int:
        """Ends every descendant of this process (only the known children's where we are no subreaper)."""
        if not self._subreaper:
            return await self.end_trees([self.tree(child.pid, {}) for child in self.alive], grace_s)

        def everything(table: Mapping[int, ptree.Process]) -> dict[int, ptree.Process]:
            below = ptree.descendants(table, [os.getpid()])
            return {pid: table[pid] for pid in below if table[pid].alive}

        return await self._end(everything, grace_s)

    async def _end(
        self, find: Callable[[Mapping[int, ptree.Process]], Mapping[int, ptree.Process]], grace_s: float
    ) -> int:
        met: set[tuple[int, int]] = set()
        asked: set[tuple[int, int]] = set()
        kill_at = time.monotonic() + grace_s
        pause = 0.002
        empty = 0
        while empty < 2:
            found = find(ptree.family(os.getpid()) if empty == 0 else ptree.snapshot())
            # A process in the midst of an exec shows no environment, and so no marks, for a moment.
            empty = 0 if found else empty + 1
            killing = time.monotonic() >= kill_at
            if time.monotonic() >= kill_at + _STUCK_S:
                break
            for process in found.values():
                name = (process.pid, process.start_time)
                met.add(name)
                if killing:
                    if (watch := self._alive.get(process.pid)) is not None:
                        watch.child.killed = True
                    ptree.send_signal(process, signal.SIGKILL)
                elif name not in asked:
                    asked.add(name)
                    ptree.send_signal(process, signal.SIGTERM)
                    ptree.send_signal(
                        process, signal.SIGCONT
                    )  # a stopped one would sleep through its SIGTERM
            await anyio.sleep(pause if killing else min(pause, max(0.0, kill_at - time.monotonic())))
            pause = min(pause * 2, 0.05)
        # A dead child is found no more; that its end was noted is what callers rely on.
        for watch in [self._alive[pid] for pid, _ in met if pid in self._alive]:
            self._collect(watch)
        return len(met)

    def close(self) -> None:
        """Gives up what could not be ended (stuck in the kernel, with SIGKILL pending)."""
        for watch in tuple(self._alive.values()):
            self._forget(watch)

    def _forget(self, watch: _Watch) -> None:
        asyncio.get_running_loop().remove_reader(watch.pidfd)
        os.close(watch.pidfd)
        del self._alive[watch.child.pid]


class _Pipe:
    """Collects one stream of a helper."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self._limit = limit
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)

    def close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    async def drain(self) -> None:
        while self.take():
            await anyio.wait_readable(self._read_end)

    def take(self) -> bool:
        """Reads what is there; False at the end of the stream."""
        while True:
            try:
                chunk = os.read(self._read_end, _DRAIN_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.data += chunk[: max(0, self._limit - len(self.data))]

    def close(self) -> None:
        self.close_write_end()
        os.close(self._read_end)
