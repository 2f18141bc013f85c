"""Looking without changing anything: output, stacks and files of the hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..devices import HostDevices
from ..errors import MilkweedError, NotFound
from ..evidence import HostEvidence
from ..evidence.remains import read_kept
from ..file_records import FileChunk, FileDigest, FileListing, FileText
from ..mesh import format_ranks
from ..output import read_output
from ..paths import MeshPaths
from ..proc_records import ProcOfRun
from ..profiling import ProfileRequest, RankProfile
from ..records import OutputSlice, ProcessStacks, RankView, RunView
from ..retention import KEEP_S
from ..services.devices import Devices
from ..services.evidence import Evidence
from ..services.files import Files
from ..services.procs import Procs
from ..services.profiling import PROFILE_SPARE_S, Profiling
from ..services.runs import Runs
from ..services.stacks import Stacks
from .clocks import measure_clock
from .controllers import Controllers
from .hosts import Hosts
from .links import HostLink
from .runbook import RunBook

__all__ = ["Reader", "choose_ranks", "read_evidence_from_disk", "read_from_disk"]

_SPARE_S = 5.0
_SURVEY_S = 4.0
_EVIDENCE_SPARE_S = 1.0
_CLOCK_ROUNDS = 3
_DEVICES_SPARE_S = 2.0
_PROFILE_WAY_S = 2.0


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
                lambda link: link.look_within(
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
                lambda link: link.look_within(
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
    async def evidence(
        self, run: str, ranks: Sequence[int] | None, timeout_s: float, with_locals: bool = False
    ) -> tuple[HostEvidence, ...]:
        """What each host of a run knows of it; one that does not answer in time is said so, unless the run is
        over and was kept."""
        view = self._runs.view(run)
        chosen = _by_host(choose_ranks(view, ranks))

        async def ask(link: HostLink) -> HostEvidence:
            within_s = timeout_s + _EVIDENCE_SPARE_S
            clock = await measure_clock(link, rounds=_CLOCK_ROUNDS, within_s=within_s)
            found = await link.look_within(
                within_s,
                Evidence,
                Evidence.collect,
                run,
                _numbers(chosen[link.host]),
                timeout_s,
                with_locals,
            )
            return replace(found, clock=clock.ahead if abs(clock.ahead) > clock.within else 0.0)

        answers = await self._hosts.ask(chosen, ask)
        found = []
        for host, answer in answers.items():
            if isinstance(answer, MilkweedError):
                kept = await anyio.to_thread.run_sync(_kept, self._paths, run, host)
                is_all = kept is not None and view.ended_at is not None
                found.append(replace(kept or HostEvidence(host), error="" if is_all else answer.cause))
            else:
                found.append(answer)
        return tuple(found)

    @endpoint
    async def profile(
        self, run: str, ranks: Sequence[int] | None, request: ProfileRequest
    ) -> tuple[RankProfile, ...]:
        """Where the time of ranks goes, on all hosts at once; a silent host is said for each."""
        chosen = _by_host(choose_ranks(self._runs.view(run), ranks))
        within_s = request.seconds + PROFILE_SPARE_S + _PROFILE_WAY_S
        answers = await self._hosts.ask(
            chosen,
            lambda link: link.look_within(
                within_s, Profiling, Profiling.record, run, _numbers(chosen[link.host]), request
            ),
        )
        found: list[RankProfile] = []
        for host, answer in answers.items():
            if isinstance(answer, MilkweedError):
                found += [RankProfile(r.rank, host, r.pid or 0, error=answer.cause) for r in chosen[host]]
            else:
                found += answer
        return tuple(sorted(found, key=lambda one: one.rank))

    @endpoint
    async def procs(self) -> tuple[ProcOfRun, ...]:
        """The procs that controllers have spawned on the mesh, and how they are; of hosts that answer."""
        if not self._controllers.any:
            return ()
        answers = await self._hosts.ask(
            self._hosts.ready(), lambda link: link.look_within(_SURVEY_S, Procs, Procs.survey)
        )
        found = [
            one for answer in answers.values() if not isinstance(answer, MilkweedError) for one in answer
        ]
        return tuple(found)

    @endpoint
    async def devices(self, within_s: float) -> dict[int, HostDevices | MilkweedError]:
        """The devices of hosts that are ready; a driver that does not answer in time is told as that."""
        return await self._hosts.ask(
            self._hosts.ready(),
            lambda link: link.look_within(within_s + _DEVICES_SPARE_S, Devices, Devices.look, within_s),
        )

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

    def read(directory: Path, rank: RankView) -> OutputSlice:
        return read_output(
            directory,
            f"rank-{rank.rank}",
            rank.rank,
            offset=offsets.get(rank.rank),
            tail_bytes=None if rank.rank in offsets else tail_bytes,
            max_bytes=max_bytes,
            ended=rank.ended_at is not None,
        )

    found = []
    for rank in ranks:
        if rank.started_at is None and not any(one.is_dir() for one in paths.output_places(run, rank.host)):
            found.append(OutputSlice(rank.rank, 0, b"", 0, 0, ended=True))  # it has never had a directory
            continue
        place = _place(paths, run, rank.host)
        piece = read(place, rank)
        if place != (moved := _place(paths, run, rank.host)):  # by a release, meanwhile
            piece = read(moved, rank)
        found.append(piece)
    return found


def read_evidence_from_disk(paths: MeshPaths, run: str, hosts: Iterable[int]) -> tuple[HostEvidence, ...]:
    """What was kept of a run on hosts that are gone."""
    return tuple(
        _kept(paths, run, host) or HostEvidence(host, error="nothing was kept of it on this host")
        for host in hosts
    )


def _kept(paths: MeshPaths, run: str, host: int) -> HostEvidence | None:
    moved, written = paths.output_places(run, host)
    places = (moved, written, moved)  # a release may move it meanwhile
    return next((kept for place in places if (kept := read_kept(place)) is not None), None)


def _place(paths: MeshPaths, run: str, host: int) -> Path:
    """
    Raises:
        NotFound: output_not_found.
    """
    for place in paths.output_places(run, host):
        if place.is_dir():
            return place
    raise NotFound(
        "output_not_found",
        f"the output of {run} was removed: it is kept for {KEEP_S / 86400:.0f} days after a release",
        "Fetch what must be kept (fetch_files).",
    )
