"""Looking without changing anything: output, stacks and files of the hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..errors import MilkweedError, NotFound
from ..file_records import FileChunk, FileDigest, FileListing, FileText
from ..mesh import format_ranks
from ..output import read_slice
from ..paths import MeshPaths
from ..proc_records import ProcOfRun
from ..records import OutputSlice, ProcessStacks, RankView, RunView
from ..retention import KEEP_S
from ..services.files import Files
from ..services.procs import Procs
from ..services.runs import Runs
from ..services.stacks import Stacks
from .controllers import Controllers
from .hosts import Hosts
from .runbook import RunBook

__all__ = ["Reader", "choose_ranks", "read_from_disk"]

_SPARE_S = 5.0
_SURVEY_S = 4.0


class Reader(Actor):
    def __init__(self, paths: MeshPaths, hosts: Hosts, runs: RunBook, controllers: Controllers) -> None:
        self._paths = paths
        self._controllers = controllers
        self._hosts = hosts
        self._runs = runs

    @endpoint
    async def output(
        self,
        run: str,
        ranks: Sequence[int] | None,
        offsets: Mapping[int, int],
        tail_bytes: int | None,
        max_bytes: int,
    ) -> tuple[OutputSlice, ...]:
        """A slice of each rank's output, in rank order; `max_bytes` is for each rank.

        A rank without an offset is read from its beginning, or its last `tail_bytes`. A lost host's output is
        read from its directory.
        """
        chosen = _by_host(choose_ranks(self._runs.view(run), ranks))
        answers = await self._hosts.ask(
            chosen,
            lambda link: link.call(
                Runs, Runs.read, run, _numbers(chosen[link.host]), offsets, tail_bytes, max_bytes
            ),
        )
        slices: list[OutputSlice] = []
        for host, answer in answers.items():
            if isinstance(answer, MilkweedError):
                slices += await anyio.to_thread.run_sync(
                    read_from_disk, self._paths, run, chosen[host], offsets, tail_bytes, max_bytes
                )
            else:
                slices += answer
        return tuple(sorted(slices, key=lambda one: one.rank))

    @endpoint
    async def stacks(
        self, run: str, ranks: Sequence[int] | None, native: bool, with_locals: bool, timeout_s: float
    ) -> tuple[ProcessStacks, ...]:
        """Stacks of a run's processes on all hosts at once, and (without `ranks`) of procs that it spawned.

        A silent host is said for each of its ranks, and, where the run has procs, for those.
        """
        chosen = _by_host(choose_ranks(self._runs.view(run), ranks))
        controllers = self._controllers.of(run)
        controls = {one.pid: one.control for one in controllers if one.control}
        within_s = timeout_s + _SPARE_S
        found: list[ProcessStacks] = []

        async def ask_ranks() -> None:
            answers = await self._hosts.ask(
                chosen,
                lambda link: link.call_within(
                    within_s,
                    Stacks,
                    Stacks.dump,
                    run,
                    _numbers(chosen[link.host]),
                    native,
                    with_locals,
                    timeout_s,
                    controls,
                ),
            )
            for host, answer in answers.items():
                if isinstance(answer, MilkweedError):
                    found.extend(
                        ProcessStacks(r.rank, host, r.pid or 0, error=str(answer)) for r in chosen[host]
                    )
                else:
                    found.extend(answer)

        async def ask_procs() -> None:
            answers = await self._hosts.ask(
                sorted(self._hosts.links),
                lambda link: link.call_within(
                    within_s, Stacks, Stacks.dump_procs_of_run, run, native, with_locals, timeout_s
                ),
            )
            for host, answer in answers.items():
                if isinstance(answer, MilkweedError):
                    found.append(ProcessStacks(host, host, 0, error=str(answer), procs="procs of host"))
                else:
                    found.extend(answer)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_ranks)
            if controllers and ranks is None:
                tasks.start_soon(ask_procs)
        return tuple(sorted(found, key=lambda one: (one.procs, one.rank, one.child_of is not None, one.pid)))

    @endpoint
    async def procs(self) -> tuple[ProcOfRun, ...]:
        """The procs that controllers have spawned on the mesh, and how they are; of hosts that answer."""
        if not self._controllers.any:
            return ()
        answers = await self._hosts.ask(
            self._hosts.ready(), lambda link: link.call_within(_SURVEY_S, Procs, Procs.survey)
        )
        found = [
            one for answer in answers.values() if not isinstance(answer, MilkweedError) for one in answer
        ]
        return tuple(found)

    @endpoint
    async def list_files(
        self, path: str, hosts: Sequence[int] | None, pattern: str | None, limit: int
    ) -> dict[int, FileListing | MilkweedError]:
        return await self._hosts.ask(
            self._chosen(hosts), lambda link: link.call(Files, Files.list, path, pattern, limit)
        )

    @endpoint
    async def read_file(
        self,
        path: str,
        host: int,
        offset: int,
        limit: int | None,
        tail: int | None,
        grep: str | None,
        max_bytes: int,
    ) -> FileText:
        return await self._hosts[host].call(Files, Files.read, path, offset, limit, tail, grep, max_bytes)

    @endpoint
    async def file_digests(
        self, path: str, hosts: Sequence[int] | None
    ) -> dict[int, FileDigest | MilkweedError]:
        return await self._hosts.ask(self._chosen(hosts), lambda link: link.call(Files, Files.digest, path))

    @endpoint
    async def file_chunk(self, path: str, host: int, offset: int, length: int) -> FileChunk:
        return await self._hosts[host].call(Files, Files.chunk, path, offset, length)

    def _chosen(self, hosts: Sequence[int] | None) -> Sequence[int]:
        chosen = sorted(self._hosts.links) if hosts is None else hosts
        for host in chosen:
            self._hosts[host]
        return chosen


def _by_host(ranks: Iterable[RankView]) -> dict[int, list[RankView]]:
    grouped: dict[int, list[RankView]] = {}
    for rank in ranks:
        grouped.setdefault(rank.host, []).append(rank)
    return grouped


def _numbers(ranks: Iterable[RankView]) -> tuple[int, ...]:
    return tuple(rank.rank for rank in ranks)


def choose_ranks(view: RunView, ranks: Sequence[int] | None) -> list[RankView]:
    """
    Raises:
        NotFound: rank_not_found.
    """
    known = {rank.rank: rank for rank in view.ranks}
    unknown = [rank for rank in ranks or () if rank not in known]
    if unknown:
        raise NotFound(
            "rank_not_found",
            f"{view.run} has no rank {format_ranks(unknown)}; its ranks are {format_ranks(known)}",
            "Leave out ranks to read all.",
        )
    return [known[rank] for rank in (known if ranks is None else ranks)]


def read_from_disk(
    paths: MeshPaths,
    run: str,
    ranks: Sequence[RankView],
    offsets: Mapping[int, int],
    tail_bytes: int | None,
    max_bytes: int,
) -> list[OutputSlice]:
    """Output of ranks whose host does not answer, from its directory.

    Raises:
        NotFound: output_not_found, it was removed.
    """
    for rank in ranks:
        if not (paths.host(rank.host) / "runs" / run).is_dir():
            raise NotFound(
                "output_not_found",
                f"the output of {run} was removed: it is kept for {KEEP_S / 86400:.0f} days after a release",
                "Fetch what must be kept (fetch_files).",
            )
    return [
        read_slice(
            paths.host(rank.host),
            run,
            f"rank-{rank.rank}",
            rank.rank,
            offset=offsets.get(rank.rank),
            tail_bytes=None if rank.rank in offsets else tail_bytes,
            max_bytes=max_bytes,
            ended=rank.ended_at is not None,
        )
        for rank in ranks
    ]
