"""What this host is shown of the client's directories: mounts, and copies, as an actor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..errors import Unavailable
from ..records import EndReason
from ..sharing import Token, sees
from .scratch import make_folders
from .shown_trees import Shown, ShownCopy, ShownMount, ShowRequest

if TYPE_CHECKING:
    from ..mounts import Facts

__all__ = ["Mounts", "ShowRequest", "Shown"]


class Mounts(Actor):
    """Made by `Mounts.open`, whose block its mounts live in."""

    def __init__(self, context: HostContext, tasks: anyio.abc.TaskGroup) -> None:
        self._context = context
        self._tasks = tasks
        self._shown: dict[str, ShownMount | ShownCopy] = {}
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
    async def sees(self, directory: str, token: Token) -> bool:
        """Whether this host sees the client's directory itself."""
        return await anyio.to_thread.run_sync(sees, Path(directory), token)

    @endpoint
    async def facts(self) -> Facts:
        """What this host has for mounts."""
        from ..mounts.probing import TRY_BINDING, TRY_S, binding_error, probe

        try:
            tried = await self._context.children.run(TRY_BINDING, timeout_s=TRY_S)
            binding = binding_error(tried.code == 0, tried.stderr.decode(errors="replace"))
        except (OSError, Unavailable) as error:
            binding = str(error)
        return await anyio.to_thread.run_sync(probe, binding)

    @endpoint
    async def show(self, request: ShowRequest) -> Shown:
        """Returns when the tree is there. What is shown already stays, anew if something else is asked for.

        Raises:
            Unavailable: mount_unusable, with the reason.
        """
        async with self._changing:
            known = self._shown.get(request.path)
            if known is not None and (known.request != request or known.is_over):
                await known.stop(for_good=False)
                known = None
            if known is None:
                kind = ShownMount if request.mode == "mount" else ShownCopy
                known = self._shown[request.path] = kind(request, self._context, self._tasks)
        await known.ready()
        return known.shown()

    @endpoint
    async def state(self, path: str) -> Shown:
        """
        Raises:
            Unavailable: mount_unusable, nothing is shown there.
        """
        return self._known(path).shown()

    @endpoint
    async def hide(self, path: str) -> list[str]:
        """Unmounts what is shown there, whoever uses it: who that was."""
        async with self._changing:
            one = self._shown.pop(path, None)
        return [] if one is None else await one.stop()

    @endpoint
    async def discard(self, path: str, keep: list[str]) -> tuple[int, int]:
        """Nothing of what this host wrote there is left, but what is at or below these paths of the tree: how
        many files and bytes that was.

        Raises:
            Unavailable: mount_unusable, nothing is shown there, or it cannot be done.
        """
        return await self._known(path).discard(keep)

    @endpoint
    async def scratch(self, path: str, folders: list[str]) -> list[str]:
        """Makes folders of a tree plain directories of this host; of which not, and why. Where the host sees
        the client's directory itself they are the client's.

        Raises:
            InvalidArgument: invalid_path. Unavailable: directory_unusable, deadline_exceeded.
        """
        if (known := self._shown.get(path)) is not None:
            return await known.scratch(folders)
        await anyio.to_thread.run_sync(make_folders, path, folders)
        return []

    def _known(self, path: str) -> ShownMount | ShownCopy:
        known = self._shown.get(path)
        if known is None:
            raise Unavailable("mount_unusable", f"nothing is shown at {path}", "See mesh_status.")
        return known

    @endpoint
    async def keep_only(self, sources: list[str]) -> None:
        """Unmounts what is fed by any other: it went while the keeper could not say so."""
        others = [path for path, one in self._shown.items() if one.request.source not in sources]
        for path in others:
            await self.hide(path)

    async def end_all(self, _reason: EndReason, _grace_s: float) -> int:
        """Unmounts everything, whoever uses it; who that was is an event. What was written stays on disk, for
        who looks what is to be kept. The number of processes ended.
        """
        async with self._changing:
            shown, self._shown = self._shown, {}

        async def end(path: str, one: ShownMount | ShownCopy) -> None:
            for user in await one.stop(for_good=not one.request.writable):
                self._context.spool.append("mount_in_use", detail=f"{user} was in {path}")

        async with anyio.create_task_group() as tasks:
            for path, one in shown.items():
                tasks.start_soon(end, path, one)
        return 0
