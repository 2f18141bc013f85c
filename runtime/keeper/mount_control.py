"""Mounting more of the client's directories on the hosts of one mesh, and taking them away."""

from __future__ import annotations

from ..actor import Actor, endpoint
from ..records import MountView
from .gathers import Gathers
from .hosts import Hosts
from .mesh_keeper import MeshKeeper
from .runbook import RunBook
from .trees import Trees
from .unmounted import Unmounted

__all__ = ["MountControl"]


class MountControl(Actor):
    def __init__(
        self, keeper: MeshKeeper, hosts: Hosts, trees: Trees, gathers: Gathers, runs: RunBook
    ) -> None:
        self._keeper = keeper
        self._gathers = gathers
        self._hosts = hosts
        self._trees = trees
        self._runs = runs

    @endpoint
    async def mount(self, source: str, path: str, mode: str) -> MountView:
        """Shows a directory more, at `path` on each host; one that is shown so already is answered as it is.

        Answers when each host has it, or it is known why not.

        Raises:
            InvalidArgument: invalid_path, unsupported; nothing was mounted.
            Conflict: mesh_released, mesh_not_ready.
        """
        async with self._keeper.changing:
            self._keeper.require_live()
            tree = await self._trees.add(source, path, mode)
        await tree.settled(self._hosts.ready())
        return MountView(tree.spec, tree.view())

    @endpoint
    async def gather(self, remote: str, mountpoint: str, hosts: tuple[int, ...]) -> MountView:
        """Shows a path of hosts (empty: of all) at the client, below an absolute `mountpoint`; one that is
        shown so already is answered as it is.

        Raises:
            NotFound: file_not_found, no host has that path; host_not_found.
            InvalidArgument: invalid_path, unsupported.
            Unavailable: mount_unusable.
            Conflict: mesh_released, mesh_not_ready.
        """
        async with self._keeper.changing:
            self._keeper.require_live()
            return await self._gathers.add(remote, mountpoint, hosts)

    @endpoint
    async def unmount(self, mount: str) -> Unmounted:
        """Takes it from all hosts, whoever uses it: a warning of the runs that are under way.

        Raises:
            NotFound: mount_not_found. Conflict: mesh_released, mesh_not_ready.
        """
        async with self._keeper.changing:
            self._keeper.require_live()
            if self._gathers.has(mount):
                return await self._gathers.remove(mount)
            self._warn_runs(mount)
            return await self._trees.remove(mount)

    def _warn_runs(self, mount: str) -> None:
        for view in self._trees.mount_views():
            if view.spec.mount == mount and any(tree.mode not in ("", "shared") for tree in view.tree.hosts):
                for run in self._runs.unfinished():
                    self._runs.warn(run.run, f"{mount} ({view.spec.path}) was unmounted while it ran")
