"""The embedded engine: a host agent under a guard, services called over a unix socket.

For one machine, real processes, simulated hosts.
"""

from __future__ import annotations

import json
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ..agent.config import AgentConfig
from ..call import Session, open_connection
from ..codec import to_json
from ..paths import MeshPaths
from ..records import MeshSpec
from ..schedulers import HostPlace

__all__ = ["EmbeddedEngine"]

_GUARD = Path(__file__).parent.parent / "agent" / "guard.py"


class EmbeddedEngine:
    name = "embedded"

    def prepare(self, mesh: str, spec: MeshSpec, place: HostPlace, paths: MeshPaths) -> list[str]:
        place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = AgentConfig(
            mesh=mesh,
            host=place.host,
            name=place.name,
            address=place.address,
            directory=str(place.directory),
            socket=str(paths.host_socket(place.host)),
            workspace=spec.workspace,
            lease_s=spec.lease_minutes * 60,
        )
        path = place.directory / "config.json"
        path.write_text(json.dumps(to_json(config)))
        epilogues = [word for command in place.leave for word in ("--epilogue", json.dumps(command))]
        guard = [
            sys.executable,
            "-I",
            "-S",
            str(_GUARD),
            "--log",
            str(place.directory / "guard.log"),
            *epilogues,
            "--",
        ]
        return [*guard, *place.enter, sys.executable, "-m", "milkweed.runtime.agent", "--config", str(path)]

    def connect(self, host: int, paths: MeshPaths) -> AbstractAsyncContextManager[Session]:
        return open_connection(paths.host_socket(host), role="keeper", peer=f"host {host}")
