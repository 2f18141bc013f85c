"""Why the connection to a proc was lost: its host knows, and says so a little later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from ..errors import MilkweedError, Unavailable
from ..node import Node
from ..supervision import Failure
from .members import Member

__all__ = ["Explaining", "proc_lost"]

_KNOWN_S = 1.0
_STEP = "Spawn it anew; spawn_procs(..., restart=Restart()) starts such a proc again by itself."

Tell = Callable[[MilkweedError], None]
Waiting = list[Callable[[Failure], None]]


class Explaining:
    """One mesh's."""

    def __init__(self, here: Node) -> None:
        self._node = here
        self._waiting: dict[int, Waiting] = {}

    def explain(self, member: Member, error: MilkweedError, tell: Tell) -> None:
        """Tells how a proc ended once that is known, or `error` if it is not within a second; any thread."""
        self._node.loop.call_soon_threadsafe(self._look, member, error, tell)

    def _look(self, member: Member, error: MilkweedError, tell: Tell) -> None:
        just_now = member.death is not None and time.time() - member.death.at < _KNOWN_S
        if not member.alive or just_now:  # it may have been started again since
            tell(proc_lost(member.death, member.spec.proc))
            return
        told = partial(_tell_death, tell, member.spec.proc)
        waiting = self._waiting.setdefault(member.rank, [])
        waiting.append(told)

        def wait_no_more() -> None:
            if told in waiting:
                waiting.remove(told)
            tell(error)

        self._node.loop.call_later(_KNOWN_S, wait_no_more)

    def died(self, member: Member, death: Failure) -> None:
        """Now it is known; on the node's loop."""
        for tell in self._waiting.pop(member.rank, []):
            tell(death)

    async def explained(self, member: Member, error: MilkweedError) -> MilkweedError:
        """The same error, or in place of a lost connection why it was lost."""
        if error.code != "connection_lost":
            return error
        known: asyncio.Future[MilkweedError] = self._node.loop.create_future()
        self.explain(member, error, lambda why: None if known.done() else known.set_result(why))
        return await known


def _tell_death(tell: Tell, proc: str, death: Failure) -> None:
    tell(proc_lost(death, proc))


def proc_lost(death: Failure | None, proc: str) -> Unavailable:
    """Says how a proc ended, with its last line of output, as far as that is known."""
    if death is None:
        return Unavailable("proc_lost", f"proc {proc} does not answer any more", _STEP)
    # What faulthandler says first is told by the signal and the place.
    words = next((line for line in reversed(death.tail) if not line.startswith("Fatal Python error")), "")
    last = f"; its last output: {words[:200]}" if words else ""
    return Unavailable("proc_lost", f"{death.summary()}{last}", _STEP)
