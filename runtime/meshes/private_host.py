"""A host of this program's own: a guard and an agent, which end with it."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from ..agent.config import AgentConfig
from ..engines.embedded import host_command
from ..errors import Unavailable
from ..node import Node
from ..schedulers.processes import HOST_MARK
from .members import HostRef

__all__ = ["PrivateHost"]

logger = logging.getLogger(__name__)

_START_S = 20.0
_LOOK_S = 0.003
_LEASE_S = 365 * 86400.0
_LOOPBACK = "127.0.0.1"


class PrivateHost:
    """One a node, started when made. It ends when the process does, in whatever way: the agent reads a pipe
    whose other end nobody else holds.

    Raises:
        Unavailable: allocation_failed, it does not come up.
    """

    def __init__(self, here: Node) -> None:
        directory = Path(tempfile.mkdtemp(prefix="milkweed-host-"))
        name = socket.gethostname()
        self.ref = HostRef(name, str(directory / "h"))
        with ExitStack() as stack:
            read_end, self._life = os.pipe()
            stack.callback(os.close, read_end)
            config = AgentConfig(
                mesh=directory.name,
                host=0,
                name=name,
                address=_LOOPBACK,
                directory=str(directory),
                socket=self.ref.socket,
                workspace=os.getcwd(),
                lease_s=_LEASE_S,
                life_fd=read_end,
            )
            log = stack.enter_context((directory / "agent.log").open("ab"))
            self._guard = subprocess.Popen(
                host_command(config, leave=[["rm", "-rf", str(directory)]]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(read_end,),
                env={**os.environ, HOST_MARK: directory.name},
                start_new_session=True,
            )
        try:
            self._wait_ready(directory)
        except BaseException:
            self.close()
            shutil.rmtree(directory, ignore_errors=True)
            raise
        here.in_child(self.close)

    @property
    def alive(self) -> bool:
        return self._life >= 0 and self._guard.poll() is None

    def close(self) -> None:
        """Ends the host with all that runs on it, without waiting."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1

    def _wait_ready(self, directory: Path) -> None:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._guard.poll() is None:
            if os.path.exists(self.ref.socket):
                return
            time.sleep(_LOOK_S)
        lines = (directory / "agent.log").read_text(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"it is not there after {_START_S:.0f} s"
        raise Unavailable(
            "allocation_failed", f"this program's own host does not come up: {why}", "Try again."
        )
