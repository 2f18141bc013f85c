"""The controllers attached to one mesh, and the failures that nobody in them handled.

Such a failure ends nothing. It is an event of the mesh, a warning of the controller's run, and the mesh is
degraded until that controller ends: what it had spawned ends with it, so nothing of the failure is left then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio

from ..actor import Actor, endpoint
from ..attach_records import Controller
from ..errors import Conflict
from ..supervision import Failure
from .mesh_keeper import MeshKeeper
from .runbook import RunBook

__all__ = ["Controllers", "trouble_in_words"]

_MOST = 100


@dataclass(slots=True)
class _Attached:
    controller: Controller
    failures: list[Failure]


class Controllers(Actor):
    def __init__(self, keeper: MeshKeeper, runs: RunBook) -> None:
        self._keeper = keeper
        self._runs = runs
        self._attached: dict[str, _Attached] = {}

    @endpoint
    async def hold(self, controller: Controller, known: tuple[Failure, ...]) -> None:
        """The controller is attached until this call ends. Never returns.

        Args:
            known: failures that it has told an earlier keeper.
        """
        _sweep(Path(controller.control).parent if controller.control else None)
        attached = self._attached[controller.id] = _Attached(controller, list(known))
        self._judge()
        try:
            await anyio.sleep_forever()
        finally:
            if self._attached.get(controller.id) is attached:
                del self._attached[controller.id]
                self._judge()

    @property
    def any(self) -> bool:
        return bool(self._attached)

    def of(self, run: str) -> tuple[Controller, ...]:
        """Those that are attached and belong to a run; an empty one is that of programs that are of none."""
        return tuple(one.controller for one in self._attached.values() if one.controller.run == run)

    @endpoint
    async def report(self, controller: str, failure: Failure) -> None:
        """Nobody in the controller of that id handled the failure.

        Raises:
            Conflict: owner_gone, it does not hold.
        """
        attached = self._attached.get(controller)
        if attached is None:
            raise Conflict("owner_gone", f"no controller {controller} is attached", "Call hold first.")
        run = attached.controller.run
        self._keeper.say("failure_unhandled", failure.summary(), run=run)
        self._runs.warn(run, f"nobody handled: {failure.summary()}")
        if len(attached.failures) < _MOST:
            attached.failures.append(failure)
            self._judge()

    def _judge(self) -> None:
        troubled = [one for one in self._attached.values() if one.failures]
        self._keeper.set_troubles([trouble_in_words(one.controller, one.failures) for one in troubled])


def _sweep(directory: Path | None) -> None:
    """Removes control sockets of programs that were killed."""
    for path in directory.glob("c*") if directory is not None else ():
        if path.name[1:].isdecimal() and not Path("/proc", path.name[1:]).exists():
            path.unlink(missing_ok=True)


def trouble_in_words(controller: Controller, failures: list[Failure]) -> str:
    """One controller's failures: the first, and how many follow."""
    who = controller.run or f"the program with pid {controller.pid}"
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return f"{who} did not handle a failure: {failures[0].summary()}{more}"
