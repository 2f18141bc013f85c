"""What the processes of one mesh know, and others do not: a file of the user's own.

It never crosses a network: processes prove to each other that they know it (`memory/protocol.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

from .errors import Unavailable

__all__ = ["ADDRESS_VARIABLE", "SECRET_VARIABLE", "make_secret", "mesh_secret"]

ADDRESS_VARIABLE = "MILKWEED_HOST_ADDRESS"
"""The address of this host, as other hosts of the mesh see it."""
SECRET_VARIABLE = "MILKWEED_SECRET_FILE"
"""The file with the secret of the mesh; a process without it is of none."""


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
        Unavailable: directory_unusable, it cannot be read.
    """
    path = env.get(SECRET_VARIABLE)
    if not path:
        return b""
    try:
        return Path(path).read_bytes().strip()
    except OSError as error:
        raise Unavailable(
            "directory_unusable", f"cannot read {path}: {error.strerror}", "Look at who removed it."
        ) from None
