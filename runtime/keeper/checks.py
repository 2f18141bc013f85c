"""Checks of one mesh, on the hosts that answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..actor import Actor, endpoint
from ..checking import HostCheck, MeshCheck
from ..paths import MeshPaths
from .hosts import Hosts
from .links import HostLink
from .mesh_keeper import MeshKeeper

if TYPE_CHECKING:
    from ..checking.checking import Checking

__all__ = ["Checks"]


class Checks(Actor):
    def __init__(self, keeper: MeshKeeper, paths: MeshPaths, hosts: Hosts) -> None:
        self._keeper = keeper
        self._paths = paths
        self._hosts = hosts
        self._checking: Checking | None = None

    @endpoint
    async def check(self, hosts: Sequence[int] | None) -> MeshCheck:
        """What the hosts (None: all) have, and how fast memory moves within and between them.

        It takes at most forty seconds.

        Of a host that does not answer, or is lost meanwhile, that is said.

        Raises:
            NotFound: host_not_found. Conflict: mesh_not_ready, mesh_released.
        """
        from ..checking.checking import Checking
        from ..meshes.members import HostRef

        self._keeper.require_live()
        if self._checking is None:
            self._checking = Checking()
        links = [self._hosts[host] for host in (sorted(self._hosts.links) if hosts is None else hosts)]
        places = {
            link.host: HostRef(link.view().name, str(self._paths.host_socket(link.host)))
            for link in links
            if link.state == "ready"
        }
        found, measured = await self._checking.check(places)
        return MeshCheck(tuple(_at_the_end(link, found.get(link.host)) for link in links), measured)


def _at_the_end(link: HostLink, found: HostCheck | None) -> HostCheck:
    """What was found of a host, with what the keeper knows now: it knows best why a host is gone."""
    check = found or HostCheck(link.host, error="it came back during the check")
    if link.state == "ready":
        return check
    return replace(check, error=link.reason or link.state, state=link.state)
