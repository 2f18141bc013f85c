"""The mount process as its host agent has it: started, watched, cleaned up after, started again, ended."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import anyio
import anyio.to_thread

from ..agent.children import Children, open_children
from ..errors import MilkweedError, Unavailable
from ..records import Exit
from ..supervision import Escalate, Failure, Hands, Restart, Supervisor
from ..tasks import background_tasks
from . import mountpoints
from .mountpoints import Holder
from .quiet import looking_out
from .talking_child import TalkingChild, start
from .upper import Usage

__all__ = ["MountConfig", "MountProcess", "MountState", "judge", "open_mount"]

_MOUNT = "mount"
_POLICY = Restart(max_restarts=20, window_s=60.0, backoff_s=0.02, backoff_max_s=2.0)
_READY_S = 30.0
_SILENT_S = 5.0
_HUNG_S = 15.0
_LOOK_S = 1.0
_GRACE_S = 2.0
_KEPT_OUTPUT = 4096

Health = Literal["ok", "silent", "hung"]


class MountConfig(Protocol):
    """What a mount process is started with: `module` is run with it, as JSON."""

    module: ClassVar[str]
    mend: ClassVar[str]
    """What helps where it cannot be mounted."""

    @property
    def mountpoint(self) -> str: ...

    def at(self, mountpoint: str) -> MountConfig: ...

    def to_json(self) -> str: ...


def judge(heard: float, now: float) -> Health:
    """What to think of a mount process that was last heard at a time; it speaks every second."""
    quiet = now - heard
    return "ok" if quiet < _SILENT_S else "silent" if quiet < _HUNG_S else "hung"


@dataclass(slots=True)
class MountState:
    """`revision` is the one it shows, as it said last; `problem` why it is not there, or was not lately."""

    phase: Literal["starting", "ready", "down", "given_up", "ended"] = "starting"
    revision: int = 0
    restarts: int = 0
    problem: str = ""
    pid: int = 0
    heard: float = 0.0
    said: dict[str, Any] | None = None

    @property
    def health(self) -> Health:
        return judge(self.heard, time.monotonic())


class MountProcess:
    """`run` is its life. A mount that a crash left refuses all until the next process replaces it, also when
    that was given up: nobody is to take the empty directory below for the tree.
    """

    def __init__(
        self,
        config: MountConfig,
        children: Children,
        *,
        policy: Restart = _POLICY,
        on_read_failed: Callable[[str], object] = lambda _: None,
        on_lost: Callable[[str], object] = lambda _: None,
        on_ready: Callable[[], object] = lambda: None,
        env: Mapping[str, str] | None = None,
        made: Sequence[Path] | None = None,
    ) -> None:
        """`env` is set beside this process's own variables: where other hosts reach the process.

        `on_ready` is called each time that the mount is there; `on_lost` is told how it has gone. `made` are
        directories that an earlier owner made for it, the innermost first.
        """
        self._path = mountpoints.resolved(Path(config.mountpoint))
        self.config = config.at(str(self._path))
        self._children = children
        self._env = dict(env or {})
        self.state = MountState()
        self.held_by: list[Holder] = []
        self._made = mountpoints.missing(self._path) if made is None else list(made)
        self._on_read_failed = on_read_failed
        self._on_lost = on_lost
        self._on_ready = on_ready
        self._process: TalkingChild | None = None
        self._changed = anyio.Event()
        self._ending = False
        self._orders = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._supervisor = Supervisor(policy, [_MOUNT], Hands(self._live, self._end, self._given_up))

    async def run(self) -> None:
        """Returns when it has ended for good: by `stop`, or given up."""
        try:
            await self._supervisor.run()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end_now()

    async def ready(self, within_s: float = _READY_S) -> None:
        """Returns when it is mounted.

        Raises:
            Unavailable: mount_unusable, with why it is not.
        """
        with anyio.move_on_after(within_s):
            while self.state.phase in {"starting", "down"}:
                await self._changed.wait()
        if self.state.phase != "ready":
            raise Unavailable(
                "mount_unusable",
                f"{self._path} is not mounted: {self.state.problem or 'its process does not get ready'}",
                self.config.mend,
            )

    async def discard(self, keep: Sequence[str] = ()) -> Usage:
        """Nothing of what programs wrote is there afterwards, but what is at or below these paths, relative
        to the mount: how much that was.

        Raises:
            Unavailable: mount_unusable, there is no process to do it, or the disk is full.
        """
        self._orders += 1
        number = self._orders
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            if self._process is None or self.state.phase != "ready":
                raise OSError("its process is not there")
            self._process.tell(json.dumps({"id": number, "keep": list(keep)}).encode())
            said = await answer
            if "error" in said:
                raise OSError(said["error"])
            return Usage(said["files"], said["size"])
        except OSError as error:
            raise Unavailable(
                "mount_unusable",
                f"what was written in {self._path} is not discarded: {error}",
                "Look at mesh_status, then try again.",
            ) from None
        finally:
            del self._answers[number]

    async def stop(self) -> list[Holder]:
        """Unmounts, whoever uses it: who that was."""
        self._ending = True
        self._supervisor.stop()
        while not self._supervisor.state.over:
            await self._supervisor.wait_changed()
        await anyio.to_thread.run_sync(_clear_quietly, self._path)
        mountpoints.remove_made(self._made)
        self._become("ended")
        return self.held_by

    def _become(
        self, phase: Literal["starting", "ready", "down", "given_up", "ended"], problem: str = ""
    ) -> None:
        self.state.phase = phase
        self.state.problem = problem or self.state.problem
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _live(self, _: str, attempt: int, started: Callable[[], None]) -> Failure | None:
        self.state.restarts = attempt - 1
        argv = [sys.executable, "-m", self.config.module, self.config.to_json()]
        last_words = bytearray()
        try:
            with start(self._children, argv, _environment({**os.environ, **self._env})) as process:
                self._process = process
                self.state.pid = process.child.pid
                self.state.heard = time.monotonic()
                with self._ended_if_it_hangs(process):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._hear, process, started)
                        tasks.start_soon(_collect, process, last_words)
                        await process.child.ended.wait()
                        tasks.cancel_scope.cancel()
                last_words += process.last_errors()
        except OSError as error:
            return self._failed(Exit(error=str(error)), "")
        finally:
            self._process = None
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(OSError("its process ended"))
        if self._ending:
            return None
        return self._failed(process.child.exit or Exit(), last_words.decode(errors="replace"))

    def _failed(self, exit_: Exit, words: str) -> Failure:
        lines = tuple(words.splitlines()[-20:])
        failure = Failure("proc", f"mount {self._path}", exit=exit_, at=time.time(), tail=lines)
        was_there = self.state.phase == "ready"
        self._become("down", "; ".join(filter(None, (failure.how, lines[-1] if lines else ""))))
        if was_there:
            self._on_lost(self.state.problem)
        return failure

    async def _hear(self, process: TalkingChild, started: Callable[[], None]) -> None:
        rest = b""
        async for data in process.said():
            *lines, rest = (rest + data).split(b"\n")
            self.state.heard = time.monotonic()
            for line in lines:
                with suppress(ValueError):
                    said = json.loads(line)
                    if said["event"] == "read_failed":
                        self._on_read_failed(said["why"])
                        continue
                    if said["event"] == "answer":
                        self._answered(said)
                        continue
                    self.state.said = said
                    self.state.revision = said.get("revision", 0)
                    if said["event"] == "ready":
                        started()
                        self._become("ready")
                        self._on_ready()

    def _answered(self, said: dict[str, Any]) -> None:
        if (answer := self._answers.get(said["id"])) is not None and not answer.done():
            answer.set_result(said)

    @contextmanager
    def _ended_if_it_hangs(self, process: TalkingChild) -> Iterator[None]:
        """In a deadlock with the kernel SIGKILL alone has no effect: its mount is cleared by force."""

        def is_hung(last: float, now: float) -> bool:
            return judge(last, now) == "hung"

        def end() -> None:
            self.state.problem = f"it said nothing for {_HUNG_S:.0f} s"
            process.kill()
            _clear_quietly(self._path)

        with looking_out(process.pipe, lambda: self.state.heard, is_hung, _LOOK_S, end):
            yield

    async def _end(self, _: str, _attempt: int) -> None:
        self.held_by = await anyio.to_thread.run_sync(mountpoints.release, self._path)
        await self._end_now()

    async def _end_now(self) -> None:
        process = self._process
        if process is None:
            return
        process.tell_to_end()
        with anyio.move_on_after(_GRACE_S):
            await process.child.ended.wait()
            return
        process.kill()
        await anyio.to_thread.run_sync(_clear_quietly, self._path)

    def _given_up(self, _: Escalate) -> None:
        self._become("given_up")


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Ours, for a process in another directory."""
    if paths := env.get("PYTHONPATH"):
        absolute = (os.path.abspath(path) for path in paths.split(os.pathsep) if path)
        return {**env, "PYTHONPATH": os.pathsep.join(absolute)}
    return dict(env)


async def _collect(process: TalkingChild, into: bytearray) -> None:
    async for data in process.errors():
        into += data
        del into[:-_KEPT_OUTPUT]


def _clear_quietly(path: Path) -> None:
    with suppress(MilkweedError, OSError):
        mountpoints.clear(path)


@asynccontextmanager
async def open_mount(config: MountConfig) -> AsyncIterator[MountProcess]:
    """A mount for the length of a `with` block, ready at its start.

    Raises:
        Unavailable: mount_unusable.
    """
    async with open_children(subreaper=False) as children, background_tasks() as tasks:
        mount = MountProcess(config, children)
        tasks.start_soon(mount.run)
        await mount.ready()
        try:
            yield mount
        finally:
            with anyio.CancelScope(shield=True):
                await mount.stop()
