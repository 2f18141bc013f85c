"""Starting, waiting for and ending runs on one mesh."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
import anyio.abc

from ..actor import Actor, endpoint
from ..attach_records import AttachedHost, AttachPlace
from ..errors import Conflict, InvalidArgument, MilkweedError, NotFound, Unavailable
from ..index import Index
from ..mesh import Extent, format_ranks
from ..paths import MeshPaths
from ..records import EndReason, HostCopies, HostPlan, RankView, RunRequest, RunView
from ..services.runs import Runs
from .hosts import Hosts
from .launchers import Placement, command_text, needs_port, plan_run, ranks_of
from .lifecycle import EndRanks, is_over
from .links import CALL_S, HostLink
from .mesh_keeper import END_GRACE_S, MeshKeeper
from .runbook import RunBook
from .tree_writing import Prepared
from .trees import Trees
from .workspace_python import workspace_python

__all__ = ["RunControl"]

logger = logging.getLogger(__name__)

# Simulated hosts share one machine, and each would import for itself.
_MOST_PREPARED = 4
_MOST_WARM = 8
_SETTLED_S = 3600.0
_TOO_MANY = f"more than {_MOST_WARM} hosts share this machine, each with starters of its own"


class RunControl(Actor):
    def __init__(
        self,
        keeper: MeshKeeper,
        paths: MeshPaths,
        index: Index,
        hosts: Hosts,
        runs: RunBook,
        trees: Trees,
    ) -> None:
        self._keeper = keeper
        self._paths = paths
        self._index = index
        self._hosts = hosts
        self._runs = runs
        self._trees = trees
        self._cancelled: dict[str, float] = {}

    async def end_peers(self) -> None:
        """Ends the ranks that wait for failed ones, for ever."""
        async with anyio.create_task_group() as group:
            async for action in self._runs.peers_to_end():
                group.start_soon(self._end_peers, action)

    async def prepare_hosts(self) -> None:
        """Once the mesh is ready, has the hosts prepare for runs of the workspace's Python."""
        await self._keeper.settled()
        await self._keeper.wait_ready(_SETTLED_S)
        if self._keeper.mesh.state != "ready" or self._keeper.mesh.spec.hosts > _MOST_PREPARED:
            return
        plans = self.plan(RunRequest(("python", "-c", "")), self.placement("run-0"))
        by_host = {plan.host: plan for plan in plans}
        await self._hosts.ask(by_host, lambda link: link.call(Runs, Runs.prepare, by_host[link.host]))

    def plan(self, request: RunRequest, place: Placement) -> tuple[HostPlan, ...]:
        """`plan_run`, for where the hosts have the workspace."""
        return tuple(map(self.on_its_host, plan_run(request, place)))

    def on_its_host(self, plan: HostPlan) -> HostPlan:
        """`Trees.moved`."""
        return self._trees.moved(plan)

    async def prepare(
        self, hosts: Iterable[int], scratch: Sequence[str] = (), *, discard: bool = False
    ) -> Prepared:
        """`Trees.prepare`; nothing is discarded below a run that uses it, or a job that starts some.

        Raises:
            Conflict: workspace_in_use.
        """
        wanted = list(hosts)
        if discard:
            self._refuse_while_used(wanted)
        return await self._trees.prepare(wanted, scratch, discard=discard)

    def take_host_copies(self, hosts: Iterable[int]) -> tuple[HostCopies, ...]:
        """`Trees.take_host_copies`."""
        return self._trees.take_host_copies(hosts)

    def _refuse_while_used(self, hosts: Iterable[int]) -> None:
        for job in self._keeper.unfinished_jobs():
            if shared := {one.host for one in job.replicas}.intersection(hosts):
                raise Conflict(
                    "workspace_in_use",
                    f"{job.job} has replicas on host {format_ranks(shared)}, whose changes were to go",
                    f"Wait for its end, stop_replicas(job={job.job!r}), or leave discard_host_changes out.",
                )
        for view in self._runs.unfinished():
            if shared := {rank.host for rank in view.ranks}.intersection(hosts):
                raise Conflict(
                    "workspace_in_use",
                    f"{view.run} runs on host {format_ranks(shared)}, whose changes were to be discarded",
                    f"Wait for its end, cancel_run(run={view.run!r}), or leave discard_host_changes out.",
                )

    def placement(self, run: str) -> Placement:
        """Where runs of this mesh go."""
        spec = self._keeper.mesh.spec
        python = workspace_python(spec.workspace)
        return Placement(
            run=run,
            extent=Extent(hosts=spec.hosts, gpus=spec.procs_per_host),
            addresses=[view.address for view in self._hosts.views()],
            workspace=spec.workspace,
            python=python,
            path=os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath))),
            cold=_TOO_MANY if spec.hosts > _MOST_WARM else None,
            python_path=os.environ.get("PYTHONPATH", ""),
            attach=AttachPlace(
                self._keeper.mesh.mesh,
                str(self._paths.keeper_socket),
                tuple(
                    AttachedHost(view.name, str(self._paths.host_socket(view.host)))
                    for view in self._hosts.views()
                ),
                run=run,
            ),
        )

    @endpoint
    async def start(self, request: RunRequest) -> RunView:
        """Checks on every host that the run can start, then starts it; a refusal has no effect.

        Raises:
            InvalidArgument, NotFound: the request cannot be served.
            Conflict: mesh_not_ready. Unavailable: host_lost.
        """
        async with self._keeper.changing:
            self._keeper.require_live()
            if request.attach and request.ranks is None:
                request = replace(request, ranks=f"hosts={min(self._hosts.ready(), default=0)}")
            place = self.placement(self._index.new_run_id())
            plans = self.plan(request, place)
            self._hosts.require_ready(plan.host for plan in plans)
            used = [plan.host for plan in plans]
            prepared = await self.prepare(used, request.scratch, discard=request.discard)
            notes = await self._check(plans)
            if needs_port(request.launcher):
                port = await self._hosts[plans[0].host].call(Runs, Runs.reserve_port)
                first, *others = self.plan(request, replace(place, master_port=port))
                plans = (replace(first, reserved_port=port), *others)
            prepared = replace(prepared, notes=(*prepared.notes, *notes))
            return await self._start(request, place.run, plans, prepared)

    @endpoint
    async def all(self) -> tuple[RunView, ...]:
        """All runs, newest first, as the keeper knows them: the index may be behind (a full disk)."""
        return tuple(
            self._told(self._runs.view(view.run)) for view in self._index.runs(self._keeper.mesh.mesh)
        )

    @endpoint
    async def view(self, run: str) -> RunView:
        """
        Raises:
            NotFound: run_not_found.
        """
        return self._told(self._found(run))

    @endpoint
    async def wait(
        self, run: str, until: Literal["end", "output", "still"], pattern: str | None, timeout_s: float
    ) -> RunView:
        """The run when it is over, when it has printed (what matches `pattern`), when nothing of it moves, or
        when the time is up.
        """
        view = self._found(run)
        if until == "still":
            return self._told(await self._runs.wait_still(run, timeout_s))
        if until == "end" or is_over(view):
            return self._told(await self._runs.wait_over(run, timeout_s))
        hosts = {rank.host for rank in view.ranks}.intersection(self._hosts.ready())
        async with anyio.create_task_group() as group:

            async def wait_output(link: HostLink) -> None:
                if await self._printed(link, run, pattern, timeout_s):
                    group.cancel_scope.cancel()

            for host in hosts:
                group.start_soon(wait_output, self._hosts[host])
            await self._runs.wait_over(run, timeout_s)
            group.cancel_scope.cancel()
        return self._told(self._found(run))

    def _told(self, view: RunView) -> RunView:
        edited = 0 < view.workspace_revision < self._trees.revision
        return replace(view, edited_since_start=edited)

    async def _printed(self, link: HostLink, run: str, pattern: str | None, timeout_s: float) -> bool:
        """Whether a host's ranks have a line that matches, or (without a pattern) printed from now on.

        A host that is lost meanwhile has printed nothing; the others may still.
        """
        try:
            sizes = {}
            if pattern is None:
                sizes = {one.rank: one.size for one in await link.call(Runs, Runs.read, run, None, {}, 0, 0)}
            return await link.call_within(
                timeout_s + CALL_S, Runs, Runs.wait_output, run, None, sizes, pattern, timeout_s
            )
        except Unavailable as error:
            logger.info("no longer waiting for host %d: %s", link.host, error)
            return False

    @endpoint
    async def cancel(self, run: str, grace_s: float) -> RunView:
        """Ends a run on all hosts: SIGTERM, then SIGKILL after the grace. A run that is over stays so.

        Raises:
            NotFound: run_not_found. InvalidArgument: unsupported, it is a replica's, which would restart.
        """
        view = self._found(run)
        if is_over(view):
            return view
        if view.job:
            raise InvalidArgument(
                "unsupported",
                f"{run} is an attempt of a replica of {view.job}, which would be started again",
                f"stop_replicas(job={view.job!r}) ends all of it; restart_replica starts one anew.",
            )
        self._runs.explain(run, "cancelled")
        await self._end(run, "cancelled", grace_s)
        view = await self._runs.wait_over(run, grace_s + END_GRACE_S)
        silent = [link.host for link in self._hosts.in_state("silent")]
        if is_over(view) or not silent:
            return view
        self._cancelled[run] = grace_s
        warning = (
            f"host {format_ranks(silent)} does not answer: its ranks end when it does, or with the release"
        )
        return replace(view, warnings=(*view.warnings, warning))

    async def resume_cancels(self) -> None:
        """Ends, on hosts that answer again, what was cancelled while they did not; for ever."""
        while True:
            await self._hosts.next_return()
            for run, grace_s in list(self._cancelled.items()):
                if not is_over(self._runs.view(run)):
                    await self._end(run, "cancelled", grace_s)
                if is_over(self._runs.view(run)):
                    del self._cancelled[run]

    def _found(self, run: str) -> RunView:
        view = self._runs.view(run)
        if view.mesh != self._keeper.mesh.mesh:
            raise NotFound("run_not_found", f"{run} is a run of {view.mesh}", "Call list_runs.")
        return view

    async def _check(self, plans: Sequence[HostPlan]) -> tuple[str, ...]:
        """What hosts say of it, each thing once."""
        by_host = {plan.host: plan for plan in plans}
        answers = await self._hosts.ask(by_host, lambda link: link.call(Runs, Runs.check, by_host[link.host]))
        for answer in answers.values():
            if isinstance(answer, MilkweedError):
                raise answer
        said = [answer for answer in answers.values() if not isinstance(answer, MilkweedError)]
        return tuple(dict.fromkeys(note for notes in said for note in notes))

    async def _start(
        self, request: RunRequest, run: str, plans: Sequence[HostPlan], prepared: Prepared
    ) -> RunView:
        by_host = {plan.host: plan for plan in plans}
        view = RunView(
            run=run,
            mesh=self._keeper.mesh.mesh,
            state="running",
            launcher=request.launcher,
            command=command_text(request),
            ranks=tuple(RankView(rank, host) for rank, host in ranks_of(plans)),
            created_at=time.time(),
            keep_going=request.keep_going,
            workspace_revision=prepared.revision,
            keep=request.keep,
            host_copies=self.take_host_copies(by_host),
            warnings=prepared.notes,
        )
        self._runs.add(view)
        answers = await self._hosts.ask(by_host, lambda link: link.call(Runs, Runs.start, by_host[link.host]))
        for host, answer in answers.items():
            # A host that is lost or silent may have started its part: its events, or its loss, will tell.
            if isinstance(answer, MilkweedError) and answer.code not in ("host_lost", "deadline_exceeded"):
                self._runs.not_started(run, host, str(answer), time.time())
        return self._runs.view(run)

    async def _end(self, run: str, reason: EndReason, grace_s: float) -> None:
        hosts = {rank.host for rank in self._runs.view(run).ranks}.intersection(self._hosts.ready())
        answers = await self._hosts.ask(
            hosts, lambda link: link.call(Runs, Runs.end, run, None, reason, grace_s)
        )
        for host, answer in answers.items():
            if isinstance(answer, MilkweedError):
                logger.warning("%s could not be ended on host %d: %s", run, host, answer)

    async def _end_peers(self, action: EndRanks) -> None:
        await anyio.sleep(max(0.0, action.at - time.time()))
        if not is_over(self._runs.view(action.run)):
            await self._end(action.run, action.reason, END_GRACE_S)
