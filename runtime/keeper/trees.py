"""The client's directories that the hosts of a mesh are shown: its workspace, and what was mounted more."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial

import anyio
import anyio.abc

from ..errors import InvalidArgument, MilkweedError, NotFound
from ..index import Index
from ..paths import MeshPaths
from ..records import HostCopies, HostPlan, MeshSpec, MountSpec, MountView, TreeView
from ..services.mounts import Mounts
from ..tree_places import check_place, has_own_mounts, is_at_or_below, moved, workspace_of
from .gathers import GATHER
from .hosts import Hosts
from .journal import Journal
from .tree import Tree
from .tree_writing import Prepared, TreeWriting
from .unmounted import Unmounted

__all__ = ["Trees"]


logger = logging.getLogger(__name__)

_MOST = 16
_CLEAR_S = 30.0


class Trees:
    """`run` shows them for the life of the keeper; what was mounted more is in the index for the next."""

    def __init__(
        self, mesh: str, spec: MeshSpec, paths: MeshPaths, index: Index, journal: Journal, hosts: Hosts
    ) -> None:
        self._mesh = mesh
        self._spec = spec
        self._paths = paths
        self._index = index
        self._journal = journal
        self._hosts = hosts
        self._workspace = Tree(workspace_of(spec), spec, paths, hosts) if spec.workspace else None
        self._mounts: dict[str, Tree] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            if self._workspace is not None:
                await self._tasks.start(self._workspace.run)
            for spec in self._index.mounts(self._mesh):
                if spec.mode != GATHER:
                    await self._begin(spec)
            await anyio.sleep_forever()

    async def _begin(self, spec: MountSpec) -> Tree:
        assert self._tasks is not None
        tree, scope = Tree(spec, self._spec, self._paths, self._hosts), anyio.CancelScope()

        async def live(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            with scope:
                await tree.run(task_status=task_status)

        await self._tasks.start(live)
        self._mounts[spec.mount], self._scopes[spec.mount] = tree, scope
        return tree

    def _all(self) -> list[Tree]:
        return [tree for tree in (self._workspace, *self._mounts.values()) if tree is not None]

    async def add(self, source: str, path: str, mode: str) -> Tree:
        """One more, at `path` on the hosts; one that is shown so already is that one.

        Raises:
            InvalidArgument: invalid_path, unsupported; nothing was mounted.
        """
        tree = self._known(source, path, mode)
        if tree is None:
            self._check(source, path, mode)
            tree = await self._begin(self._index.add_mount(self._mesh, source, path, mode))
        return tree

    def _known(self, source: str, path: str, mode: str) -> Tree | None:
        for tree in self._mounts.values():
            if (tree.spec.source, tree.spec.path, tree.spec.mode) == (source, path, mode):
                return tree
        return None

    def _check(self, source: str, path: str, mode: str) -> None:
        if len(self._mounts) >= _MOST:
            raise InvalidArgument(
                "unsupported", f"a mesh has {_MOST} mounts at most", "unmount one, or mount their parent."
            )
        needed = [str(self._paths.root.parents[1]), str(self._paths.sockets.parent)]
        real = os.path.realpath(path)  # where symlinks lead
        if mode != "shared":
            for place in (path, real):
                check_place(place, needed if path == source else [*needed, sys.prefix, sys.base_prefix])
        for shown in (tree.spec for tree in self._all()):
            other = os.path.realpath(shown.path)
            if any(
                is_at_or_below(*pair)
                for pair in ((path, shown.path), (shown.path, path), (real, other), (other, real))
            ):
                first = f"unmount(mount={shown.mount!r}) first, or " if shown.mount else ""
                raise InvalidArgument(
                    "invalid_path",
                    f"{path} cannot be mounted: {shown.mount or 'the workspace'} is at {shown.path}",
                    "What lies there is shown already, but for what rules (.milkweedignore) leave out; for"
                    f" something else {first}name a path outside.",
                )
        if path != source and mode == "shared":
            raise InvalidArgument(
                "invalid_argument",
                f"what is shared is at its own path, {source}",
                "Leave path out, or take mode='mount'.",
            )
        if path != source and not has_own_mounts(self._spec):
            raise InvalidArgument(
                "unsupported",
                f"the hosts of {self._mesh} have one file system between them, and see {source} there",
                "Leave path out, or allocate with options={'isolation': 'namespaces'}.",
            )

    async def remove(self, mount: str) -> Unmounted:
        """Takes it from all hosts, whoever uses it.

        Raises:
            NotFound: mount_not_found.
        """
        tree = self._mounts.pop(mount, None)
        if tree is None:
            raise NotFound("mount_not_found", f"no mount {mount}", "mesh_status names the mounts of a mesh.")
        with anyio.CancelScope(shield=True):  # who asked may leave: half of it would be nobody's
            in_use = await tree.withdraw()
        self._scopes.pop(mount).cancel()
        self._journal.write(("mount", mount), partial(self._index.end_mount, mount))
        self._paths.tree_versions(mount).unlink(missing_ok=True)
        return Unmounted(tree.spec, tuple(in_use))

    def host_ready(self, host: int) -> None:
        """It answers, for the first time or again: what was unmounted while it did not goes first."""
        if self._tasks is None:
            return
        cleared = anyio.Event()
        self._tasks.start_soon(self._clear, host, cleared)
        for tree in self._all():
            tree.host_ready(host, cleared)

    async def _clear(self, host: int, cleared: anyio.Event) -> None:
        fed = [str(self._paths.tree_socket(mount)) for mount in ("", *self._mounts)]
        try:
            await self._hosts[host].call_within(_CLEAR_S, Mounts, Mounts.keep_only, fed)
        except MilkweedError as error:
            logger.warning("host %d may still have what was unmounted: %s", host, error)
        finally:
            cleared.set()

    async def settled(self, hosts: Iterable[int]) -> None:
        """Returns when each of these has all, or it is known why not; after a time in any case."""
        wanted = list(hosts)
        async with anyio.create_task_group() as tasks:
            for tree in self._all():
                tasks.start_soon(tree.settled, wanted)

    async def barrier(self, hosts: Iterable[int]) -> int:
        """Returns when every edit made before the call is seen on these hosts: the workspace's revision.

        Raises:
            Unavailable: workspace_behind.
        """
        wanted = list(hosts)
        revisions: dict[str, int] = {}
        errors: list[MilkweedError] = []

        async def pass_one(tree: Tree) -> None:
            try:
                revisions[tree.spec.mount] = await tree.barrier(wanted)
            except MilkweedError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for tree in self._all():
                tasks.start_soon(pass_one, tree)
        if errors:
            raise errors[0]
        return revisions.get("", 0)

    async def prepare(
        self, hosts: Iterable[int], scratch: Sequence[str] = (), *, discard: bool = False
    ) -> Prepared:
        """Makes hosts ready for a run: they show every edit, and have what it asks for.

        Raises:
            Unavailable: workspace_behind, or what `TreeWriting` raises.
        """
        wanted = list(hosts)
        writing = None if self._workspace is None else TreeWriting(self._workspace, self._hosts)
        notes: tuple[str, ...] = ()
        if writing is not None and discard:
            await self.settled(wanted)
            notes += await writing.discard(wanted)
        revision = await self.barrier(wanted)
        if writing is None:
            return Prepared(revision)
        notes += await writing.scratch(wanted, scratch)
        return Prepared(revision, notes)

    def take_host_copies(self, hosts: Iterable[int]) -> tuple[HostCopies, ...]:
        """What edits have put aside on these hosts, for the one result that tells of it."""
        return () if self._workspace is None else self._workspace.take_host_copies(hosts)

    def moved(self, plan: HostPlan) -> HostPlan:
        """The plan for where its host has them."""
        for tree in sorted(self._all(), key=lambda tree: -len(tree.spec.source)):
            plan = moved(plan, tree.spec.source, tree.place(plan.host))
        return plan

    @property
    def revision(self) -> int:
        """The workspace's that is known of now: an edit of this moment may be in none yet."""
        return 0 if self._workspace is None else self._workspace.revision

    def workspace_place(self, host: int) -> str:
        """Where a host has the workspace, or will have; empty where the mesh has none."""
        return "" if self._workspace is None else self._workspace.place(host)

    def workspace_view(self) -> TreeView:
        return TreeView() if self._workspace is None else self._workspace.view()

    def mount_views(self) -> tuple[MountView, ...]:
        return tuple(MountView(tree.spec, tree.view()) for tree in self._mounts.values())
