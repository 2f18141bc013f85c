"""Where a program can spawn: its own host, the host of its proc, the hosts of a mesh."""

from __future__ import annotations

import json
import os

from ..errors import NotFound
from ..extent import Extent
from ..node import node
from ..proc.main import place
from ..region import Region
from .crew import HostRef
from .host_mesh import HostMesh
from .owner import owner
from .private_host import PrivateHost

__all__ = ["ATTACH", "attach", "this_host"]

ATTACH = "MILKWEED_ATTACH"
"""JSON: {"mesh": id, "hosts": [{"name": ..., "socket": ...}]}, set for the programs of run_controller."""


def this_host() -> HostMesh:
    """The host that this process is on, as a mesh of one, without a dimension.

    In a proc, the host that started it. In a program that was started in another way, a host of its own on
    this machine, which is started now and ends with the program.

    Raises:
        Unavailable: allocation_failed.
    """
    if (here := place()) is not None:
        return _only(HostRef(here.host_name, here.host_socket))
    own = node().part(PrivateHost, PrivateHost)
    if not own.alive or owner().has_lost(own.ref.socket):
        own.close()
        own = node().replace_part(PrivateHost, PrivateHost)
    return _only(own.ref)


def _only(host: HostRef) -> HostMesh:
    return HostMesh(Region.of(Extent()), (host,))


def attach() -> HostMesh:
    """The hosts of the mesh that this program was started on by `run_controller`: dimension `hosts`.

    Raises:
        NotFound: not_attached, it was started in another way.
    """
    text = os.environ.get(ATTACH)
    if text is None:
        raise NotFound(
            "not_attached",
            "this program was not started on a mesh",
            "Start it with run_controller, or use this_host().",
        )
    hosts = [HostRef(one["name"], one["socket"]) for one in json.loads(text)["hosts"]]
    return HostMesh(Region.of(Extent(hosts=len(hosts))), hosts)
