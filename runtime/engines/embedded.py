"""The embedded engine: a host agent under a guard, services called over a unix socket.

For one machine, real processes, simulated hosts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ..agent.config import AgentConfig
from ..agent.host_command import agent_command, guard_command, unmount_command
from ..call import Session, open_connection
from ..codec import to_json
from ..errors import InvalidArgument
from ..mesh_secret import make_secret
from ..paths import MeshPaths
from ..records import MeshSpec
from ..schedulers import AllocationPlan, HostHandle, HostPlace
from ..tree_places import agent_workspace
from ..watching.policy import VARIABLE, parse_policy

__all__ = ["EmbeddedEngine", "host_command"]

_LOOPBACK = "127.0.0.1"


def host_command(
    config: AgentConfig, enter: Sequence[str] = (), leave: Sequence[Sequence[str]] = ()
) -> list[str]:
    """Writes the configuration to the host's directory; returns the command that makes a host of it.

    `enter` goes before the agent's command; the commands `leave` are run when everything has ended.
    """
    directory = Path(config.directory)
    path = directory / "config.json"
    path.write_text(json.dumps(to_json(config)))
    epilogues = [word for command in leave for word in ("--epilogue", json.dumps(command))]
    guard = guard_command("--log", str(directory / "guard.log"), *epilogues)
    return [*guard, *enter, *agent_command(path)]


class EmbeddedEngine:
    name = "embedded"

    def check(self, plan: AllocationPlan) -> None:
        if plan.elsewhere:
            raise InvalidArgument(
                "unsupported",
                f"the embedded engine reaches hosts of this machine alone, and {plan.elsewhere}",
                "Run Milkweed where the hosts are, or use scheduler='local'.",
            )

    def prepare(self, mesh: str, spec: MeshSpec, place: HostPlace, paths: MeshPaths) -> list[str]:
        place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = AgentConfig(
            mesh=mesh,
            host=place.host,
            name=place.name,
            address=place.address or _LOOPBACK,
            directory=str(place.directory),
            socket=str(paths.host_socket(place.host)),
            workspace=agent_workspace(spec, paths, place.host),
            lease_s=spec.lease_minutes * 60,
            secret_file=str(make_secret(paths.secret)),
            watch=parse_policy(os.environ.get(VARIABLE, "")),
        )
        return host_command(config, place.enter, (*place.leave, unmount_command(place.directory)))

    def connect(self, host: HostHandle, paths: MeshPaths) -> AbstractAsyncContextManager[Session]:
        return open_connection(paths.host_socket(host.host), role="keeper", peer=f"host {host.host}")
