"""A user's meshes: allocated, found, listed; and their keepers, started and started again."""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.abc
import anyio.to_thread

from .. import engines, schedulers
from ..call import Session, connect
from ..daemon import spawn_daemon
from ..errors import Conflict, MilkweedError, NotFound, Unavailable
from ..index import Index, Plan, short_id
from ..paths import MeshPaths, Places
from ..pulse import Glance
from ..records import MeshSpec, MeshView, RunView
from ..retention import forget_old
from ..schedulers import AllocationPlan, SchedulerView
from ..schedulers.processes import start_time, wait_gone
from ..tasks import background_tasks
from ..tree_places import check_place, has_own_mounts
from .mesh import Mesh, mesh_released, why_silent
from .profile_files import ProfileFile, find_profile, list_profiles

__all__ = ["Meshes", "open_meshes"]

logger = logging.getLogger(__name__)

KEEPER_START_S = 10.0
_LIST_S = 5.0
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


async def _describe(name: str) -> SchedulerView:
    try:
        return await schedulers.find(name).capacity()
    except MilkweedError as error:
        return SchedulerView(name, available=False, reason=str(error))


class Meshes:
    """See `open_meshes`."""

    def __init__(self, places: Places, index: Index, tasks: anyio.abc.TaskGroup) -> None:
        self._places = places
        self._index = index
        self._tasks = tasks
        self._unwritten: dict[str, Plan] = {}
        self._connections: dict[str, Session] = {}
        self._connecting: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def allocate(self, spec: MeshSpec, *, wait_s: float = 30.0) -> Mesh:
        """The mesh of that name: a live one if it was asked for in the same words, else a new one.

        Returns when all hosts are ready, when they are waited for in a queue, or when `wait_s` is up (the
        mesh's state then says so).

        Raises:
            Conflict: name_in_use. InvalidArgument: the scheduler cannot give that.
            Unavailable: allocation_failed, with the reason; nothing is left running then.
        """
        await self._plan(spec)  # refused before anything is claimed
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

    async def plan(self, spec: MeshSpec) -> AllocationPlan:
        """Refuses what `allocate` would refuse, without an effect; says what would be asked for.

        Raises:
            InvalidArgument, Unavailable: what the scheduler cannot give. Conflict: name_in_use.
        """
        plan = await self._plan(spec)
        self._index.check_claim(spec)
        return plan

    async def _plan(self, spec: MeshSpec) -> AllocationPlan:
        if has_own_mounts(spec) and spec.workspace_mode in ("mount", "copy"):
            check_place(spec.workspace, (str(self._places.state), str(self._places.runtime)))
        mesh = f"mesh-{spec.name}-xxxxxx"
        plan = await schedulers.find(spec.scheduler).plan(mesh, spec, self._places.mesh(mesh))
        engines.find(spec.engine).check(plan)
        return plan

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

    async def find_job(self, job: str) -> Mesh:
        """The mesh that a replica job belongs to.

        Raises:
            NotFound: job_not_found.
        """
        return await self.get(self._index.job(job).mesh)

    async def find_mount(self, mount: str) -> Mesh:
        """The mesh that a mount belongs to.

        Raises:
            NotFound: mount_not_found.
        """
        return await self.get(self._index.mesh_of_mount(mount))

    async def list(self, *, released: bool = False) -> tuple[MeshView, ...]:
        """All live meshes, oldest first; with `released` the released ones too, as the index has them. One
        whose keeper does not answer soon is told as the index has it, with a warning.
        """
        found: dict[str, MeshView] = {}

        async def ask(view: MeshView) -> None:
            paths = self._places.mesh(view.mesh)
            try:
                with anyio.fail_after(_LIST_S):
                    found[view.mesh] = await Mesh(self, view.mesh, paths).view()
            except TimeoutError:
                error: MilkweedError = Unavailable("keeper_lost", *why_silent(view.mesh, paths))
                found[view.mesh] = replace(view, warnings=(str(error),))
            except MilkweedError as why:
                found[view.mesh] = replace(view, warnings=(str(why),))

        views = self._index.meshes(released=released)
        async with anyio.create_task_group() as group:
            for view in views:
                if view.state != "released":
                    group.start_soon(ask, view)
        answers = [found.get(view.mesh, view) for view in views]
        return tuple(view for view in answers if released or view.state != "released")

    def known(self, *, released: bool = False) -> tuple[MeshView, ...]:
        """As `list`, but as the index has them: no keeper is asked."""
        return self._index.meshes(released=released)

    def known_runs(self, mesh: str, most: int) -> tuple[RunView, ...]:
        """The latest runs of a mesh, newest first, as the index has them."""
        return self._index.runs(mesh, limit=most)

    def version(self) -> tuple[int, int]:
        """Another one after every change of what is known here; cheap."""
        return self._index.version()

    def glance(self) -> Glance:
        return self._index.glance()

    def add_plan(self, call: str, state: str, expires_at: float) -> Plan:
        """`Index.add_plan`; remembered here where the disk is full, so that a release can make room."""
        try:
            return self._index.add_plan(call, state, expires_at)
        except Unavailable as error:
            if error.code != "index_unusable":
                raise
        plan = Plan(f"plan-{short_id(6)}", call, state, expires_at)
        live = {name: one for name, one in self._unwritten.items() if one.expires_at >= time.time()}
        self._unwritten = live | {plan.plan: plan}
        return plan

    def take_plan(self, plan: str) -> Plan | None:
        """`Index.take_plan`; None also where the index cannot say so."""
        if (known := self._unwritten.pop(plan, None)) is not None:
            return known if known.expires_at >= time.time() else None
        try:
            return self._index.take_plan(plan)
        except Unavailable as error:
            if error.code != "index_unusable":
                raise
            return None

    async def profiles(self, most: int) -> tuple[ProfileFile, ...]:
        """The latest files of profiles, of released meshes too; the newest first."""
        views = self._index.meshes(released=True)
        directories = [(view.mesh, self._places.mesh(view.mesh).profiles) for view in views]
        return await anyio.to_thread.run_sync(list_profiles, directories, most)

    async def find_profile(self, mesh: str, name: str) -> ProfileFile | None:
        """A file of a profile by the mesh's id and its name."""
        try:
            view = self._index.mesh(mesh)
        except NotFound:
            return None
        directory = self._places.mesh(view.mesh).profiles
        return await anyio.to_thread.run_sync(find_profile, view.mesh, directory, name)

    async def schedulers(self) -> tuple[SchedulerView, ...]:
        return tuple([await _describe(name) for name in schedulers.names()])

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
        await anyio.to_thread.run_sync(forget_old, [self._places.mesh(mesh) for mesh in released])

    # Used by Mesh.

    @property
    def index(self) -> Index:
        return self._index

    async def keeper(self, mesh: str, paths: MeshPaths) -> Session:
        """A connection to the mesh's keeper, which is started where there is none.

        Raises:
            Conflict: mesh_released. Unavailable: keeper_lost.
        """
        async with self._connecting[mesh]:
            connection = self._connections.get(mesh)
            if connection is not None and not connection.closed.is_set():
                return connection
            if (view := self._index.mesh(mesh)).state == "released":
                raise mesh_released(view)
            connection = await self._connect(mesh, paths)
            self._connections[mesh] = connection
            self._tasks.start_soon(self._watch, mesh, paths, connection)
            return connection

    async def _connect(self, mesh: str, paths: MeshPaths) -> Session:
        spawned: tuple[int, int | None] | None = None
        with anyio.move_on_after(KEEPER_START_S):
            while True:
                try:
                    sock = await connect(paths.keeper_socket, f"the keeper of {mesh}")
                    connection = Session(sock, role="client", peer=f"the keeper of {mesh}")
                    await self._tasks.start(connection.run)
                    return connection
                except Unavailable:
                    pass
                if spawned is None:
                    spawned = self._spawn_keeper(mesh, paths)
                elif (view := self._index.mesh(mesh)).state == "released":
                    raise mesh_released(view)
                elif start_time(spawned[0]) != spawned[1]:
                    # It ended: killed, or since another one holds the lock, which then answers soon.
                    await anyio.sleep(_RESPAWN_S)
                    spawned = None
                await anyio.sleep(_RETRY_S)
        raise Unavailable("keeper_lost", *why_silent(mesh, paths))

    def _spawn_keeper(self, mesh: str, paths: MeshPaths) -> tuple[int, int | None]:
        env = {
            **os.environ,
            "MILKWEED_STATE_DIR": str(self._places.state),
            "MILKWEED_RUNTIME_DIR": str(self._places.runtime),
            "MILKWEED_DATA_DIR": str(self._places.data or self._places.state / "data"),
        }
        argv = [sys.executable, "-m", "milkweed.runtime.keeper", "--mesh", mesh]
        try:
            pid = spawn_daemon(argv, env=env, log=paths.keeper_log)
        except OSError as error:
            raise Unavailable(
                "keeper_lost", f"the keeper of {mesh} cannot be started: {error}", "See milkweed doctor."
            ) from None
        started = start_time(pid)
        self._tasks.start_soon(wait_gone, pid, started or 0)
        return pid, started

    async def _watch(self, mesh: str, paths: MeshPaths, connection: Session) -> None:
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
