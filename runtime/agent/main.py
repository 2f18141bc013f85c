"""The host agent: starts, watches and ends everything on one host.

It ends with all it started when it is told to, when the lease is over, and when its guard is gone. Whoever
follows it may come and go meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import anyio

from ..call import serve
from ..codec import from_json
from ..records import EndReason
from ..services.devices import Devices
from ..services.evidence import Evidence
from ..services.files import Files
from ..services.fitness import Fitness
from ..services.held_files import HeldFiles
from ..services.host import Host
from ..services.live_files import LiveFiles
from ..services.mounts import Mounts
from ..services.procs import Procs
from ..services.profiling import Profiling
from ..services.replicas import Replicas
from ..services.runs import Runs
from ..services.stacks import Stacks
from ..services.watching import Watching
from .children import open_children
from .config import AgentConfig
from .context import HostContext
from .forked import ForkedStarter
from .lease import LeaseHolder
from .parent import watch_guard
from .spool import Spool
from .warm_modules import modules_of_procs, modules_of_runs

__all__ = ["run_agent", "told_place"]

logger = logging.getLogger(__name__)

END_GRACE_S = 2.0


async def run_agent(config_file: Path, forked: ForkedStarter | None = None) -> None:
    """Serves one host until it ends; `forked` starts its procs."""
    config = from_json(AgentConfig, json.loads(config_file.read_text()))
    directory = Path(config.directory)
    name, life = told_place(config.name, os.environ)
    lease = LeaseHolder(directory / (f"lease-{life}.json" if life else "lease.json"), config.lease_s)
    spool = Spool(directory / "spool.jsonl")
    async with open_children() as children:
        context = HostContext(
            mesh=config.mesh,
            host=config.host,
            name=name,
            address=config.address,
            directory=directory,
            workspace=config.workspace,
            children=children,
            spool=spool,
            secret_file=config.secret_file,
            is_signalled_as_one=not config.name,
        )
        context.temporary.mkdir(mode=0o700, exist_ok=True)
        async with (
            Runs.open(context, warm_modules=modules_of_runs(os.environ)) as runs,
            Replicas.open(context, runs) as replicas,
            Procs.open(
                context, Path(config.socket), modules=modules_of_procs(os.environ), forked=forked
            ) as procs,
            Mounts.open(context) as mounts,
            Watching.open(context, runs, stacks := Stacks(context, runs, procs), config.watch) as watching,
            Devices.open(context) as devices,
        ):
            host = Host(context, lease, replicas, procs, last=mounts)
            evidence = Evidence(context, runs, stacks, devices, watching.stands_still)
            runs.be_watched(evidence)
            others = (
                Files(context),
                HeldFiles(context),
                LiveFiles(context),
                stacks,
                evidence,
                watching,
                Fitness(context),
                Profiling(context, runs),
            )
            services = (host, runs, replicas, procs, mounts, devices, *others)
            actors = {type(actor).__name__: actor for actor in services}
            async with anyio.create_task_group() as group:

                async def end_when(why: EndReason, happened: Callable[[], Awaitable[None]]) -> None:
                    await happened()
                    logger.info("ending: %s", why)
                    await host.end(why, END_GRACE_S, spool.seq)

                group.start_soon(end_when, "lease_ended", lease.expired)
                group.start_soon(end_when, "host_ended", watch_guard)
                group.start_soon(end_when, "host_ended", _terminated)
                if config.life_fd is not None:
                    group.start_soon(end_when, "released", partial(anyio.wait_readable, config.life_fd))
                await serve(Path(config.socket), actors, role="agent", stop=host.ending)
                group.cancel_scope.cancel()
    spool.close()


def told_place(name: str, environ: Mapping[str, str]) -> tuple[str, int]:
    """The host's name, and how often it was started before: a host that its scheduler gives again has a lease
    of its own. Where the name was not known beforehand, the scheduler tells both in the environment.
    """
    if name:
        return name, 0
    return environ.get("MILKWEED_HOST_NAME", socket.gethostname()), int(
        environ.get("MILKWEED_HOST_LIFE", "0")
    )


async def _terminated() -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            return
