"""Hosts, on which procs are spawned."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from secrets import token_hex
from typing import Literal

from ..errors import InvalidArgument
from ..extent import Extent, Point
from ..node import Future, node
from ..proc.context import current_instance
from ..proc.main import place
from ..proc_records import LARGE_MODULES, ProcSpec, SpawnProcs
from ..region import Region
from ..supervision import Restart
from .crew import Crew
from .following import print_line
from .host_links import host_links
from .members import HostRef, Member
from .proc_mesh import ProcMesh
from .shaped import Shaped

__all__ = ["HostMesh"]

Environment = Mapping[str, str] | Callable[[Point], Mapping[str, str]]


class HostMesh(Shaped):
    """Made by `this_host` and `attach`. A handle: it owns nothing."""

    def __init__(self, region: Region, hosts: Sequence[HostRef]) -> None:
        self._region = region
        self._hosts = tuple(hosts)

    @property
    def region(self) -> Region:
        return self._region

    @property
    def hosts(self) -> tuple[HostRef, ...]:
        """The hosts held, in the order of the dimensions."""
        return tuple(self._hosts[rank] for rank in self.ranks)

    def _over(self, region: Region) -> HostMesh:
        return HostMesh(region, self._hosts)

    def spawn_procs(
        self,
        per_host: Mapping[str, int] | None = None,
        *,
        name: str = "procs",
        env: Environment | None = None,
        restart: Restart | None = None,
        warm: bool = True,
        output: Literal["print", "keep"] | Callable[[int, str], None] = "print",
    ) -> Future[ProcMesh]:
        """Procs on every host held: `per_host={"gpus": 8}` gives the mesh a dimension `gpus` of 8 more.

        They are owned by this process, and by the actor that runs here if one does, whose `__supervise__`
        hears of their failures.

        Args:
            name: of the mesh; its procs are called after it.
            env: variables laid over those of the host, or what gives them for each point.
            restart: starts procs again that fail; None: a death is told, and the others go on.
            warm: whether they may be forked with what the host has imported already.
            output: `print` passes on what procs print, as `[name rank] line`; `keep` leaves it in their
                files; a function gets (rank, line), on the node's thread.

        Raises:
            InvalidArgument: dimensions that are none, or that the hosts have already.
            MilkweedError: they cannot be started; then none are left.
        """
        extent = self._with(per_host or {})
        region = Region.of(extent)
        each = extent.size // len(self)
        token = token_hex(3)
        hosts = self.hosts
        members = [
            Member(
                rank, hosts[rank // each], ProcSpec(f"{name}-{token}-{rank}", _variables(env, region, rank))
            )
            for rank in range(extent.size)
        ]
        here = node()
        path = tuple(map(os.path.abspath, sys.path))
        request = SpawnProcs(here.id, (), sys.executable, os.getcwd(), path, warm, _own_run(), _imported())
        supervise = getattr(current_instance(), "__supervise__", None)
        on_line = partial(print_line, name) if output == "print" else None if output == "keep" else output

        async def spawn() -> ProcMesh:
            crew = Crew(here, host_links(), name, region, members, request, restart, supervise, on_line)
            await crew.spawn()
            return ProcMesh(crew, region)

        return here.start(spawn())

    def _with(self, per_host: Mapping[str, int]) -> Extent:
        both = sorted(set(per_host) & set(self.sizes))
        if both:
            raise InvalidArgument(
                "invalid_argument", f"the hosts have a dimension {both[0]!r} already", "Name it otherwise."
            )
        return Extent(**self.sizes, **per_host)

    def __repr__(self) -> str:
        return f"HostMesh({self._region.described()}: {', '.join(host.name for host in self.hosts[:8])})"


def _own_run() -> str:
    """The run that this process is of, or the proc's owner; empty where there is none."""
    own = place()
    return os.environ.get("MILKWEED_RUN", "") if own is None else own.run


def _imported() -> Mapping[str, str]:
    """The large modules that this process has imported, with their files: procs will need them too."""
    modules = {name: sys.modules.get(name) for name in LARGE_MODULES}
    return {name: file for name, module in modules.items() if (file := getattr(module, "__file__", None))}


def _variables(env: Environment | None, region: Region, rank: int) -> Mapping[str, str]:
    if env is None:
        return {}
    return dict(env(region.point(rank)) if callable(env) else env)
