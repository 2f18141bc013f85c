"""Where Milkweed keeps things on a machine.

The state directory (index, meshes, output of live ones) is `$MILKWEED_STATE_DIR`, else
`$XDG_STATE_HOME/milkweed`, else `~/.local/state/milkweed`. The runtime directory (sockets) is
`$MILKWEED_RUNTIME_DIR`, else `/tmp/milkweed-UID`; it is 0700 and ours, since its sockets carry commands.
`$XDG_RUNTIME_DIR` is not used: it goes when the user's last login ends, while hosts and runs go on, and a
server that was started without it would look elsewhere.

What outlives a mesh (output of its runs, files that were to be kept) is in the data directory:
`$MILKWEED_DATA_DIR`, else `data` in `$MILKWEED_STATE_DIR` where that is set, else `$XDG_DATA_HOME/milkweed`,
else `~/.local/share/milkweed`. It is made when there is something to keep. Files that were to be kept are
never forgotten; output is (`retention.py`).

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
    """Files of one mesh. `sockets` is in the runtime directory, `kept` in the data directory, the rest in the
    state directory.
    """

    root: Path
    sockets: Path
    kept: Path

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
    def output(self) -> Path:
        """Leads to the output of runs, by run and host, once that is where it outlives the mesh: whoever has
        another data directory finds it too.
        """
        return self.root / "output"

    @property
    def kept_output(self) -> Path:
        """Where that is; what else was kept lies beside it, by host."""
        return self.kept / "output"

    @property
    def profiles(self) -> Path:
        """Files of profiles: with the output of runs, whose age they share."""
        return self.kept_output / "profiles"

    def output_places(self, run: str, host: int) -> tuple[Path, Path]:
        """Where the output of a run on a host may be: where it is moved to, then where it was written."""
        return self.output / run / str(host), self.host(host) / "runs" / run

    @property
    def not_kept(self) -> Path:
        """What was to be kept, and could not be where `kept` is: it goes with the output of runs."""
        return self.root / "kept"

    def tree_versions(self, mount: str) -> Path:
        """What the keeper keeps of a shown directory; `mount` is its id, empty for the workspace."""
        return self.root / f"versions{mount.removeprefix('mount')}"

    def tree_socket(self, mount: str, host: int | None = None) -> Path:
        """Where the keeper feeds a directory to hosts, or a host offers what it has of it to others."""
        name = f"w{mount.removeprefix('mount')}"
        return self.sockets / (name if host is None else f"{name}.{host}")

    def host(self, host: int) -> Path:
        return self.root / "hosts" / str(host)

    def host_socket(self, host: int) -> Path:
        return self.sockets / f"h{host}"


def proc_sockets(host_socket: Path, number: int) -> tuple[Path, Path]:
    """Sockets for messages and for control of the host's proc of that number (of all that it ever starts)."""
    return Path(f"{host_socket}.{number}"), Path(f"{host_socket}.{number}c")


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of one user on one machine; without `data` it is in the state directory."""

    state: Path
    runtime: Path
    data: Path | None = None

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
        home_data = Path(env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        data = home_data / "milkweed"
        if named := env.get("MILKWEED_DATA_DIR"):
            data = Path(named)
        elif env.get("MILKWEED_STATE_DIR"):
            data = state / "data"
        return cls(_private_directory(state), _private_directory(runtime), Path(os.path.abspath(data)))

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
        paths = MeshPaths(
            self.state / "meshes" / mesh,
            self.runtime / mesh.removeprefix("mesh-"),
            (self.data or self.state / "data") / mesh,
        )
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
