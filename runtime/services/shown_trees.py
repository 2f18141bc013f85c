"""One tree as this host shows it, by a mount process or as a copy, with what was written over it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.abc
import anyio.to_thread

from ..agent.context import HostContext
from ..agent.ptree import read_environ
from ..errors import MilkweedError, Unavailable
from ..holdings import HostLayout
from ..mesh_secret import MESH_VARIABLE
from ..names import quoted
from ..removing import remove_tree
from ..tree_places import is_at_or_below
from .scratch import Scratch, make_folders

if TYPE_CHECKING:
    from ..mounts import Holder
    from ..mounts.mountpoints import Bound

__all__ = ["PATIENCE_VARIABLE", "ShowRequest", "Shown", "ShownCopy", "ShownMount"]

logger = logging.getLogger(__name__)

PATIENCE_VARIABLE = "MILKWEED_READ_PATIENCE_S"
PATIENCE_S = 60.0
_TARGET_S = 30.0
_SCRATCH_S = 30.0


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """`source` is the socket of a feed, `parents` are those of hosts that are asked for bytes first, `serve`
    is where this host offers its own; `path` is where the tree is to be, `follower` what this host is called.
    A copy is `kept` in a directory of the host's own, and bound over `path` where that is another. What is
    written lies in the host's own directory until it is hidden; into a mount only where it is `writable`.
    """

    mode: Literal["mount", "copy"]
    path: str
    source: str
    follower: str
    parents: tuple[str, ...] = ()
    serve: str = ""
    kept: str = ""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """`problem` says why it is not there, or not any more."""

    revision: int
    restarts: int
    problem: str


class ShownMount:
    def __init__(self, request: ShowRequest, context: HostContext, tasks: anyio.abc.TaskGroup) -> None:
        from ..mounts import HostConfig, MountProcess  # which a host without mounts need not hold

        self.request = request
        self._instance = context.instance
        self._tasks = tasks
        self._place = HostLayout(context.directory).mount(request.path)
        self._place.make(request.path)
        if request.writable:
            with suppress(OSError):  # then it is written over the tree
                self._place.bytecode.mkdir(mode=0o700, exist_ok=True)
        self._scratch: dict[str, Scratch] = {}
        self._binding = anyio.Lock()
        self._process = MountProcess(
            HostConfig(
                mountpoint=request.path,
                source=request.source,
                follower=request.follower,
                cache=str(self._place.cache),
                parents=request.parents,
                serve=request.serve,
                name=f"milkweed:{context.instance}",
                patience_s=_patience_s(os.environ),
                overlay=str(self._place.overlay) if request.writable else "",
            ),
            context.children,
            on_read_failed=lambda why: context.spool.append("read_failed", detail=why),
            on_ready=self._bind_again,
            on_lost=lambda why: context.spool.append("mount_lost", detail=_lost(request.path, why)),
            env={MESH_VARIABLE: context.mesh, **context.reached},
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
        return Shown(state.revision, state.restarts, problem)

    async def discard(self, keep: Sequence[str]) -> tuple[int, int]:
        kept = [*keep, *self._scratch]
        await self.ready()
        await anyio.to_thread.run_sync(_empty, self._place.bytecode)
        try:
            return await self._process.discard(kept)
        except Unavailable as error:
            logger.info("once more, when it is there again: %s", error)
        await self.ready()
        return await self._process.discard(kept)

    async def scratch(self, folders: Sequence[str]) -> list[str]:
        """Makes folders of the tree plain directories of this host; of which not, and why.

        Raises:
            InvalidArgument: invalid_path. Unavailable: directory_unusable, deadline_exceeded.
        """
        notes = []
        for folder in folders:
            try:
                one = self._scratch_of(folder)
                await self._begin(one)
            except Unavailable as error:
                if error.code != "mount_unusable":
                    raise
                notes.append(f"scratch folder '{quoted(folder)}' stays in the mount: {error.cause}")
            else:
                self._scratch[one.folder] = one
                if one.folder != folder:
                    await anyio.to_thread.run_sync(make_folders, self.request.path, [folder])
        return notes

    def _scratch_of(self, folder: str) -> Scratch:
        """What makes it a scratch folder: itself, or one that it is in.

        Raises:
            Unavailable: mount_unusable, one is in it already, which would be hidden.
        """
        known = {*self._scratch, *(name for name, _ in self._place.scratch_folders())}
        folder = next((one for one in known if is_at_or_below(folder, one)), folder)
        if inner := next((one for one in known if one != folder and is_at_or_below(one, folder)), ""):
            raise Unavailable("mount_unusable", f"'{quoted(inner)}' in it is one already", "Name that one.")
        return self._scratch.get(folder) or Scratch(self._place, self.request.path, folder)

    async def _begin(self, one: Scratch) -> None:
        try:
            with anyio.fail_after(_SCRATCH_S):
                async with self._binding:
                    await anyio.to_thread.run_sync(one.begin, abandon_on_cancel=True)
        except TimeoutError:
            raise Unavailable(
                "deadline_exceeded",
                f"scratch folder '{quoted(one.folder)}' was not there after {_SCRATCH_S:.0f} s",
                "See mesh_status: the mount may hang.",
            ) from None

    def _bind_again(self) -> None:
        """The tree is shown anew: what was bound over the last one went with it."""
        if self._scratch:
            self._tasks.start_soon(self._bind_all)

    async def _bind_all(self) -> None:
        for one in tuple(self._scratch.values()):
            try:
                await self._begin(one)
            except MilkweedError as error:
                logger.warning("not bound again: %s", error)

    async def stop(self, for_good: bool = True) -> list[str]:
        """What was written stays, unless it is `for_good`."""
        users = await self._process.stop()
        gone = self._place.directory if for_good else self._place.cache
        await anyio.to_thread.run_sync(remove_tree, gone)
        return _named(users, self._instance)


class ShownCopy:
    def __init__(self, request: ShowRequest, context: HostContext, tasks: anyio.abc.TaskGroup) -> None:
        from ..mounts import Copy, RemoteSource

        self.request = request
        self._instance = context.instance
        self.is_over = False
        self._source = RemoteSource(request.source, request.follower)
        self._place = HostLayout(context.directory).mount(request.path)
        self._place.make(request.path, request.kept)
        self._copy = Copy(self._source, Path(request.kept), self._place.copied, self._source.kept)
        self._bound: Bound | None = None
        self._begun = anyio.Event()
        self._ended = anyio.Event()
        self._problem = ""
        self._scope = anyio.CancelScope()
        tasks.start_soon(self._run)

    async def _run(self) -> None:
        from ..mounts.mountpoints import bind

        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._source.run)
                    await self._copy.begin()
                    if self.request.path != self.request.kept:
                        self._bound = await anyio.to_thread.run_sync(
                            bind, Path(self.request.kept), Path(self.request.path)
                        )
                    self._begun.set()
                    await self._copy.follow()
        except* (OSError, MilkweedError) as errors:
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self._problem = str(error)
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

    async def discard(self, keep: Sequence[str]) -> tuple[int, int]:
        try:
            return await self._copy.discard([os.fsencode(path) for path in keep])
        except OSError as error:
            raise Unavailable(
                "mount_unusable",
                f"what was written in {self.request.path} is not discarded: {error}",
                "Look at mesh_status, then try again.",
            ) from None

    async def scratch(self, folders: Sequence[str]) -> list[str]:
        """A copy is plain disk: they are there, and that is all.

        Raises:
            InvalidArgument: invalid_path. Unavailable: directory_unusable.
        """
        await anyio.to_thread.run_sync(make_folders, self.request.kept, folders)
        return []

    async def stop(self, for_good: bool = True) -> list[str]:
        """What was written stays, with the copy, unless it is `for_good`."""
        self._scope.cancel()
        await self._ended.wait()
        return await anyio.to_thread.run_sync(self._clean_up, for_good)

    def _clean_up(self, for_good: bool) -> list[str]:
        from ..mounts.mountpoints import holders

        users = holders(Path(self.request.path))
        if self._bound is not None:
            self._bound.undo()
        for directory in (self._place.directory, Path(self.request.kept)) if for_good else ():
            remove_tree(directory)
        return _named(users, self._instance)


def _empty(directory: Path) -> None:
    """Bytecode of what is discarded: what comes instead may have its size and time."""
    remove_tree(directory)
    with suppress(OSError):
        directory.mkdir(mode=0o700, exist_ok=True)


def _mounts_of(pid: int) -> str:
    """The namespace of its mounts; empty where we may not look."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _lost(path: str, why: str) -> str:
    return f"the process that shows {path} ended ({why}): who used it met errors until it was started again"


def _named(users: Sequence[Holder], instance: str) -> list[str]:
    """Without what waits here to fork runs: it sits in the workspace and does nothing there."""
    return [words for user in users if (words := _words_of(user, read_environ(user.pid), instance))]


def _words_of(user: Holder, environ: Mapping[str, str], instance: str) -> str:
    if _mounts_of(user.pid) != _mounts_of(os.getpid()):
        return ""  # it is in what another host, or the client, has at that path
    if environ.get("MILKWEED_HOST_ID") != instance:
        return f"process {user.pid} ({user.command})"
    run = environ.get("MILKWEED_RUN")
    return f"process {user.pid} ({user.command}, of {run})" if run else ""


def _patience_s(env: Mapping[str, str]) -> float:
    """How long a read waits for whoever feeds the mount, before it is EIO."""
    try:
        return max(0.0, float(env[PATIENCE_VARIABLE]))
    except (KeyError, ValueError):
        return PATIENCE_S
