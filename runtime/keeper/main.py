"""The keeper process: one a mesh, held by a lock; it serves until the mesh is released."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from ..call import serve
from ..index import Index
from ..paths import Places
from .checks import Checks
from .controllers import Controllers
from .gathers import Gathers
from .holding_control import HoldingControl
from .hosts import Hosts
from .jobbook import JobBook
from .journal import Journal
from .mesh_keeper import MeshKeeper
from .mount_control import MountControl
from .reader import Reader
from .replica_control import ReplicaControl
from .run_control import RunControl
from .runbook import RunBook
from .trees import Trees

__all__ = ["run_keeper"]

logger = logging.getLogger(__name__)


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Holds the keeper's lock, which names our pid; False when another keeper has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            os.truncate(fd, 0)
            os.write(fd, str(os.getpid()).encode())
            yield True
    finally:
        os.close(fd)


async def run_keeper(mesh: str) -> None:
    """Serves one mesh until it is released; returns at once when it was, or when another keeper serves it."""
    places = Places.from_environment()
    paths = places.mesh(mesh)
    index = Index(places.index)
    with only_one(paths.lock) as first:
        view = index.mesh(mesh)
        if not first or view.state == "released":
            return
        paths.sockets.mkdir(mode=0o700, exist_ok=True)
        hosts = Hosts()
        journal = Journal()
        runs = RunBook(mesh, index, journal)
        jobs = JobBook(mesh, index, journal, runs)
        trees = Trees(mesh, view.spec, paths, index, journal, hosts)
        gathers = Gathers(view, paths, index, journal, hosts)
        holdings = HoldingControl(mesh, view.spec, paths, index, hosts, trees)
        keeper = MeshKeeper(view, paths, index, journal, hosts, runs, jobs, trees, gathers, holdings)
        control = RunControl(keeper, paths, index, hosts, runs, trees)
        replicas = ReplicaControl(keeper, index, hosts, jobs, runs, control)
        controllers = Controllers(keeper, runs)
        reader = Reader(paths, hosts, runs, controllers)
        checks = Checks(keeper, paths, hosts)
        mounts = MountControl(keeper, hosts, trees, gathers, runs)
        services = (keeper, control, replicas, controllers, reader, checks, mounts, holdings)
        actors = {type(actor).__name__: actor for actor in services}
        logger.info("keeping %s", mesh)
        async with anyio.create_task_group() as group:
            group.start_soon(_end_on_sigterm, group.cancel_scope)
            group.start_soon(control.end_peers)
            group.start_soon(control.resume_cancels)
            group.start_soon(replicas.resume_stops)
            group.start_soon(trees.run)
            group.start_soon(gathers.run)
            group.start_soon(keeper.run)
            group.start_soon(control.prepare_hosts)
            await serve(paths.keeper_socket, actors, role="keeper", stop=keeper.released)
            group.cancel_scope.cancel()
        if keeper.released.is_set():
            keeper.clean_up()
            logger.info("%s was released", mesh)


async def _end_on_sigterm(scope: anyio.CancelScope) -> None:
    # The keeper alone ends: hosts and runs go on until the release or the lease.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
