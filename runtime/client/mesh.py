"""One mesh, through its keeper; of a released one, what the index and the disk still tell."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, Protocol, TypeVar

import anyio
import anyio.to_thread

from ..actor import Actor
from ..call import Session
from ..checking import MeshCheck
from ..devices import HostDevices
from ..errors import Conflict, MilkweedError, NotFound, Unavailable
from ..evidence import HostEvidence
from ..fetching import Fetched, Report, fetch
from ..file_records import FileChunk, FileDigest, FileListing, FileText
from ..holdings import HostHoldings
from ..index import Index, MeshEvent
from ..job_records import JobRequest, JobStatus, JobView
from ..keeper.checks import Checks
from ..keeper.holding_control import HoldingControl
from ..keeper.mesh_keeper import MeshKeeper, Released
from ..keeper.mount_control import MountControl
from ..keeper.reader import Reader, choose_ranks, read_evidence_from_disk, read_from_disk
from ..keeper.replica_control import ReplicaControl
from ..keeper.run_control import RunControl
from ..keeper.unmounted import Unmounted
from ..paths import MeshPaths
from ..proc_records import ProcOfRun
from ..profiling import ProfileRequest, RankProfile
from ..records import MeshView, MountView, OutputSlice, ProcessStacks, RunRequest, RunView
from ..schedulers.processes import start_time

__all__ = ["Mesh", "mesh_released", "why_silent"]

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")
T = TypeVar("T")

CALL_S = 30.0
_CHECK_S = 42.0
_MOUNT_S = 44.0
_RELEASE_S = 36.0
_SURVEY_S = 5.0
_PROFILE_SPARE_S = 11.0


class Keepers(Protocol):
    """What a mesh needs of its owner: the index, and the way to its keeper."""

    @property
    def index(self) -> Index: ...

    async def keeper(self, mesh: str, paths: MeshPaths) -> Session: ...


class _KeeperDied(Unavailable):
    """The keeper died under a call; another one is there for the next."""


async def _repeated(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer to what changes nothing: asked once more, where the keeper died under it."""
    try:
        return await ask()
    except _KeeperDied:
        return await ask()


