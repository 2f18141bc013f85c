"""What a check of a mesh asks a host's agent: its clock, what its runs find, a part in an all-reduce."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..checking.records import AllReduceTurn, Surroundings, Turn
from ..errors import Unavailable
from ..evidence.fingerprint import read_fingerprint
from ..evidence.kernel import read_disk

__all__ = ["Fitness"]

_LOOPBACK = "127.0.0.1"
_PROGRAM = Path(__file__).parent.parent / "checking" / "all_reduce.py"
_ANSWER_BYTES = 64 * 1024


class Fitness(Actor):
    def __init__(self, context: HostContext) -> None:
        self._context = context

    @endpoint
    async def clock(self) -> float:
        """Its wall clock, now."""
        return time.time()

    @endpoint
    async def surroundings(self, python: str) -> Surroundings:
        """What a run of this interpreter would find here; read from files, nothing is run."""
        return await anyio.to_thread.run_sync(self._look, python, abandon_on_cancel=True)

    def _look(self, python: str) -> Surroundings:
        found = read_fingerprint((python,), os.environ, self._context.workspace)
        # Where runs write: the workspace, and what is the host's own.
        paths = dict.fromkeys((self._context.workspace, str(self._context.temporary)))
        disks = {(disk.total, disk.free): disk for path in paths if (disk := read_disk(path)) is not None}
        return Surroundings(found, tuple(disks.values()))

    @endpoint
    async def all_reduce(self, turn: AllReduceTurn) -> Turn:
        """Its part in an all-reduce with others, who are told at the same time; within the turn's seconds."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("MILKWEED_")}
        env |= {
            "MILKWEED_HOST_ID": self._context.instance,
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        if self._context.address == _LOOPBACK:
            env["GLOO_SOCKET_IFNAME"] = "lo"
        given = (turn.rank, turn.world, turn.address, turn.port, turn.size, turn.seconds * 0.8)
        command = [turn.python, "-c", _PROGRAM.read_text(), *map(str, given)]
        try:
            done = await self._context.children.run(
                command, timeout_s=turn.seconds, env=env, max_output=_ANSWER_BYTES
            )
        except Unavailable:
            return Turn(error=f"not done within {turn.seconds:.0f} s")
        except OSError as error:
            return Turn(missing=f"{turn.python}: {error.strerror}")
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        try:
            told = json.loads(lines[-1])
            return Turn(
                float(told.get("seconds", 0.0)),
                error=" ".join(str(told.get("error", "")).split())[:300],
                missing=str(told.get("missing", ""))[:300],
            )
        except (IndexError, ValueError, AttributeError, TypeError):
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return Turn(error=f"ended with exit {done.code}: {said[-1][:200] if said else 'it said nothing'}")
