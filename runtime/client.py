"""The client's side: a user's meshes, and each one's keeper.

    async with open_meshes() as meshes:
        mesh = await meshes.allocate(MeshSpec("demo", hosts=2, procs_per_host=2, workspace="/home/me/demo"))
        run = await mesh.start_run(RunRequest(argv=("python", "train.py")))

A keeper that is gone is started again: at once when this client was connected to it, else at the next call.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Concatenate, Literal, ParamSpec, TypeVar

import anyio
import anyio.abc
import anyio.to_thread

from . import schedulers
from .actor import Actor
from .call import Connection, connect_stream
from .daemon import spawn_daemon
from .errors import Conflict, MilkweedError, NotFound, Unavailable
from .fetching import Fetched, Report, fetch
from .file_records import FileChunk, FileDigest, FileListing, FileText
from .index import Index, MeshEvent
from .keeper.mesh_keeper import MeshKeeper, Released
from .keeper.reader import Reader, choose_ranks, read_from_disk
from .keeper.run_control import RunControl
from .paths import MeshPaths, Places
from .records import MeshSpec, MeshView, OutputSlice, ProcessStacks, RunRequest, RunView
from .retention import forget_old
from .schedulers import SchedulerView
from .schedulers.processes import start_time, wait_gone
from .tasks import background_tasks

__all__ = ["Mesh", "Meshes", "open_meshes"]

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")
T = TypeVar("T")

CALL_S = 30.0
KEEPER_START_S = 10.0
_RETRY_S = 0.01
_RESPAWN_S = 0.5


@asynccontextmanager
async def open_meshes(places: Places | None = None) -> AsyncIterator[Meshes]:
    """The user's meshes, for the length of a `with` block; meshes live on after it.

    Raises:
        Unavailable: the state or runtime directory cannot be used.
    """
    places = places or Places.from_environment()
    index = Index(places.index)
    try:
        async with background_tasks() as tasks:
            yield Meshes(places, index, tasks)
    finally:
        index.close()


class Meshes:
    """See `open_meshes`."""

    def __init__(self, places: Places, index: Index, tasks: anyio.abc.TaskGroup) -> None:
        self._places = places
        self._index = index
        self._tasks = tasks
        self._connections: dict[str, Connection] = {}
        self._connecting: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def allocate(self, spec: MeshSpec, *, wait_s: float = 30.0) -> Mesh:
        """The mesh of that name: a live one if it was asked for in the same words, else a new one.

        Returns when all hosts are ready, or when `wait_s` is up (the mesh's state then says so).

        Raises:
            Conflict: name_in_use. InvalidArgument: the scheduler cannot give that.
            Unavailable: allocation_failed, with the reason; nothing is left running then.
        """
        schedulers.find(spec.scheduler).check(spec)
        view, new = self._index.claim(spec)
        paths = self._places.mesh(view.mesh)
        if new:
            self._make_directory(view, paths)
            self._tasks.start_soon(self._forget_old)
        mesh = Mesh(self, view.mesh, paths)
        view = await mesh.wait_ready(wait_s)
        if view.state == "released":
            raise Unavailable(
                "allocation_failed",
                view.reason.removeprefix("allocation_failed: ") or "the mesh was released meanwhile",
                f"Logs are in {paths.root}.",
            )
        return mesh

    def check(self, spec: MeshSpec) -> None:
        """Refuses what `allocate` would refuse, without an effect.

        Raises:
            InvalidArgument, Unavailable: what the scheduler cannot give. Conflict: name_in_use.
        """
        schedulers.find(spec.scheduler).check(spec)
        self._index.check_claim(spec)

    async def get(self, mesh: str) -> Mesh:
        """By id, or by the name of a live mesh.

        Raises:
            NotFound: mesh_not_found.
        """
        view = self._index.mesh(mesh)
        return Mesh(self, view.mesh, self._places.mesh(view.mesh))

    async def find_run(self, run: str) -> Mesh:
        """The mesh that a run belongs to.

        Raises:
            NotFound: run_not_found.
        """
        return await self.get(self._index.run(run).mesh)

    async def list(self, *, released: bool = False) -> tuple[MeshView, ...]:
        """All live meshes, oldest first; with `released` the released ones too, as the index has them."""
        found: dict[str, MeshView] = {}

        async def ask(view: MeshView) -> None:
            try:
                found[view.mesh] = await Mesh(self, view.mesh, self._places.mesh(view.mesh)).view()
            except MilkweedError as error:
                found[view.mesh] = replace(view, warnings=(str(error),))

        views = self._index.meshes(released=released)
        async with anyio.create_task_group() as group:
            for view in views:
                if view.state != "released":
                    group.start_soon(ask, view)
        answers = [found.get(view.mesh, view) for view in views]
        return tuple(view for view in answers if released or view.state != "released")

    def schedulers(self) -> tuple[SchedulerView, ...]:
        return tuple(schedulers.find(name).describe() for name in schedulers.names())

    def _make_directory(self, view: MeshView, paths: MeshPaths) -> None:
        try:
            paths.root.mkdir(mode=0o700, parents=True)
        except OSError as error:
            self._index.set_state(view.mesh, "released", f"allocation_failed: {error.strerror}")
            raise Unavailable(
                "disk_full" if error.errno == errno.ENOSPC else "allocation_failed",
                f"cannot make {paths.root}: {error.strerror}",
                "Make room on that disk, or set MILKWEED_STATE_DIR.",
            ) from None

    async def _forget_old(self) -> None:
        released = [view.mesh for view in self._index.meshes(released=True) if view.state == "released"]
        await anyio.to_thread.run_sync(forget_old, [self._places.mesh(mesh).root for mesh in released])

    # Used by Mesh.

    @property
    def index(self) -> Index:
        return self._index

    async def keeper(self, mesh: str, paths: MeshPaths) -> Connection:
        """A connection to the mesh's keeper, which is started where there is none.

        Raises:
            Conflict: mesh_released. Unavailable: keeper_lost.
        """
        async with self._connecting[mesh]:
            connection = self._connections.get(mesh)
            if connection is not None and not connection.closed.is_set():
                return connection
            if self._index.mesh(mesh).state == "released":
                raise _released(mesh)
            connection = await self._connect(mesh, paths)
            self._connections[mesh] = connection
            self._tasks.start_soon(self._watch, mesh, paths, connection)
            return connection

    async def _connect(self, mesh: str, paths: MeshPaths) -> Connection:
        spawned = False
        with anyio.move_on_after(KEEPER_START_S):
            while True:
                try:
                    stream = await connect_stream(paths.keeper_socket, f"the keeper of {mesh}")
                    connection = Connection(stream, role="client", peer=f"the keeper of {mesh}")
                    await self._tasks.start(connection.run)
                    return connection
                except Unavailable:
                    pass
                if not spawned:
                    self._spawn_keeper(mesh, paths)
                    spawned = True
                elif self._index.mesh(mesh).state == "released":
                    raise _released(mesh)
                await anyio.sleep(_RETRY_S)
        raise Unavailable(
            "keeper_lost", f"the keeper of {mesh} does not start", f"Its log is {paths.keeper_log}."
        )

    def _spawn_keeper(self, mesh: str, paths: MeshPaths) -> None:
        env = {
            **os.environ,
            "MILKWEED_STATE_DIR": str(self._places.state),
            "MILKWEED_RUNTIME_DIR": str(self._places.runtime),
        }
        argv = [sys.executable, "-m", "milkweed.runtime.keeper", "--mesh", mesh]
        try:
            pid = spawn_daemon(argv, env=env, log=paths.keeper_log)
        except OSError as error:
            raise Unavailable("keeper_lost", f"the keeper of {mesh} cannot be started: {error}") from None
        self._tasks.start_soon(wait_gone, pid, start_time(pid) or 0)

    async def _watch(self, mesh: str, paths: MeshPaths, connection: Connection) -> None:
        """Starts the keeper again when it is gone and the mesh is not."""
        await connection.closed.wait()
        while self._connections.get(mesh) is connection:
            try:
                await self.keeper(mesh, paths)
            except MilkweedError as error:
                if isinstance(error, Conflict):
                    return
                logger.warning("%s", error)
                await anyio.sleep(_RESPAWN_S)


class Mesh:
    """One mesh, through its keeper."""

    def __init__(self, meshes: Meshes, mesh: str, paths: MeshPaths) -> None:
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
        """Where the keeper dies under a call, the call may have had its effect: an error, not repeated."""
        connection = await self._meshes.keeper(self.id, self._paths)
        try:
            return (
                await connection.actor(cls.__name__, cls).within(deadline_s).call_one(method, *args, **kwargs)
            )
        except Unavailable as error:
            if error.code != "connection_lost":
                raise
            if self._meshes.index.mesh(self.id).state == "released":
                raise _released(self.id) from None
            raise Unavailable(
                "keeper_lost",
                f"the keeper of {self.id} ended during the call",
                "It is started again; look, then repeat.",
            ) from None

    async def view(self) -> MeshView:
        try:
            return await self._call(MeshKeeper, MeshKeeper.view)
        except Conflict:
            return self._meshes.index.mesh(self.id)

    async def wait_ready(self, timeout_s: float) -> MeshView:
        """The view once all hosts are ready or one is lost, or when the time is up."""
        try:
            return await self._call_within(timeout_s + CALL_S, MeshKeeper, MeshKeeper.wait_ready, timeout_s)
        except Conflict:
            return self._meshes.index.mesh(self.id)

    async def events(self, limit: int = 20) -> tuple[MeshEvent, ...]:
        """The latest events, oldest first."""
        return self._meshes.index.events(self.id, limit)

    async def extend_lease(self, minutes: float) -> MeshView:
        return await self._call(MeshKeeper, MeshKeeper.extend_lease, minutes)

    async def release(self) -> Released:
        """Ends all that runs on the mesh and gives its hosts back; output stays on disk.

        Raises:
            Conflict: mesh_released, when it was already.
        """
        return await self._call(MeshKeeper, MeshKeeper.release)

    async def start_run(self, request: RunRequest) -> RunView:
        """
        Raises:
            InvalidArgument, NotFound, Conflict, Unavailable: nothing was started.
        """
        return await self._call(RunControl, RunControl.start, request)

    async def runs(self) -> tuple[RunView, ...]:
        """Newest first; of a released mesh too."""
        return self._meshes.index.runs(self.id)

    async def run(self, run: str) -> RunView:
        try:
            return await self._call(RunControl, RunControl.view, run)
        except Conflict:
            return self._meshes.index.run(run)

    async def wait_run(
        self,
        run: str,
        *,
        until: Literal["end", "output"] = "end",
        pattern: str | None = None,
        timeout_s: float,
    ) -> RunView:
        """The run when it is over, when it has printed (what matches `pattern`), or when the time is up."""
        try:
            return await self._call_within(
                timeout_s + CALL_S, RunControl, RunControl.wait, run, until, pattern, timeout_s
            )
        except Conflict:
            return self._meshes.index.run(run)

    async def cancel_run(self, run: str, *, grace_s: float = 2.0) -> RunView:
        """Ends a run: SIGTERM, then SIGKILL after the grace. A run that is over stays as it was."""
        try:
            return await self._call(RunControl, RunControl.cancel, run, grace_s)
        except Conflict:
            return self._meshes.index.run(run)

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
            return await self._call(
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
        return await self._call_within(
            timeout_s + CALL_S, Reader, Reader.stacks, run, ranks, native, locals, timeout_s
        )

    async def list_files(
        self, path: str, *, hosts: Sequence[int] | None = None, pattern: str | None = None, limit: int = 200
    ) -> dict[int, FileListing | MilkweedError]:
        """One listing or one error a host."""
        return await self._call(Reader, Reader.list_files, path, hosts, pattern, limit)

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
        return await self._call(Reader, Reader.read_file, path, host, offset, limit, tail, grep, max_bytes)

    async def file_digests(
        self, path: str, *, hosts: Sequence[int] | None = None
    ) -> dict[int, FileDigest | MilkweedError]:
        return await self._call(Reader, Reader.file_digests, path, hosts)

    async def file_chunk(self, path: str, *, host: int, offset: int, length: int) -> FileChunk:
        return await self._call(Reader, Reader.file_chunk, path, host, offset, length)

    async def fetch(
        self, path: str, *, hosts: Sequence[int] | None, destination: str, report: Report
    ) -> tuple[Fetched, ...]:
        """Copies a file or folder of each host to `destination/<host>/` on the client."""
        view = await self.view()
        chosen = [host.host for host in view.hosts] if hosts is None else hosts
        return await fetch(self, path, hosts=chosen, destination=destination, report=report)


def _released(mesh: str) -> Conflict:
    return Conflict("mesh_released", f"{mesh} was released", "Call allocate_mesh for a new one.")
