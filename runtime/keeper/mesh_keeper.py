"""The life of one mesh: hosts started and followed, the lease, the release."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from ..actor import Actor, endpoint
from ..errors import Conflict, InvalidArgument, MilkweedError
from ..index import Index, MeshEvent
from ..job_records import JobView
from ..mesh import format_ranks
from ..paths import MeshPaths
from ..records import EndReason, HostEvent, MeshState, MeshView
from ..services.host import Host
from .allocation import Allocation
from .following import Following
from .gathers import Gathers
from .holding_control import HoldingControl, KeptFiles
from .hosts import Hosts
from .jobbook import JobBook
from .journal import Journal
from .links import HostLink, how_it_failed
from .runbook import RunBook
from .trees import Trees

__all__ = ["END_GRACE_S", "MeshKeeper", "Released"]

logger = logging.getLogger(__name__)

END_GRACE_S = 2.0
MAX_LEASE_S = 7 * 24 * 3600.0
LEASE_S = 5.0
_HOST_END_S = 10.0
_LEASE_LOOK_S = 10.0
_FAILURES_SAID = 20


@dataclass(frozen=True, slots=True)
class Released:
    """What a release ended. Output is in `output_directory`; `in_mounts`: who was in them.

    `is_over` is False while it goes on: files are being copied.
    """

    mesh: str
    runs_ended: tuple[str, ...]
    processes_ended: int
    output_directory: str
    jobs_ended: tuple[str, ...] = ()
    in_mounts: tuple[str, ...] = ()
    kept: KeptFiles = field(default_factory=KeptFiles)
    is_over: bool = True


@dataclass(slots=True)
class _Releasing:
    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Released | MilkweedError | None = None


class MeshKeeper(Actor):
    """`run` serves the mesh until it is released; changes are made one at a time, under `changing`."""

    def __init__(
        self,
        view: MeshView,
        paths: MeshPaths,
        index: Index,
        journal: Journal,
        hosts: Hosts,
        runs: RunBook,
        jobs: JobBook,
        trees: Trees,
        gathers: Gathers,
        holdings: HoldingControl,
    ) -> None:
        self._view = view
        self._paths = paths
        self._index = index
        self._journal = journal
        self._hosts = hosts
        self._runs = runs
        self._jobs = jobs
        self._trees = trees
        self._holdings = holdings
        self._tasks: anyio.abc.TaskGroup | None = None
        self._releasing: _Releasing | None = None
        self._gathers = gathers
        self._allocation = Allocation(view.mesh, view.spec, paths)
        self._troubles: tuple[str, ...] = ()
        self._settled = anyio.Event()
        self._changed = anyio.Event()
        self._following = Following(self, self._allocation, hosts, runs, paths)
        self._gives_back = False
        self._was_whole = view.state in ("ready", "degraded")
        self.changing = anyio.Lock()
        self._given_back = anyio.Event()
        self.released = anyio.Event()

    async def run(self) -> None:
        """Starts or takes up the hosts and follows them until the release or the end of the lease."""
        async with anyio.create_task_group() as group:
            self._tasks = group
            group.start_soon(self._keep_hosts, group)
            await self._given_back.wait()
            # First: it may be what fills the disk that the index waits for.
            await anyio.to_thread.run_sync(self._allocation.clean_hosts)
            # Until the index has it, we are the only ones who know that the mesh is released.
            await self._journal.drain(self._index.is_there)
            self.released.set()
            group.cancel_scope.cancel()

    async def _keep_hosts(self, tasks: anyio.abc.TaskGroup) -> None:
        try:
            await self._allocation.submit_or_resume()
        except MilkweedError as error:
            await self._give_back(str(error))
            return
        tasks.start_soon(self._following.run)
        await self._end_with_lease()

    async def end_after_scheduler(self, why: str) -> None:
        """The scheduler has taken everything: what is left to do is to tidy up."""
        async with self.changing:
            if self._gives_back:
                return
            if self._was_whole:
                await self._end_everything("host_ended", why)
            else:
                await self._give_back(f"allocation_failed: {'; '.join([*self._failed_hosts(), why])}")

    def _failed_hosts(self) -> list[str]:
        """What hosts that failed as they started have left: it says more than how their job ended."""
        said = {host: how_it_failed(self._paths.host(host)) for host in range(self._view.spec.hosts)}
        return [f"host {host}: {words}" for host, words in said.items() if words][:3]

    def take(self, host: int, events: tuple[HostEvent, ...]) -> None:
        self._jobs.take(host, events)  # first: a new attempt becomes a run by it
        self._runs.take(host, events)

    def unfinished_jobs(self) -> tuple[JobView, ...]:
        """Those that are not over, though none of their replicas may run just now."""
        return self._jobs.unfinished()

    def clean_up(self) -> None:
        """Removes what only a live mesh needs, our socket with it: the last thing to do."""
        self._allocation.clean_up()

    def require_live(self) -> None:
        """
        Raises:
            Conflict: mesh_released, or mesh_not_ready while it starts.
        """
        if self._view.state == "released":
            raise Conflict("mesh_released", self._view.how_it_ended, "Call allocate_mesh for a new one.")
        if self._view.state == "queued":
            raise Conflict(
                "mesh_not_ready",
                f"{self._view.mesh} waits for its hosts: {self._view.reason}",
                "mesh_status says when it is ready; release_mesh takes it out of the queue.",
            )
        if not self._settled.is_set():
            raise Conflict(
                "mesh_not_ready",
                f"the hosts of {self._view.mesh} are starting",
                "Call mesh_status in a moment.",
            )

    @property
    def mesh(self) -> MeshView:
        return self._view

    @property
    def is_ending(self) -> bool:
        """Whether it is being given back, and what it loses is lost by that."""
        return self._gives_back or self._holdings.is_ending

    @endpoint
    async def view(self) -> MeshView:
        hosts = self._hosts.views() or self._view.hosts
        return replace(
            self._view,
            hosts=hosts,
            lease_left_s=max(0.0, self._allocation.lease_left_s()),
            expected_start_at=self._following.queue.expected_start_at if self._following.queue else None,
            warnings=(*self._view.warnings, *filter(None, [self._following.ending])),
            workspace=self._trees.workspace_view(),
            mounts=(*self._trees.mount_views(), *self._gathers.views()),
        )

    @endpoint
    async def wait_ready(self, timeout_s: float) -> MeshView:
        """The view once all hosts are ready, with the workspace, or one is lost, or when the time is up; at
        once where the scheduler has looked at it and has it wait.
        """
        with anyio.move_on_after(timeout_s):
            while not self._settled.is_set() and not self._waits:
                await self._changed.wait()
            if self._settled.is_set():
                await self._trees.settled(self._hosts.ready())
        return await self.view()

    @property
    def _waits(self) -> bool:
        return self._following.queue is not None and self._following.queue.looked_at

    async def settled(self) -> None:
        """Returns when the hosts are ready, some are lost, or the mesh is over, however long that takes."""
        await self._settled.wait()

    @endpoint
    async def events(self, limit: int) -> tuple[MeshEvent, ...]:
        """The latest events of all hosts, oldest first."""
        return self._index.events(self._view.mesh, limit)

    @endpoint
    async def extend_lease(self, minutes: float) -> MeshView:
        """The lease ends that much later, at most seven days from now.

        Raises:
            InvalidArgument: it would end later than that.
        """
        async with self.changing:
            self.require_live()
            left = self._allocation.lease_left_s() + minutes * 60
            if left > MAX_LEASE_S:
                raise InvalidArgument(
                    "invalid_argument",
                    f"the lease would end in {left / 3600:.0f} h; the most is {MAX_LEASE_S / 3600:.0f} h",
                    "Ask for fewer minutes.",
                )
            await self._allocation.extend_lease(left)
            answers = await self._hosts.ask(
                self._hosts.ready(), lambda link: link.call_within(LEASE_S, Host, Host.set_lease, left)
            )
            silent = [host for host, answer in answers.items() if isinstance(answer, MilkweedError)]
            self.put(self._view.state, self._view.reason)
            view = await self.view()
            if silent:
                warning = f"hosts {format_ranks(silent)} did not answer: they hear of it when they come back"
                view = replace(view, warnings=(*view.warnings, warning))
            return view

    @endpoint
    async def release(self, within_s: float) -> Released:
        """Ends all that runs, gives the hosts back, keeps what was to be kept and ends the keeper.

        Goes on by itself when that takes longer.

        Raises:
            Conflict: mesh_released, by another call too.
        """
        assert self._tasks is not None
        if (releasing := self._releasing) is None:
            releasing = self._releasing = _Releasing()
            self._tasks.start_soon(self._release, releasing)
        with anyio.move_on_after(within_s):
            await releasing.done.wait()
        if not releasing.done.is_set():
            return Released(self._view.mesh, (), 0, str(self._paths.root), is_over=False)
        if isinstance(releasing.outcome, Released):
            outcome, releasing.outcome = releasing.outcome, None  # one caller is told
            return outcome
        if releasing.outcome is not None:
            raise releasing.outcome
        raise Conflict("mesh_released", self._view.how_it_ended, "Call allocate_mesh for a new one.")

    async def _release(self, releasing: _Releasing) -> None:
        try:
            async with self.changing:
                if self._view.state == "released":
                    self.require_live()
                releasing.outcome = await self._end_everything("released", "released")
        except MilkweedError as error:
            releasing.outcome = error
            self._releasing = None
        finally:
            releasing.done.set()

    def host_changed(self, host: int) -> None:
        assert self._tasks is not None
        if self._view.state == "released":
            return
        link = self._hosts[host]
        if link.state in ("lost", "silent"):
            self.say(f"host_{link.state}", f"host {host}: {link.reason}")
        if link.state == "ready":
            self._hosts.returned()
            self._trees.host_ready(host)
        if link.state == "lost":
            link.take(self._allocation.spooled(host))
            self._runs.host_lost(host, time.time())
            self._jobs.host_lost(host, link.reason, time.time())
            self._tasks.start_soon(self._allocation.end_host, host)
        if self._view.state == "queued" or self._gives_back:
            return  # what it has lost says nothing more of it
        lost = self._hosts.in_state("lost")
        is_new = self._view.state == "starting" and not self._was_whole and not self._allocation.resumed
        if lost and is_new and not self.is_ending:  # by which it is lost then
            # A mesh that was never whole is given back: nobody can have used it.
            reason = "; ".join(f"host {one.host}: {one.reason}" for one in lost[:3])
            self._tasks.start_soon(self._give_back, f"allocation_failed: {reason}")
        else:
            self._judge()

    def set_troubles(self, troubles: Sequence[str]) -> None:
        """What is wrong besides the hosts, in words: the mesh is degraded while anything is."""
        if self._troubles != tuple(troubles):
            self._troubles = tuple(troubles)
            if self._settled.is_set() and self._view.state != "released":
                self._judge()

    def _judge(self) -> None:
        """Puts the mesh into the state that follows from its hosts and its troubles."""
        groups = (
            ("lost", self._hosts.in_state("lost")),
            ("does not answer", self._hosts.in_state("silent")),
        )
        parts = [
            f"host {format_ranks(one.host for one in group)} {words}: {group[0].reason}"
            for words, group in groups
            if group
        ]
        parts += self._troubles
        if parts:
            self.put("degraded", "; ".join(parts))
        elif not self._hosts.in_state("starting"):
            self.put("ready", "")

    def say(self, kind: str, detail: str, run: str = "") -> None:
        """Makes an event of what no host could tell."""
        entry = partial(self._index.add_keeper_event, self._view.mesh, kind, run=run, detail=detail)
        self._journal.write((kind, detail), entry)

    def put(self, state: MeshState, reason: str) -> None:
        if state != self._view.state:
            self.say(f"mesh_{state}", reason)
        self._was_whole |= state == "ready"
        if state == "queued" and self._settled.is_set():
            self._settled = anyio.Event()
        self._view = replace(self._view, state=state, reason=reason, hosts=self._hosts.views())
        self._journal.write("mesh", partial(self._index.put_mesh, self._view))
        if state not in ("queued", "starting"):
            self._settled.set()
        self._changed.set()
        self._changed = anyio.Event()

    async def _end_with_lease(self) -> None:
        # The hosts end by themselves at that time; here it is said and tidied up. A timer stands still while
        # the machine sleeps, the lease does not: hence the short looks.
        while (left := self._allocation.lease_left_s()) > 0 and self._paths.root.is_dir():  # noqa: ASYNC110
            await anyio.sleep(min(left, _LEASE_LOOK_S))
        async with self.changing:
            if self._view.state != "released":
                gone = "" if self._paths.root.is_dir() else f": {self._paths.root} is gone"
                await self._end_everything("lease_ended", f"the lease ended{gone}")

    async def _end_everything(self, reason: EndReason, words: str) -> Released:
        runs = tuple(view.run for view in self._runs.unfinished())
        jobs = tuple(view.job for view in self._jobs.unfinished())
        with anyio.CancelScope(shield=True), self._holdings.ending():
            in_gathers = await self._gathers.end_all()
            processes, in_mounts = await self._end_hosts(reason)
            ended, kept, output = await self._give_back(words, reason)
        in_use = in_gathers + in_mounts
        return Released(self._view.mesh, runs, processes + ended, str(output), jobs, in_use, kept)

    async def _end_hosts(self, reason: EndReason) -> tuple[int, tuple[str, ...]]:
        in_mounts: list[str] = []

        async def end(link: HostLink) -> int:
            ended = await link.call(Host, Host.end, reason, END_GRACE_S, link.after)
            link.take(ended.events)
            in_mounts.extend(
                f"host {link.host}: {event.detail}" for event in ended.events if event.kind == "mount_in_use"
            )
            with anyio.move_on_after(_HOST_END_S):
                await link.lost.wait()
            return ended.processes

        answers = await self._hosts.ask(self._hosts.ready(), end)
        for host, answer in answers.items():
            if isinstance(answer, MilkweedError):
                logger.warning("host %d did not end by itself: %s", host, answer)
        processes = sum(answer for answer in answers.values() if isinstance(answer, int))
        return processes, tuple(in_mounts)

    async def _give_back(self, words: str, reason: EndReason = "released") -> tuple[int, KeptFiles, Path]:
        """Ends what is left, hosts that were never taken up too; no run outlives it, but its output does."""
        self._gives_back = True
        with anyio.CancelScope(shield=True):
            try:
                ended = await self._allocation.give_back()
            except MilkweedError as error:
                ended, words = 0, f"{words}; not given back: {error}"
            for host in range(self._view.spec.hosts):
                link, events = self._hosts.links.get(host), self._allocation.spooled(host)
                if link is not None:
                    link.take(events)
                elif events:
                    self.take(host, events)
            self._jobs.close(reason)
            self._runs.close(reason, time.time(), words)
            kept = await self._holdings.keep(all_that_matters=reason != "released")
            output = await self._holdings.keep_output()
            for why in kept.failed[:_FAILURES_SAID]:
                self.say("not_kept", why)
            self.put("released", "; ".join(filter(None, (words, kept.in_words(self._paths.keeper_log)))))
        self._given_back.set()
        return ended, kept, output
