"""Asking for the devices of a host without waiting for a driver that is dead.

The question is another process's. It is asked once for all who want to know at about the same time, and the
one that hangs is left alone until it ends: nobody waits for it, and no second one is started beside it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import anyio
import anyio.abc

from ..agent.children import Children
from ..codec import from_json
from ..errors import Unavailable
from .records import DeviceView

__all__ = ["COMMAND", "DeviceAsker"]

COMMAND = (sys.executable, "-m", "milkweed.runtime.devices.looking")
_FRESH_S = 5.0
_LONGEST_S = 30.0
_MEND = "dmesg on that host tells of the driver; a process in state D that holds it goes with a reboot only."


class DeviceAsker:
    """`tasks` outlives it, and ends what it asks. `fresh_s`: for how long an answer is good."""

    def __init__(
        self,
        children: Children,
        tasks: anyio.abc.TaskGroup,
        *,
        command: Sequence[str] = COMMAND,
        fresh_s: float = _FRESH_S,
        longest_s: float = _LONGEST_S,
    ) -> None:
        self._children = children
        self._tasks = tasks
        self._command = tuple(command)
        self._fresh_s = fresh_s
        self._longest_s = longest_s
        self._asked: anyio.Event | None = None
        self._asked_at = 0.0
        self._known: tuple[float, DeviceView] | None = None

    async def ask(self, vendors: Sequence[str], within_s: float) -> DeviceView:
        """The devices of these vendors; without any, none, and nothing is asked."""
        if not vendors:
            return DeviceView()
        if self._known is not None and time.monotonic() - self._known[0] < self._fresh_s:
            return self._known[1]
        if self._asked is None:
            self._asked, self._asked_at = anyio.Event(), time.monotonic()
            self._tasks.start_soon(self._ask, tuple(vendors), self._asked)
        with anyio.move_on_after(within_s):
            await self._asked.wait()
            assert self._known is not None
            return self._known[1]
        since = time.monotonic() - self._asked_at
        return DeviceView(
            problem=f"the driver of {' and '.join(vendors)} has not answered for {since:.0f} s", mend=_MEND
        )

    async def _ask(self, vendors: tuple[str, ...], asked: anyio.Event) -> None:
        try:
            view = await self._answer(vendors)
        except BaseException:
            view = DeviceView(problem="the host ends")
            raise
        finally:
            self._known = time.monotonic(), view
            self._asked = None
            asked.set()

    async def _answer(self, vendors: tuple[str, ...]) -> DeviceView:
        try:
            done = await self._children.run([*self._command, *vendors], timeout_s=self._longest_s)
        except Unavailable:
            what = f"the driver of {' and '.join(vendors)} did not answer within {self._longest_s:g} s"
            return DeviceView(problem=what, mend=_MEND)
        except OSError as error:
            return DeviceView(problem=f"devices could not be looked at: {error}")
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        try:
            return from_json(DeviceView, json.loads(lines[-1]))
        except (IndexError, ValueError, TypeError, KeyError, AttributeError):
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            how = f"signal {-done.code}" if done.code < 0 else f"exit {done.code}"
            last = f": {said[-1][:200]}" if said else ""
            return DeviceView(problem=f"the process that looks at devices ended with {how}{last}", mend=_MEND)
