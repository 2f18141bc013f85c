"""The mount process as its host agent has it: started, watched, cleaned up after, started again, ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.abc
import anyio.to_thread

from ..errors import MilkweedError, Unavailable
from ..records import Exit
from ..supervision import Escalate, Failure, Hands, Restart, Supervisor
from ..tasks import background_tasks
from . import mountpoints
from .host_config import HostConfig
from .mountpoints import Holder

__all__ = ["MountProcess", "MountState", "judge", "open_mount"]

_MOUNT = "mount"
_POLICY = Restart(max_restarts=20, window_s=60.0, backoff_s=0.02, backoff_max_s=2.0)
_READY_S = 30.0
_SILENT_S = 5.0
_HUNG_S = 15.0
_LOOK_S = 1.0
_GRACE_S = 2.0
_KEPT_OUTPUT = 4096

Health = Literal["ok", "silent", "hung"]


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

    def __init__(self, config: HostConfig, *, policy: Restart = _POLICY) -> None:
        self.config = config
        self.state = MountState()
        self.held_by: list[Holder] = []
        self._path = Path(config.mountpoint)
        self._process: anyio.abc.Process | None = None
        self._changed = anyio.Event()
        self._ending = False
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
                "Take workspace_mode='copy', or mend what doctor says of mounts.",
            )

    async def stop(self) -> list[Holder]:
        """Unmounts, whoever uses it: who that was."""
        self._ending = True
        self._supervisor.stop()
        while not self._supervisor.state.over:
            await self._supervisor.wait_changed()
        await anyio.to_thread.run_sync(_clear_quietly, self._path)
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
        try:
            process = self._process = await anyio.open_process(
                [sys.executable, "-m", f"{__package__}.host", self.config.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd="/",
                env=_environment(os.environ),
            )
        except OSError as error:
            return self._failed(Exit(error=str(error)), "")
        self.state.pid = process.pid
        self.state.heard = time.monotonic()
        last_words = bytearray()
        async with process, anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear, process, started)
            tasks.start_soon(_collect, process, last_words)
            tasks.start_soon(self._watch, process)
            code = await process.wait()
            tasks.cancel_scope.cancel()
        self._process = None
        if self._ending:
            return None
        exit_ = Exit(signal=-code) if code < 0 else Exit(code=code)
        return self._failed(exit_, last_words.decode(errors="replace"))

    def _failed(self, exit_: Exit, words: str) -> Failure:
        lines = tuple(words.splitlines()[-20:])
        failure = Failure("proc", f"mount {self._path}", exit=exit_, at=time.time(), tail=lines)
        self._become("down", "; ".join(filter(None, (failure.how, lines[-1] if lines else ""))))
        return failure

    async def _hear(self, process: anyio.abc.Process, started: Callable[[], None]) -> None:
        assert process.stdout is not None
        rest = b""
        async for data in process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            self.state.heard = time.monotonic()
            for line in lines:
                with suppress(ValueError):
                    said = json.loads(line)
                    self.state.said = said
                    self.state.revision = said["revision"]
                    if said["event"] == "ready":
                        started()
                        self._become("ready")

    async def _watch(self, process: anyio.abc.Process) -> None:
        """Ends one that hangs. In a deadlock with the kernel SIGKILL alone has no effect."""
        while True:
            await anyio.sleep(_LOOK_S)
            if self.state.health == "hung":
                self.state.problem = f"it said nothing for {_HUNG_S:.0f} s"
                process.kill()
                await anyio.to_thread.run_sync(_clear_quietly, self._path)
                return

    async def _end(self, _: str, _attempt: int) -> None:
        self.held_by = await anyio.to_thread.run_sync(mountpoints.release, self._path)
        await self._end_now()

    async def _end_now(self) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError, anyio.BrokenResourceError):
                await process.stdin.aclose()
        with anyio.move_on_after(_GRACE_S):
            await process.wait()
            return
        with suppress(ProcessLookupError):
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


async def _collect(process: anyio.abc.Process, into: bytearray) -> None:
    assert process.stderr is not None
    async for data in process.stderr:
        into += data
        del into[:-_KEPT_OUTPUT]


def _clear_quietly(path: Path) -> None:
    with suppress(MilkweedError, OSError):
        mountpoints.clear(path)


@asynccontextmanager
async def open_mount(config: HostConfig) -> AsyncIterator[MountProcess]:
    """A mount for the length of a `with` block, ready at its start.

    Raises:
        Unavailable: mount_unusable.
    """
    mount = MountProcess(config)
    async with background_tasks() as tasks:
        tasks.start_soon(mount.run)
        await mount.ready()
        try:
            yield mount
        finally:
            with anyio.CancelScope(shield=True):
                await mount.stop()
