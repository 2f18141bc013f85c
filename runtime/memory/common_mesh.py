"""By which mesh's secret two processes know each other."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Unavailable
from ..mesh_secret import NO_MESH, MeshSecrets
from .handle import Owner
from .providers import Unreachable

__all__ = ["common_mesh"]


def common_mesh(owner: Owner, secrets: MeshSecrets) -> tuple[str, bytes]:
    """A mesh that both are of, or attached to, and its secret.

    Raises:
        Unreachable: there is none, as far as we know now.
    """
    try:
        for mesh in owner.meshes:
            if (secret := secrets.of(mesh)) is not None:
                return mesh, secret
    except Unavailable as error:
        raise Unreachable(str(error), lasting=False) from None
    raise Unreachable(_strangers(owner.meshes, secrets.names), lasting=False)


def _strangers(theirs: Sequence[str], ours: Sequence[str]) -> str:
    named = [mesh for mesh in theirs if mesh != NO_MESH]
    if named:
        return f"it takes the secret of {' or '.join(named)}: attach({named[0]!r}) lets this process know it"
    return f"its owner is of no mesh, and does not know the secret of {' or '.join(ours)}"
