"""What the processes of one mesh know, and others do not: a file of the user's own.

It never crosses a network: processes prove to each other that they know it (`memory/protocol.py`). A process
knows that of the mesh that it was started on, and those of the meshes that it has attached to: a proof is
always of one mesh, which both ends name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

from .errors import Unavailable

__all__ = [
    "ADDRESS_VARIABLE",
    "MESH_VARIABLE",
    "NO_MESH",
    "SECRET_VARIABLE",
    "MeshSecrets",
    "make_secret",
    "mesh_secret",
]

ADDRESS_VARIABLE = "MILKWEED_HOST_ADDRESS"
"""The address of this host, as other hosts of the mesh see it."""
MESH_VARIABLE = "MILKWEED_MESH"
SECRET_VARIABLE = "MILKWEED_SECRET_FILE"
"""The file with the secret of the mesh; a process without it is of none."""
NO_MESH = ""
"""What processes of no mesh call it: its secret is empty, and their sockets are for their user alone."""

_LEAST_BYTES = 16


def make_secret(path: Path) -> Path:
    """Writes a new secret there, unless there is one.

    Raises:
        OSError: it cannot be written.
    """
    if not path.exists():
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(token_hex(32))
        fresh.rename(path)
    return path


def mesh_secret(env: Mapping[str, str] = os.environ) -> bytes:
    """That of this process's mesh; empty where it is of none.

    Raises:
        Unavailable: directory_unusable, it cannot be read, or has none.
    """
    path = env.get(SECRET_VARIABLE)
    return _read(Path(path)) if path else b""


def _read(path: Path) -> bytes:
    try:
        found = path.read_bytes().strip()
    except OSError as error:
        raise Unavailable(
            "directory_unusable", f"cannot read {path}: {error.strerror}", "Look at who removed it."
        ) from None
    if len(found) < _LEAST_BYTES:  # an empty one is what processes of no mesh have
        raise Unavailable("directory_unusable", f"{path} has no secret in it", "Look at who wrote to it.")
    return found


class MeshSecrets:
    """Those that this process knows, by mesh; any thread. One a node (`of_process`)."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        """
        Raises:
            Unavailable: directory_unusable, that of this process's own mesh cannot be read.
        """
        own = env.get(MESH_VARIABLE, NO_MESH) if env.get(SECRET_VARIABLE) else NO_MESH
        self._lock = threading.Lock()
        self._known = {own: mesh_secret(env)}
        self._files: dict[str, Path] = {}

    @classmethod
    def of_process(cls, _node: object) -> MeshSecrets:
        """As `Node.part` makes it."""
        return cls()

    def learn(self, mesh: str, file: Path) -> None:
        """From now on this process knows that one too; the file is read when it is first needed."""
        with self._lock:
            if mesh not in self._known:
                self._files[mesh] = file

    @property
    def names(self) -> tuple[str, ...]:
        """The meshes whose secret is known, `NO_MESH` last."""
        with self._lock:
            return tuple(sorted({*self._known, *self._files}, reverse=True))

    def of(self, mesh: str) -> bytes | None:
        """None where it is not known.

        Raises:
            Unavailable: directory_unusable, it cannot be read.
        """
        with self._lock:
            if mesh not in self._known and mesh in self._files:
                self._known[mesh] = _read(self._files[mesh])
            return self._known.get(mesh)
