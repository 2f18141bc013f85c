"""Where Milkweed keeps things on a machine.

The state directory (index, meshes, output) is `$MILKWEED_STATE_DIR`, else `$XDG_STATE_HOME/milkweed`, else
`~/.local/state/milkweed`. The runtime directory (sockets) is `$MILKWEED_RUNTIME_DIR`, else
`/tmp/milkweed-UID`; it is 0700 and ours, since its sockets carry commands. `$XDG_RUNTIME_DIR` is not used: it
goes when the user's last login ends, while hosts and runs go on, and a server that was started without it
would look elsewhere.

A socket path has at most 107 bytes on Linux, so names in it are short.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from .errors import Unavailable

__all__ = ["SOCKET_PATH_MAX", "MeshPaths", "Places", "proc_sockets"]

SOCKET_PATH_MAX = 107


@dataclass(frozen=True, slots=True)
class MeshPaths:
    """Files of one mesh. `sockets` is in the runtime directory, the rest in the state directory."""

    root: Path
    sockets: Path

    @property
    def record(self) -> Path:
        return self.root / "mesh.json"

    @property
    def secret(self) -> Path:
        return self.root / "secret"

    @property
    def lock(self) -> Path:
        return self.root / "keeper.lock"

    @property
    def keeper_log(self) -> Path:
        return self.root / "keeper.log"

    @property
    def keeper_socket(self) -> Path:
        return self.sockets / "k"

    @property
    def workspace_versions(self) -> Path:
        return self.root / "workspace-versions"

    @property
    def workspace_socket(self) -> Path:
        """Where the keeper feeds the workspace to hosts."""
        return self.sockets / "w"

    def tree_socket(self, host: int) -> Path:
        """Where a host offers what it has of the workspace to others."""
        return self.sockets / f"w{host}"

    def host(self, host: int) -> Path:
        return self.root / "hosts" / str(host)

    def host_socket(self, host: int) -> Path:
        return self.sockets / f"h{host}"


def proc_sockets(host_socket: Path, number: int) -> tuple[Path, Path]:
    """Sockets for messages and for control of the host's proc of that number (of all that it ever starts)."""
    return Path(f"{host_socket}.{number}"), Path(f"{host_socket}.{number}c")


@dataclass(frozen=True, slots=True)
class Places:
    """The two directories of one user on one machine."""

    state: Path
    runtime: Path

    @classmethod
    def from_environment(cls) -> Places:
        """Resolves both directories and creates them, private to the user.

        Raises:
            Unavailable: a directory cannot be made, belongs to somebody else, or is open to others.
        """
        env = os.environ
        home_state = Path(env.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        state = Path(env.get("MILKWEED_STATE_DIR") or home_state / "milkweed")
        runtime = Path(env.get("MILKWEED_RUNTIME_DIR") or f"/tmp/milkweed-{os.getuid()}")
        return cls(_private_directory(state), _private_directory(runtime))

    @property
    def index(self) -> Path:
        return self.state / "index.sqlite"

    @property
    def server_log(self) -> Path:
        return self.state / "server.log"

    def mesh(self, mesh: str) -> MeshPaths:
        """Paths of a mesh; its socket directory is named by the last part of the id, to stay short.

        Raises:
            Unavailable: the runtime directory's path is too long for a socket.
        """
        paths = MeshPaths(self.state / "meshes" / mesh, self.runtime / mesh.removeprefix("mesh-"))
        longest = len(os.fsencode(proc_sockets(paths.host_socket(9999), 9_999_999)[1]))
        if longest > SOCKET_PATH_MAX:
            raise Unavailable(
                "directory_unusable",
                f"the runtime directory {self.runtime} is too long: a socket in it would have {longest}"
                f" bytes, Linux allows {SOCKET_PATH_MAX}",
                "Set MILKWEED_RUNTIME_DIR to a short directory.",
            )
        return paths


def _private_directory(path: Path) -> Path:
    path = Path(os.path.abspath(path))
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise Unavailable(
            "directory_unusable",
            f"cannot make {path}: {error.strerror}",
            "Set MILKWEED_STATE_DIR and MILKWEED_RUNTIME_DIR.",
        ) from None
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Unavailable(
            "directory_unusable",
            f"{path} must be a directory of this user with mode 0700",
            f"Run: chmod 700 {path}, or name another directory in the environment.",
        )
    return path
