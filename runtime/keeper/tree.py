"""One directory of the client as the hosts of a mesh have it: shared, or fed to mounts and copies."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import anyio.abc
import anyio.to_thread

from ..call import serve
from ..errors import MilkweedError, Unavailable
from ..mesh import format_ranks
from ..mesh_secret import MeshSecrets
from ..node import node
from ..paths import MeshPaths
from ..records import HostCopies, LeftOut, MeshSpec, MountSpec, ShownTree, TreeView
from ..services.mounts import Mounts, Shown, ShowRequest
from ..sharing import Token, left_in
from ..tree_places import has_own_mounts, is_at_or_below, own_place, parents_of, place_on
from .hosts import Hosts
from .links import HostLink
from .tree_versions import VersionsLog, kept_versions

if TYPE_CHECKING:
    from ..mounts import Feed, Followers, Verdict, Wanted, Workspace

__all__ = ["Tree"]

logger = logging.getLogger(__name__)

_SHOW_S = 45.0
_PROBE_S = 30.0
_SEEN_S = 10.0
_SETTLE_S = 40.0
_STATE = b""
"""In the log of versions: the source's state, under the name of its root, which has no version."""
_WEIGH_S = 1.0
_AGAIN_S = 10.0


class Tree:
    """`run` feeds the hosts until it is cancelled; those of an earlier keeper go on with this one's.

    The directory is scanned and watched as soon as it is known that a host needs to be fed.
    """

    def __init__(self, spec: MountSpec, mesh: MeshSpec, paths: MeshPaths, hosts: Hosts) -> None:
        self.spec = spec
        self._mesh = mesh
        self._paths = paths
        self._hosts = hosts
        self._shown: dict[int, ShownTree] = {}
        self._answered: dict[int, anyio.Event] = {}
        self._asked: dict[int, str] = {}  # where each may have it, though it has not answered
        self._showing: set[anyio.CancelScope] = set()
        self._source: Workspace | None = None
        self._followers: Followers | None = None
        self._left_out: tuple[LeftOut, ...] = ()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._needed = anyio.Event()
        self._open = anyio.Event()
        self._failure: MilkweedError | OSError | None = None
        self._token = _TokenForAll(Path(spec.source))

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        if self.spec.mode in ("mount", "copy"):
            self._needed.set()
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._feed)
            for host in self._hosts.ready():
                self.host_ready(host)
            task_status.started()

    async def _feed(self) -> None:
        while True:
            await self._needed.wait()
            await self._feed_until_it_fails()
            self._source = self._followers = None
            self._needed = anyio.Event()
            self._open.set()

    async def _feed_until_it_fails(self) -> None:
        from ..mounts import FEED, Feed, Followers, open_workspace  # of no use where all share the directory

        try:
            root, known = Path(self.spec.source), kept_versions(self._versions)
            last = known.pop(_STATE, None)
            hidden = _rules_for(self.spec.source, (self._paths.root.parents[1], self._paths.sockets.parent))
            async with (
                open_workspace(root, excludes=hidden, known=known, last=last) as source,
                anyio.create_task_group() as tasks,
            ):
                self._source, self._followers = source, Followers()
                actors = {FEED: Feed(source, self._followers)}
                # Memory of hosts to which the kernel closes other ways is reached by what proves the mesh.
                node().part(MeshSecrets, MeshSecrets.of_process).learn(
                    self._paths.root.name, self._paths.secret
                )
                await tasks.start(_serve, self._paths.tree_socket(self.spec.mount), actors)
                tasks.start_soon(self._weigh, source)
                tasks.start_soon(self._keep, source)
                self._open.set()
                await anyio.sleep_forever()
        except* (MilkweedError, OSError) as errors:
            self._failure = _first(errors)
            logger.error("%s cannot be fed to hosts: %s", self.spec.source, self._failure)

    @property
    def _versions(self) -> Path:
        return self._paths.tree_versions(self.spec.mount)

    async def _weigh(self, source: Workspace) -> None:
        """Again, when other names are left out."""
        while True:
            left_out = tuple(source.excluded)
            found = await anyio.to_thread.run_sync(source.weigh_excluded)
            self._left_out = tuple(
                LeftOut(f"{one.path.decode(errors='replace')} ({one.why})", one.files, one.size)
                for one in found
            )
            while tuple(source.excluded) == left_out:
                await source.since(source.manifest.epoch, source.manifest.revision)
                await anyio.sleep(_WEIGH_S)

    async def _keep(self, source: Workspace) -> None:
        """Writes down, for the next keeper, which versions had which second, before any run has seen them."""
        log = VersionsLog(self._versions)
        while True:
            revision = source.manifest.revision
            if log.is_long:
                log.begin(source.to_keep())
            log.add({**source.news_to_keep(), _STATE: source.state})
            await source.since(source.manifest.epoch, revision)

    def host_ready(self, host: int, cleared: anyio.Event | None = None) -> None:
        """It answers, for the first time or again; it is shown the directory when `cleared` is set."""
        if self._tasks is not None:
            answered = self._answered[host] = anyio.Event()
            self._tasks.start_soon(self._show, self._hosts[host], answered, cleared)

    async def _show(self, link: HostLink, answered: anyio.Event, cleared: anyio.Event | None) -> None:
        scope = anyio.CancelScope()
        self._showing.add(scope)
        try:
            with scope:
                if cleared is not None:
                    await cleared.wait()
                self._shown[link.host] = await self._made(link)
        except (MilkweedError, OSError) as error:
            logger.warning("host %d does not have %s: %s", link.host, self.spec.source, error)
            self._shown[link.host] = ShownTree(link.host, problem=str(error))
        finally:
            self._showing.remove(scope)
            answered.set()

    async def _made(self, link: HostLink) -> ShownTree:
        verdict = await self._verdict(link)
        mend = verdict.mends[0].mend if verdict.mends else ""
        if verdict.mode is None:
            return ShownTree(link.host, problem=verdict.why, mend=mend)
        path = place_on(self._mesh, self.spec, verdict.mode, self._paths, link.host)
        if verdict.mode == "shared":
            return ShownTree(link.host, "shared", path, verdict.why)
        self._needed.set()
        await self._open.wait()
        if self._failure is not None:
            raise self._failure
        request = ShowRequest(
            mode=verdict.mode,
            path=path,
            kept=own_place(self.spec, self._paths, link.host) if verdict.mode == "copy" else "",
            source=str(self._paths.tree_socket(self.spec.mount)),
            follower=str(link.host),
            parents=tuple(
                str(self._paths.tree_socket(self.spec.mount, parent)) for parent in parents_of(link.host)
            ),
            serve=str(self._paths.tree_socket(self.spec.mount, link.host)),
            writable=not self.spec.mount,  # the workspace
        )
        self._asked[link.host] = path
        shown = await link.call_within(_SHOW_S, Mounts, Mounts.show, request)
        return ShownTree(link.host, verdict.mode, path, verdict.why, shown.problem, mend, shown.revision)

    async def _verdict(self, link: HostLink) -> Verdict:
        from ..mounts.verdict import Verdict, decide

        wanted = cast("Wanted", self.spec.mode)
        may_share = wanted == "shared" or (wanted == "auto" and not has_own_mounts(self._mesh))
        if may_share and self.spec.path == self.spec.source:
            async with self._token.left() as token:
                sees = await link.call_within(_PROBE_S, Mounts, Mounts.sees, self.spec.source, token)
            if sees:
                return Verdict("shared", "the host sees the directory itself")
        if wanted == "shared":
            return Verdict(None, "the host does not see the directory: a token left there was not found")
        return decide(wanted, await link.call_within(_PROBE_S, Mounts, Mounts.facts))

    async def withdraw(self) -> list[str]:
        """Unmounts it on all hosts that answer: who was in it there. Those that are about to show it do not
        any more.
        """
        for scope in self._showing:
            scope.cancel()
        await self.settled(self._answered)
        answers = await self._hosts.ask(
            self._asked.keys() & set(self._hosts.ready()),
            lambda link: link.call_within(_SHOW_S, Mounts, Mounts.hide, self._asked[link.host]),
        )
        self._shown.clear()
        return [
            f"host {host}: {user}"
            for host, users in answers.items()
            if not isinstance(users, MilkweedError)
            for user in users
        ]

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
        wanted = list(hosts)
        await self.settled(wanted)
        if self._failure is not None or self._without(wanted):
            await self._try_again(self._without(wanted))
        if without := self._without(wanted):
            first = self._shown.get(without[0])
            why = first.problem if first is not None and first.problem else "it was not shown in time"
            raise self._behind(without, f"without {self._words}: {why}")
        fed = [str(host) for host in wanted if self._shown[host].mode != "shared"]
        if not fed:
            return 0
        if self._source is None or self._followers is None:
            raise self._behind(wanted, f"not fed {self._words}: {self._failure or 'it is not open yet'}")
        revision = await self._source.barrier()
        behind = await self._followers.acknowledged(revision, fed, _SEEN_S)
        if behind:
            numbers = [int(name) for name in behind]
            why = await self._why(numbers[0])
            self._show_again(numbers)  # for the next one that asks
            raise self._behind(
                numbers, f"not showing revision {revision} of {self._words} within {_SEEN_S:.0f} s: {why}"
            )
        return revision

    def _without(self, hosts: Iterable[int]) -> list[int]:
        return [host for host in hosts if not self._shown.get(host, ShownTree(host)).mode]

    async def _try_again(self, hosts: list[int]) -> None:
        """What was in the way may be mended by now."""
        with anyio.move_on_after(_AGAIN_S):
            if self._failure is not None:
                self._failure, self._open = None, anyio.Event()
                self._needed.set()
                await self._open.wait()
            self._show_again(hosts)
            for host in hosts:
                if (answered := self._answered.get(host)) is not None:
                    await answered.wait()

    def _show_again(self, hosts: Iterable[int]) -> None:
        """What is shown well stays as it is."""
        for host in set(hosts).intersection(self._hosts.ready()):
            if (answered := self._answered.get(host)) is None or answered.is_set():
                self.host_ready(host)

    async def _why(self, host: int) -> str:
        try:
            shown: Shown = await self._hosts[host].call(Mounts, Mounts.state, self._shown[host].path)
        except MilkweedError as error:
            return str(error)
        return shown.problem or f"it shows {shown.revision}"

    @property
    def _words(self) -> str:
        return f"{self.spec.mount} ({self.spec.source})" if self.spec.mount else "the workspace"

    def _behind(self, hosts: Iterable[int], how: str) -> Unavailable:
        other = (
            f"unmount(mount={self.spec.mount!r}) goes on without it."
            if self.spec.mount
            else "a mesh with workspace_mode='copy' needs no FUSE."
        )
        named = list(hosts)
        who = f"host{'s' if len(named) > 1 else ''} {format_ranks(named)} {'are' if len(named) > 1 else 'is'}"
        return Unavailable("workspace_behind", f"{who} {how}", f"See mesh_status; {other}")

    def place(self, host: int) -> str:
        """Where a host has it, or will have."""
        shown = self._shown.get(host)
        if shown is not None and shown.path:
            return shown.path
        mode = "shared" if self.spec.mode == "auto" else self.spec.mode
        return place_on(self._mesh, self.spec, mode, self._paths, host)

    def take_host_copies(self, hosts: Iterable[int]) -> tuple[HostCopies, ...]:
        """What edits have put aside on these hosts, and nobody was told of yet."""
        if self._followers is None:
            return ()
        taken = {host: self._followers.take_kept(str(host)) for host in hosts}
        return tuple(
            HostCopies(host, tuple((os.fsdecode(one.path), os.fsdecode(one.kept)) for one in copies))
            for host, copies in taken.items()
            if copies
        )

    def mode(self, host: int) -> str:
        """How a host has it; empty where it has it not, or not yet."""
        return self._shown[host].mode if host in self._shown else ""

    @property
    def revision(self) -> int:
        """The one that is known of now: an edit of this moment may be in none yet."""
        return 0 if self._source is None else self._source.manifest.revision

    def view(self) -> TreeView:
        heard = {} if self._followers is None else self._followers.revisions
        shown = tuple(
            replace(tree, revision=max(tree.revision, heard.get(str(host), 0)))
            for host, tree in sorted(self._shown.items())
        )
        entries = 0 if self._source is None else len(self._source.manifest)
        return TreeView(shown, self.revision, entries, self._left_out)


