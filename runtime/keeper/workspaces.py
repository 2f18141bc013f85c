"""The client's directory as the hosts of one mesh have it: shared, or fed to mounts and copies from here."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import anyio.abc
import anyio.to_thread

from ..call import serve
from ..errors import MilkweedError, Unavailable
from ..mesh import format_ranks
from ..paths import MeshPaths
from ..records import LeftOut, MeshSpec, ShownTree, WorkspaceView
from ..services.mounts import Mounts, Shown, ShowRequest
from ..workspace_places import parents_of, place_on, wants_source
from .hosts import Hosts
from .links import HostLink
from .workspace_versions import keep_versions, kept_versions

if TYPE_CHECKING:
    from ..mounts import Feed, Followers, Verdict, Wanted, Workspace

__all__ = ["Workspaces"]

logger = logging.getLogger(__name__)

_SHOW_S = 45.0
_PROBE_S = 30.0
_SEEN_S = 10.0
_SETTLE_S = 40.0
_KEEP_S = 1.0


class Workspaces:
    """`run` feeds the hosts for the life of the keeper; those of an earlier one go on with this one's."""

    def __init__(self, spec: MeshSpec, paths: MeshPaths, hosts: Hosts) -> None:
        self._spec = spec
        self._wanted = cast("Wanted", spec.workspace_mode)
        self._paths = paths
        self._hosts = hosts
        self._shown: dict[int, ShownTree] = {}
        self._answered: dict[int, anyio.Event] = {}
        self._source: Workspace | None = None
        self._followers: Followers | None = None
        self._left_out: tuple[LeftOut, ...] = ()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._open = anyio.Event()
        self._failure: MilkweedError | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            if wants_source(self._spec):
                self._tasks.start_soon(self._feed)
            else:
                self._open.set()
            await anyio.sleep_forever()

    async def _feed(self) -> None:
        from ..mounts import FEED, Feed, Followers, open_workspace  # of no use where all share the directory

        try:
            root, known = Path(self._spec.workspace), kept_versions(self._paths.workspace_versions)
            async with open_workspace(root, known=known) as source, anyio.create_task_group() as tasks:
                self._source, self._followers = source, Followers()
                actors = {FEED: Feed(source, self._followers)}
                await tasks.start(_serve, self._paths.workspace_socket, actors)
                tasks.start_soon(self._weigh, source)
                tasks.start_soon(self._keep, source)
                self._open.set()
                await anyio.sleep_forever()
        except* MilkweedError as errors:
            error = errors.exceptions[0]
            self._failure = error if isinstance(error, MilkweedError) else None
            logger.error("the workspace cannot be fed to hosts: %s", error)
            self._open.set()

    async def _weigh(self, source: Workspace) -> None:
        found = await anyio.to_thread.run_sync(source.weigh_excluded)
        self._left_out = tuple(
            LeftOut(f"{one.path.decode(errors='replace')} ({one.why})", one.files, one.size) for one in found
        )

    async def _keep(self, source: Workspace) -> None:
        """Writes down, for the next keeper, which versions had which second."""
        while True:
            keep_versions(self._paths.workspace_versions, source.to_keep())
            await source.since(source.manifest.epoch, source.manifest.revision)
            await anyio.sleep(_KEEP_S)

    def host_ready(self, host: int) -> None:
        """It answers, for the first time or again."""
        if self._tasks is not None:
            answered = self._answered[host] = anyio.Event()
            self._tasks.start_soon(self._show, self._hosts[host], answered)

    async def _show(self, link: HostLink, answered: anyio.Event) -> None:
        try:
            await self._open.wait()
            if self._failure is not None:
                raise self._failure
            self._shown[link.host] = await self._made(link)
        except (MilkweedError, OSError) as error:
            logger.warning("host %d has no workspace: %s", link.host, error)
            self._shown[link.host] = ShownTree(link.host, problem=str(error))
        finally:
            answered.set()

    async def _made(self, link: HostLink) -> ShownTree:
        verdict = await self._verdict(link)
        mends = "; ".join(f"{one.problem}: {one.mend}" for one in verdict.mends[:1])
        if verdict.mode is None:
            return ShownTree(link.host, problem=verdict.why, mend=mends)
        if verdict.mode == "shared":
            return ShownTree(link.host, "shared", self._spec.workspace, verdict.why)
        path = place_on(self._spec, self._paths, link.host)
        request = ShowRequest(
            mode=verdict.mode,
            path=path,
            source=str(self._paths.workspace_socket),
            follower=str(link.host),
            parents=tuple(str(self._paths.tree_socket(parent)) for parent in parents_of(link.host)),
            serve=str(self._paths.tree_socket(link.host)),
        )
        shown = await link.call_within(_SHOW_S, Mounts, Mounts.show, request)
        return ShownTree(link.host, verdict.mode, path, verdict.why, shown.problem, mends, shown.revision)

    async def _verdict(self, link: HostLink) -> Verdict:
        wanted = self._wanted
        from ..mounts import Token, Verdict, decide, left_in

        if wanted == "shared":
            return Verdict("shared", "it was asked for, or all hosts are of this machine")
        token: Token | None = None
        if wanted == "auto":
            with left_in(Path(self._spec.workspace)) as token:
                facts = await link.call_within(_PROBE_S, Mounts, Mounts.facts, self._spec.workspace, token)
        else:
            facts = await link.call_within(_PROBE_S, Mounts, Mounts.facts, self._spec.workspace, token)
        return decide(wanted, facts, is_isolated=False)

    async def settled(self, hosts: Iterable[int]) -> None:
        """Returns when each of these has it, or it is known why not; after a time in any case."""
        with anyio.move_on_after(_SETTLE_S):
            for host in hosts:
                if (answered := self._answered.get(host)) is not None:
                    await answered.wait()

    async def barrier(self, hosts: Iterable[int]) -> int:
        """Returns when every edit made before the call is seen on these hosts: the revision; 0 where all
        share the directory itself.

        Raises:
            Unavailable: workspace_behind, a host does not have it, or does not follow.
        """
        if not wants_source(self._spec):
            return 0
        wanted = list(hosts)
        await self.settled(wanted)
        without = [self._shown[host] for host in wanted if host in self._shown and not self._shown[host].mode]
        if without or self._source is None or self._followers is None:
            why = without[0].problem if without else str(self._failure or "it is not open yet")
            which = [one.host for one in without] or wanted
            raise _behind(which, f"not having the workspace: {why}")
        fed = [str(host) for host in wanted if self._shown[host].mode != "shared"]
        revision = await self._source.barrier()
        behind = await self._followers.acknowledged(revision, fed, _SEEN_S)
        if behind:
            numbers = [int(name) for name in behind]
            why = await self._why(numbers[0])
            raise _behind(numbers, f"not showing revision {revision} within {_SEEN_S:.0f} s: {why}")
        return revision

    async def _why(self, host: int) -> str:
        try:
            shown: Shown = await self._hosts[host].call(Mounts, Mounts.state, self._shown[host].path)
        except MilkweedError as error:
            return str(error)
        return shown.problem or f"it shows {shown.revision}"

    @property
    def revision(self) -> int:
        """The one that is known of now: an edit of this moment may be in none yet."""
        return 0 if self._source is None else self._source.manifest.revision

    def view(self) -> WorkspaceView:
        heard = {} if self._followers is None else self._followers.revisions
        shown = tuple(
            replace(tree, revision=max(tree.revision, heard.get(str(host), 0)))
            for host, tree in sorted(self._shown.items())
        )
        entries = 0 if self._source is None else len(self._source.manifest)
        return WorkspaceView(shown, self.revision, entries, self._left_out)


async def _serve(path: Path, actors: dict[str, Feed], *, task_status: anyio.abc.TaskStatus[None]) -> None:
    await serve(path, actors, role="keeper", task_status=task_status)


def _behind(hosts: Iterable[int], how: str) -> Unavailable:
    return Unavailable(
        "workspace_behind",
        f"host {format_ranks(hosts)} is {how}",
        "See mesh_status; a mesh with workspace_mode='copy' needs no FUSE.",
    )