class Mesh:
    """One mesh, through its keeper."""

    def __init__(self, meshes: Keepers, mesh: str, paths: MeshPaths) -> None:
        self.id = mesh
        self._meshes = meshes
        self._paths = paths

    async def _call(
        self,
        cls: type[A],
        method: Callable[Concatenate[A, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._call_within(CALL_S, cls, method, *args, **kwargs)

    async def _call_within(
        self,
        deadline_s: float,
        cls: type[A],
        method: Callable[Concatenate[A, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Where the keeper dies under a call, the call may have had its effect: an error, not repeated.

        Raises:
            _KeeperDied: it died under the call.
        """
        connection = await self._meshes.keeper(self.id, self._paths)
        try:
            return (
                await connection.actor(cls.__name__, cls).within(deadline_s).call_one(method, *args, **kwargs)
            )
        except Unavailable as error:
            if error.code == "deadline_exceeded":
                raise Unavailable("keeper_lost", *why_silent(self.id, self._paths)) from None
            if error.code != "connection_lost":
                raise
            if (view := self._meshes.index.mesh(self.id)).state == "released":
                raise mesh_released(view) from None
            raise _KeeperDied(
                "keeper_lost",
                f"the keeper of {self.id} ended during the call",
                "It is started again; look, then repeat.",
            ) from None

    async def _look(
        self,
        cls: type[A],
        method: Callable[Concatenate[A, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """A call that changes nothing."""
        return await _repeated(lambda: self._call(cls, method, *args, **kwargs))

    async def view(self) -> MeshView:
        try:
            return await self._look(MeshKeeper, MeshKeeper.view)
        except Conflict:
            return self._meshes.index.mesh(self.id)

    async def wait_ready(self, timeout_s: float) -> MeshView:
        """The view once all hosts are ready or one is lost, or when the time is up."""
        until = anyio.current_time() + timeout_s

        async def wait() -> MeshView:
            left = max(0.0, until - anyio.current_time())
            return await self._call_within(left + CALL_S, MeshKeeper, MeshKeeper.wait_ready, left)

        try:
            return await _repeated(wait)
        except Conflict:
            return self._meshes.index.mesh(self.id)

    async def events(self, limit: int = 20) -> tuple[MeshEvent, ...]:
        """The latest events, oldest first."""
        return self._meshes.index.events(self.id, limit)

    async def extend_lease(self, minutes: float) -> MeshView:
        return await self._call(MeshKeeper, MeshKeeper.extend_lease, minutes)

    async def release(self) -> Released:
        """Ends all that runs on the mesh and gives its hosts back; output stays on disk. What takes longer,
        since files are being kept, goes on by itself.

        Raises:
            Conflict: mesh_released, when it was already.
        """
        return await self._call_within(_MOUNT_S, MeshKeeper, MeshKeeper.release, _RELEASE_S)

    async def holdings(self, within_s: float = _SURVEY_S) -> dict[int, HostHoldings | MilkweedError]:
        """What each host that answers has that goes with the mesh, but for what is to be kept."""
        return await self._call(HoldingControl, HoldingControl.survey, within_s)

    async def start_run(self, request: RunRequest) -> RunView:
        """
        Raises:
            InvalidArgument, NotFound, Conflict, Unavailable: nothing was started.
        """
        return await self._call(RunControl, RunControl.start, request)

    async def mount(self, source: str, path: str, mode: str = "auto") -> MountView:
        """Shows the hosts a directory of this machine at `path`; one that is shown so is answered as it is.

        Raises:
            InvalidArgument: invalid_path, unsupported; nothing was mounted.
        """
        return await self._call_within(_MOUNT_S, MountControl, MountControl.mount, source, path, mode)

    async def gather(self, remote: str, mountpoint: str, hosts: Sequence[int] = ()) -> MountView:
        """Shows a path of hosts (empty: of all) here, at `MOUNTPOINT/HOST`; the same again is answered as it
        is.

        Raises:
            NotFound: file_not_found, host_not_found. InvalidArgument: invalid_path, unsupported.
            Unavailable: mount_unusable.
        """
        return await self._call_within(
            _MOUNT_S, MountControl, MountControl.gather, remote, mountpoint, tuple(hosts)
        )

    async def unmount(self, mount: str) -> Unmounted:
        """
        Raises:
            NotFound: mount_not_found.
        """
        return await self._call_within(_MOUNT_S, MountControl, MountControl.unmount, mount)

    async def runs(self) -> tuple[RunView, ...]:
        """Newest first; of a released mesh too."""
        try:
            return await self._look(RunControl, RunControl.all)
        except Conflict:
            return self._meshes.index.runs(self.id)

    async def run(self, run: str) -> RunView:
        try:
            return await self._look(RunControl, RunControl.view, run)
        except Conflict:
            return self._meshes.index.run(run)

    async def wait_run(
        self,
        run: str,
        *,
        until: Literal["end", "output", "still"] = "end",
        pattern: str | None = None,
        timeout_s: float,
    ) -> RunView:
        """The run when it is over, when it has printed (what matches `pattern`), when nothing of it moves, or
        when the time is up.
        """
        ends = anyio.current_time() + timeout_s

        async def wait() -> RunView:
            left = max(0.0, ends - anyio.current_time())
            return await self._call_within(
                left + CALL_S, RunControl, RunControl.wait, run, until, pattern, left
            )

        try:
            return await _repeated(wait)
        except Conflict:
            return self._meshes.index.run(run)

    async def cancel_run(self, run: str, *, grace_s: float = 2.0) -> RunView:
        """Ends a run: SIGTERM, then SIGKILL after the grace. A run that is over stays as it was."""
        try:
            return await self._call(RunControl, RunControl.cancel, run, grace_s)
        except Conflict:
            return self._meshes.index.run(run)

    async def start_job(self, request: JobRequest) -> JobView:
        """Starts replicas; a job that was asked for in the same words and is not over is that job.

        Raises:
            InvalidArgument, NotFound, Conflict, Unavailable: nothing was started.
        """
        return await self._call(ReplicaControl, ReplicaControl.start, request)

    async def jobs(self) -> tuple[JobView, ...]:
        """Newest first; of a released mesh too."""
        try:
            return await self._look(ReplicaControl, ReplicaControl.all)
        except Conflict:
            return self._meshes.index.jobs(self.id)

    async def job(self, job: str, *, wait_s: float = 0.0) -> JobStatus:
        """A job; with `wait_s`, once a replica has failed, ended or come back, or the time is up.

        Raises:
            NotFound: job_not_found.
        """
        ends = anyio.current_time() + wait_s

        async def wait() -> JobStatus:
            left = max(0.0, ends - anyio.current_time())
            return await self._call_within(left + CALL_S, ReplicaControl, ReplicaControl.status, job, left)

        try:
            return await _repeated(wait)
        except Conflict:
            view = self._meshes.index.job(job)
            runs = {one.replica: self._meshes.index.run(one.run) for one in view.replicas if one.run}
            return JobStatus(view, runs)

    async def restart_replica(self, job: str, replica: int) -> JobStatus:
        """Ends a replica's attempt and starts another at once; it counts as no failure.

        Raises:
            NotFound: job_not_found, replica_not_found. Conflict: job_ended. Unavailable: host_lost.
        """
        return await self._call(ReplicaControl, ReplicaControl.restart, job, replica)

    async def stop_job(self, job: str, *, grace_s: float = 2.0) -> JobStatus:
        """Ends all replicas: SIGTERM, then SIGKILL after the grace. A job that is over stays as it was."""
        try:
            return await self._call(ReplicaControl, ReplicaControl.stop, job, grace_s)
        except Conflict:
            return await self.job(job)

    async def read_output(
        self,
        run: str,
        *,
        ranks: Sequence[int] | None = None,
        offsets: Mapping[int, int] | None = None,
        tail_bytes: int | None = None,
        max_bytes: int = 64 * 1024,
    ) -> tuple[OutputSlice, ...]:
        """A slice of each rank's output: from its offset, else the last `tail_bytes`, else from the start."""
        try:
            return await self._look(
                Reader, Reader.output, run, ranks, dict(offsets or {}), tail_bytes, max_bytes
            )
        except Conflict:
            chosen = choose_ranks(self._meshes.index.run(run), ranks)
            slices = await anyio.to_thread.run_sync(
                read_from_disk, self._paths, run, chosen, offsets or {}, tail_bytes, max_bytes
            )
            return tuple(slices)

    async def stacks(
        self,
        run: str | None = None,
        *,
        ranks: Sequence[int] | None = None,
        native: bool = False,
        locals: bool = False,  # noqa: A002 - the tool's own word
        timeout_s: float = 10.0,
    ) -> tuple[ProcessStacks, ...]:
        """Stacks of a run's processes; without a run, of the newest one that is running.

        Of a controller also, unless `ranks` are named, those of the procs that it spawned on any host.

        Raises:
            NotFound: run_not_found, where none is running.
        """
        if run is None:
            running = [view for view in await self.runs() if view.state == "running"]
            if not running:
                raise NotFound(
                    "run_not_found", f"nothing is running on {self.id}", "Call run_on_mesh, or list_runs."
                )
            run = running[0].run
        chosen = run
        return await _repeated(
            lambda: self._call_within(
                timeout_s + CALL_S, Reader, Reader.stacks, chosen, ranks, native, locals, timeout_s
            )
        )

    async def evidence(
        self,
        run: str,
        *,
        ranks: Sequence[int] | None = None,
        locals: bool = False,  # noqa: A002
        timeout_s: float = 5.0,
    ) -> tuple[HostEvidence, ...]:
        """What each host knows of a run, also of one that is over; of a released mesh what was kept."""
        try:
            return await _repeated(
                lambda: self._call_within(
                    timeout_s + CALL_S, Reader, Reader.evidence, run, ranks, timeout_s, locals
                )
            )
        except Conflict:
            view = self._meshes.index.run(run)
            hosts = sorted({rank.host for rank in view.ranks})
            return await anyio.to_thread.run_sync(read_evidence_from_disk, self._paths, run, hosts)

    async def profile(
        self, run: str, request: ProfileRequest, *, ranks: Sequence[int] | None = None
    ) -> tuple[RankProfile, ...]:
        """Where the time of ranks that live goes, sampled on all hosts at once; in rank order.

        It takes `request.seconds`, and up to 11 s more. A rank without a profile tells why in `error`.

        Raises:
            NotFound: run_not_found, rank_not_found.
        """
        return await self._call_within(
            request.seconds + _PROFILE_SPARE_S, Reader, Reader.profile, run, ranks, request
        )

    @property
    def profiles(self) -> Path:
        """Where files of profiles go; they outlive the mesh as the output of its runs does."""
        return self._paths.profiles

    async def procs(self) -> tuple[ProcOfRun, ...]:
        """The procs that controllers have spawned here, and how they are; of a released mesh none."""
        try:
            return await self._look(Reader, Reader.procs)
        except Conflict:
            return ()

    async def devices(self, within_s: float = 2.0) -> dict[int, HostDevices | MilkweedError]:
        """The accelerators of each host and who uses them, of some seconds ago; of a released mesh none."""
        try:
            return await self._look(Reader, Reader.devices, within_s)
        except Conflict:
            return {}

    async def check(self, *, hosts: Sequence[int] | None = None) -> MeshCheck:
        """What the hosts have, and how fast memory moves within and between them; takes up to forty seconds.

        Raises:
            NotFound: host_not_found. Conflict: mesh_not_ready, mesh_released. Unavailable: keeper_lost.
        """
        return await self._call_within(_CHECK_S, Checks, Checks.check, hosts)

    async def list_files(
        self, path: str, *, hosts: Sequence[int] | None = None, pattern: str | None = None, limit: int = 200
    ) -> dict[int, FileListing | MilkweedError]:
        """One listing or one error a host."""
        return await self._look(Reader, Reader.list_files, path, hosts, pattern, limit)

    async def read_file(
        self,
        path: str,
        *,
        host: int = 0,
        offset: int = 0,
        limit: int | None = None,
        tail: int | None = None,
        grep: str | None = None,
        max_bytes: int = 8192,
    ) -> FileText:
        return await self._look(Reader, Reader.read_file, path, host, offset, limit, tail, grep, max_bytes)

    async def file_digests(
        self, path: str, *, hosts: Sequence[int] | None = None
    ) -> dict[int, FileDigest | MilkweedError]:
        return await self._look(Reader, Reader.file_digests, path, hosts)

    async def file_chunk(self, path: str, *, host: int, offset: int, length: int) -> FileChunk:
        return await self._look(Reader, Reader.file_chunk, path, host, offset, length)

    async def fetch(
        self,
        path: str,
        *,
        hosts: Sequence[int] | None,
        destination: str,
        report: Report,
        within_s: float = math.inf,
    ) -> tuple[Fetched, ...]:
        """Copies a file or folder of each host to `destination/<host>/` on the client (see `fetch`)."""
        from ..gather.direct import open_origins

        view = await self.view()
        chosen = [host.host for host in view.hosts] if hosts is None else hosts
        async with open_origins({host: str(self._paths.host_socket(host)) for host in chosen}) as direct:
            return await fetch(
                self,
                path,
                hosts=chosen,
                destination=destination,
                report=report,
                within_s=within_s,
                direct=direct,
            )


def mesh_released(view: MeshView) -> Conflict:
    return Conflict("mesh_released", view.how_it_ended, "Call allocate_mesh for a new one.")


def why_silent(mesh: str, paths: MeshPaths) -> tuple[str, str]:
    """Cause and mend where a keeper does not answer."""
    log = f"Its log is {paths.keeper_log}."
    try:
        pid = int(paths.lock.read_text())
    except (OSError, ValueError):
        pid = 0
    if pid and start_time(pid) is not None:
        if not paths.keeper_socket.exists():  # the lock is in one directory, the socket in the other
            cause = f"the keeper of {mesh} (pid {pid}) has no socket in {paths.sockets.parent}"
            return cause, f"Set MILKWEED_RUNTIME_DIR as the server that allocated it has it. {log}"
        cause = f"the keeper of {mesh} (pid {pid}) is there but does not answer"
        return cause, f"If it hangs, kill -9 {pid}: it is started again, hosts and runs go on. {log}"
    return f"the keeper of {mesh} does not start", log
