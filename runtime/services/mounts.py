"""What this host is shown of the client's directories: mounts, and copies, as an actor."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.abc
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..errors import MilkweedError, Unavailable
from ..records import EndReason

if TYPE_CHECKING:
    from ..mounts import Facts, Token

__all__ = ["Mounts", "ShowRequest", "Shown"]

logger = logging.getLogger(__name__)

_TARGET_S = 30.0


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """`source` is the socket of a feed, `parents` are those of hosts that are asked for bytes first, `serve`
    is where this host offers its own; `path` is where the tree is to be, `follower` what this host is called.
    """

    mode: Literal["mount", "copy"]
    path: str
    source: str
    follower: str
    parents: tuple[str, ...] = ()
    serve: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """`problem` says why it is not there, or not any more; `failed_read` is the last that found no bytes."""

    revision: int
    restarts: int
    problem: str
    failed_read: str = ""


class Mounts(Actor):
    """Made by `Mounts.open`, whose block its mounts live in."""

    def __init__(self, context: HostContext, tasks: anyio.abc.TaskGroup) -> None:
        self._context = context
        self._tasks = tasks
        self._shown: dict[str, _Mount | _Copied] = {}
        self._changing = anyio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, context: HostContext) -> AsyncIterator[Mounts]:
        async with anyio.create_task_group() as tasks:
            mounts = cls(context, tasks)
            try:
                yield mounts
            finally:
                with anyio.CancelScope(shield=True):
                    await mounts.end_all("released", 0.0)
                tasks.cancel_scope.cancel()

    @endpoint
    async def facts(self, directory: str, token: Token | None) -> Facts:
        """What this host has for mounts, and whether it sees that directory itself."""
        from ..mounts import probe

        return await anyio.to_thread.run_sync(probe, Path(directory), token)

    @endpoint
    async def show(self, request: ShowRequest) -> Shown:
        """Returns when the tree is there. What is shown already stays, anew if something else is asked for.

        Raises:
            Unavailable: mount_unusable, with the reason.
        """
        async with self._changing:
            known = self._shown.get(request.path)
            if known is not None and (known.request != request or known.is_over):
                await known.stop()
                known = None
            if known is None:
                kind = _Mount if request.mode == "mount" else _Copied
                known = self._shown[request.path] = kind(request, self._context, self._tasks)
        await known.ready()
        return known.shown()

    @endpoint
    async def state(self, path: str) -> Shown:
        """
        Raises:
            Unavailable: mount_unusable, nothing is shown there.
        """
        known = self._shown.get(path)
        if known is None:
            raise Unavailable("mount_unusable", f"nothing is shown at {path}", "See mesh_status.")
        return known.shown()

    async def end_all(self, _reason: EndReason, _grace_s: float) -> int:
        """Unmounts everything, whoever uses it; who that was is an event. The number of processes ended."""
        async with self._changing:
            shown, self._shown = self._shown, {}
        for path, one in shown.items():
            for user in await one.stop():
                self._context.spool.append(
                    "mount_in_use", detail=f"{user} was in {path}, which was unmounted"
                )
        return 0


class _Mount:
    def __init__(self, request: ShowRequest, context: HostContext, tasks: anyio.abc.TaskGroup) -> None:
        from ..mounts import HostConfig, MountProcess  # which a host without mounts need not hold

        self.request = request
        self._process = MountProcess(
            HostConfig(
                mountpoint=request.path,
                source=request.source,
                follower=request.follower,
                cache=str(_directory(context, request) / "cache"),
                parents=request.parents,
                serve=request.serve,
                name=f"milkweed:{context.instance}",
            )
        )
        tasks.start_soon(self._process.run)

    @property
    def is_over(self) -> bool:
        return self._process.state.phase in ("given_up", "ended")

    async def ready(self) -> None:
        await self._process.ready(_TARGET_S)

    def shown(self) -> Shown:
        state = self._process.state
        problem = "" if state.phase == "ready" else state.problem or state.phase
        if not problem and state.health != "ok":
            problem = "its process does not answer"
        failed = (state.said or {}).get("last_failure") or ""
        return Shown(state.revision, state.restarts, problem, str(failed))

    async def stop(self) -> list[str]:
        return [f"process {holder.pid} ({holder.command})" for holder in await self._process.stop()]


class _Copied:
    def __init__(self, request: ShowRequest, context: HostContext, tasks: anyio.abc.TaskGroup) -> None:
        from ..mounts import Copy, RemoteSource

        self.request = request
        self.is_over = False
        self._source = RemoteSource(Path(request.source), request.follower)
        self._copy = Copy(self._source, Path(request.path), _directory(context, request) / "copied")
        self._begun = anyio.Event()
        self._ended = anyio.Event()
        self._problem = ""
        self._scope = anyio.CancelScope()
        tasks.start_soon(self._run)

    async def _run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._source.run)
                    await self._copy.begin()
                    self._begun.set()
                    await self._copy.follow()
        except* (OSError, MilkweedError) as errors:
            self._problem = str(errors.exceptions[0])
            logger.warning("the copy in %s is not kept up: %s", self.request.path, self._problem)
        finally:
            self.is_over = True
            self._begun.set()
            self._ended.set()

    async def ready(self) -> None:
        with anyio.move_on_after(_TARGET_S):
            await self._begun.wait()
        if self._problem or not self._begun.is_set():
            why = self._problem or f"it is not whole after {_TARGET_S:.0f} s"
            where = f"the copy in {self.request.path}"
            raise Unavailable("mount_unusable", f"{where}: {why}", "See whether its disk is full.")

    def shown(self) -> Shown:
        return Shown(self._copy.manifest.revision, 0, self._problem)

    async def stop(self) -> list[str]:
        self._scope.cancel()
        await self._ended.wait()
        return []


def _directory(context: HostContext, request: ShowRequest) -> Path:
    """Of one tree, for what must not lie in it."""
    name = hashlib.sha256(request.path.encode()).hexdigest()[:12]
    directory = context.directory / "mounts" / name
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700, parents=True)
    return directory
