"""The accelerators of this host and who uses them, as an actor."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent import ptree
from ..agent.context import HostContext
from ..devices.asking import COMMAND, DeviceAsker
from ..devices.probe import vendors_here
from ..devices.records import DeviceUse, DeviceView, HostDevices
from ..devices.visible import deciding

__all__ = ["Devices", "uses_of"]

_LOOK_S = 4.0
_WHOSE_S = 1.0
_COMMAND_BYTES = 120


class Devices(Actor):
    """Made by `Devices.open`, whose block what it asks lives in."""

    def __init__(self, context: HostContext, asker: DeviceAsker, dev: Path) -> None:
        self._context = context
        self._asker = asker
        self._dev = dev

    @classmethod
    @asynccontextmanager
    async def open(
        cls, context: HostContext, *, command: Sequence[str] = COMMAND, dev: Path = Path("/dev")
    ) -> AsyncIterator[Devices]:
        async with anyio.create_task_group() as tasks:
            yield cls(context, DeviceAsker(context.children, tasks, command=command), dev)
            tasks.cancel_scope.cancel()

    @endpoint
    async def look(self, within_s: float = _LOOK_S) -> HostDevices:
        """The devices, as of some seconds ago at most, and the processes on them.

        A driver that does not answer in time is told as that.
        """
        view = await self._asker.ask(vendors_here(self._dev), within_s)
        uses: tuple[DeviceUse, ...] = ()
        if any(device.processes for device in view.devices):
            with anyio.move_on_after(_WHOSE_S):  # a process that its driver holds may not show itself
                uses = await anyio.to_thread.run_sync(uses_of, view, abandon_on_cancel=True)
        return HostDevices(self._context.host, view, uses, deciding(os.environ))


def uses_of(view: DeviceView, proc: str = "/proc") -> tuple[DeviceUse, ...]:
    """Who the processes on the devices are, as far as this user may see."""
    found = []
    known: dict[int, tuple[Mapping[str, str], str]] = {}
    for device in view.devices:
        for process in device.processes:
            if process.pid not in known:
                known[process.pid] = ptree.read_environ(process.pid, proc), _command(process.pid, proc)
            marks, command = known[process.pid]
            rank = marks.get("MILKWEED_RANK", "")
            found.append(
                DeviceUse(
                    device.index,
                    device.vendor,
                    process.pid,
                    process.bytes,
                    mesh=marks.get("MILKWEED_HOST_ID", "").rpartition(".")[0],
                    run=marks.get("MILKWEED_RUN", ""),
                    rank=int(rank) if rank.isdecimal() else None,
                    command=command,
                )
            )
    return tuple(found)


def _command(pid: int, proc: str) -> str:
    """Shortened; empty where there is no such process here."""
    try:
        words = Path(proc, str(pid), "cmdline").read_bytes().split(b"\0")
        text = b" ".join(filter(None, words)).decode("utf-8", "replace")
        return text[:_COMMAND_BYTES] or Path(proc, str(pid), "comm").read_text(errors="replace").strip()
    except OSError:
        return ""