class _TokenForAll:
    """One token in the directory while any host is asked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._users = 0
        self._held: AbstractContextManager[Token] | None = None
        self._left: Token | None = None
        self._changing = anyio.Lock()

    @asynccontextmanager
    async def left(self) -> AsyncIterator[Token]:
        """
        Raises:
            OSError: the directory cannot be looked at.
        """
        async with self._changing:
            if self._left is None:
                self._held = left_in(self._directory)
                self._left = await anyio.to_thread.run_sync(self._held.__enter__)
            token = self._left
            self._users += 1
        try:
            yield token
        finally:
            with anyio.CancelScope(shield=True):
                await self._give_up()

    async def _give_up(self) -> None:
        async with self._changing:
            self._users -= 1
            if not self._users and self._held is not None:
                held, self._held, self._left = self._held, None, None
                await anyio.to_thread.run_sync(held.__exit__, None, None, None)


def _first(error: BaseException) -> MilkweedError | OSError | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, MilkweedError | OSError) else None


def _rules_for(source: str, directories: Iterable[Path]) -> list[str]:
    """Exclusions of those directories that lie in the source: our own, which change with what is fed."""
    inside = [str(one) for one in directories if is_at_or_below(str(one), source) and str(one) != source]
    return [f"/{_escaped(os.path.relpath(one, source))}/" for one in inside]


def _escaped(path: str) -> str:
    return "".join(f"\\{char}" if char in "*?[\\" else char for char in path)


async def _serve(path: Path, actors: dict[str, Feed], *, task_status: anyio.abc.TaskStatus[None]) -> None:
    await serve(path, actors, role="keeper", task_status=task_status)
