"""Where a program can spawn: its own host, the host of its proc, the hosts of a mesh."""

from __future__ import annotations

import os
from pathlib import Path

from ..attach_records import ATTACH_VARIABLE, AttachedHost, AttachPlace, decode_attach_place
from ..errors import Conflict, NotFound
from ..extent import Extent
from ..mesh_secret import MeshSecrets
from ..node import node
from ..proc.main import place
from ..region import Region
from .attachment import Attachments
from .host_links import host_links
from .host_mesh import HostMesh
from .members import HostRef
from .private_host import PrivateHost

__all__ = ["attach", "this_host"]


def this_host() -> HostMesh:
    """The host that this process is on, as a mesh of one, without a dimension.

    In a proc, the host that started it; in a program of `run_controller`, the host of the mesh that it runs
    on. In a program that was started in another way, a host of its own on this machine, which is started now
    and ends with the program.

    Raises:
        Unavailable: allocation_failed.
    """
    if (here := place()) is not None:
        return _only(HostRef(here.host_name, here.host_socket))
    if (mesh := _own_mesh()) is not None and mesh.here is not None:
        return attach().slice(hosts=mesh.here)
    own = node().part(PrivateHost, PrivateHost)
    if not own.alive or host_links().has_lost(own.ref.socket):
        own.close()
        own = node().replace_part(PrivateHost, PrivateHost)
    return _only(own.ref)


def _only(host: HostRef) -> HostMesh:
    return HostMesh(Region.of(Extent()), (host,))


def attach(mesh: str | None = None) -> HostMesh:
    """The hosts of a mesh, with the dimension `hosts`; those that are lost keep their place.

    Without a name, of the mesh that this program was started on by `run_controller`; with one, of that live
    mesh of this user. What is spawned there ends with this program, at the latest. A failure that nobody in
    it handles ends nothing: it is an event of the mesh, which is degraded until this program ends.

    Args:
        mesh: id or name.

    Raises:
        NotFound: not_attached, it was started in another way; mesh_not_found.
        Conflict: mesh_not_ready, mesh_released.
    """
    own = _own_mesh()
    if mesh is None and own is None:
        raise NotFound(
            "not_attached",
            "this program was not started on a mesh",
            "Start it with run_controller, name a mesh, or use this_host().",
        )
    found = own if own is not None and (mesh is None or _is_called(own, mesh)) else _look_up(str(mesh))
    node().part(Attachments, Attachments).add(found)
    if found.secret_file:
        node().part(MeshSecrets, MeshSecrets.of_process).learn(found.mesh, Path(found.secret_file))
    hosts = [HostRef(one.name, one.socket) for one in found.hosts]
    return HostMesh(Region.of(Extent(hosts=len(hosts))), hosts)


def _own_mesh() -> AttachPlace | None:
    text = os.environ.get(ATTACH_VARIABLE)
    return None if text is None else decode_attach_place(text)


def _is_called(place_: AttachPlace, mesh: str) -> bool:
    return mesh in (place_.mesh, place_.mesh.removeprefix("mesh-").rpartition("-")[0])


def _look_up(mesh: str) -> AttachPlace:
    from ..index import Index
    from ..paths import Places

    places = Places.from_environment()
    index = Index(places.index)
    try:
        view = index.mesh(mesh)
    except NotFound as error:
        # Unlike a client this program was started by hand, perhaps without the variables of the server.
        raise NotFound(
            "mesh_not_found",
            f"{error.cause} (in {places.state})",
            "Name one that lives, or set MILKWEED_STATE_DIR as the server that allocated it has it.",
        ) from None
    finally:
        index.close()
    if view.state == "released":
        raise Conflict("mesh_released", view.how_it_ended, "Call allocate_mesh for a new one.")
    if view.state in ("queued", "starting"):
        raise Conflict("mesh_not_ready", f"the hosts of {view.mesh} are starting", "Attach in a moment.")
    paths = places.mesh(view.mesh)
    hosts = tuple(AttachedHost(one.name, str(paths.host_socket(one.host))) for one in view.hosts)
    if not any(os.path.exists(host.socket) for host in hosts):
        raise NotFound(
            "mesh_not_found",
            f"no host of {view.mesh} has a socket in {places.runtime}",
            "Set MILKWEED_RUNTIME_DIR as the server has it; mesh_status tells whether its hosts live.",
        )
    return AttachPlace(view.mesh, str(paths.keeper_socket), hosts, secret_file=str(paths.secret))
