"""Following one job: Slurm is asked from time to time, and at once when a file or a process gives a sign."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc

from ...agent.lease import boot_id
from ...errors import Unavailable
from ..base import Order, Tell
from ..events import Ending
from ..processes import wait_gone
from .asking import Asking
from .host_task import NODE_FILE
from .jobs import Job, Place
from .script import JobFiles
from .states import Look, Told, fold, look_again_s

__all__ = ["HostNote", "follow", "last_of", "read_note"]

logger = logging.getLogger(__name__)

_SIGN_S = 0.1
_COMMAND_STARTS_S = 120.0
_LOG_BYTES = 4096


@dataclass(frozen=True, slots=True)
class HostNote:
    """What a host's task has told of itself (`host_task.py`)."""

    node: str
    job: int
    life: int
    pid: int
    start_time: int
    boot: str


def read_note(directory: Path) -> HostNote | None:
    """None where a host was never started."""
    try:
        return HostNote(**json.loads((directory / NODE_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def last_of(log: Path) -> str:
    """The end of a job's log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


async def follow(order: Order, job: str, asking: Asking, tell: Tell) -> None:
    """Tells what becomes of a job until it is over."""
    async with anyio.create_task_group() as group:
        await _Watch(order, job, asking, tell, group).run()
        group.cancel_scope.cancel()


class _Watch:
    def __init__(
        self, order: Order, job: str, asking: Asking, tell: Tell, tasks: anyio.abc.TaskGroup
    ) -> None:
        self._order = order
        self._files = JobFiles.of(order.paths)
        self._number = job
        self._asking = asking
        self._tell = tell
        self._tasks = tasks
        self._told = Told()
        self._job: Job | None = None
        self._place = Place()
        self._notes: dict[int, HostNote] = {}
        self._gone: set[HostNote] = set()
        self._since = anyio.current_time()
        self._nudge = anyio.Event()
        self._warned = self._changed_at(self._files.warned)
        self._boot = boot_id()

    async def run(self) -> None:
        while True:
            phase, warned = self._told.phase, self._changed_at(self._files.warned)
            self._nudge = anyio.Event()
            sign = self._sign()
            if warned and warned != self._warned and phase in ("starting", "running"):
                self._warned = warned
                await self._tell(
                    Ending(f"Slurm will end job {self._number} soon: its time limit, or preemption")
                )
            look = await self._look()
            if look is not None:
                self._told, events = fold(self._told, look, self._order.spec.hosts)
                for event in events:
                    logger.info("job %s: %s", self._number, event)
                    await self._tell(event)
            if self._told.phase == "over":
                return
            if self._told.phase != phase:
                self._since = anyio.current_time()
            await self._nap(look_again_s(self._told, anyio.current_time() - self._since), sign)

    async def _look(self) -> Look | None:
        """None where nothing was ever seen of the job, since Slurm does not answer."""
        try:
            self._job = await self._asking.job(self._number)
            if self._job is not None and self._job.state == "PENDING":
                self._place = await self._asking.place(self._job)
        except Unavailable as error:
            logger.warning("%s", error)
            if self._job is None:
                return None
        self._read_notes()
        life = self._job.restarts if self._job else 0
        notes = {host: note for host, note in self._notes.items() if note.life == life}
        return Look(
            job=self._job,
            place=self._place,
            up={host: note.node for host, note in notes.items()},
            gone=frozenset(host for host, note in notes.items() if note in self._gone),
            late=self._told.phase == "starting" and anyio.current_time() - self._since > _COMMAND_STARTS_S,
            log=last_of(self._files.log(self._number)),
        )

    def _read_notes(self) -> None:
        """Of hosts on this machine the process is watched; of others Slurm and the engine tell."""
        life = self._job.restarts if self._job else 0
        if sum(note.life == life for note in self._notes.values()) == self._order.spec.hosts:
            return
        for host in range(self._order.spec.hosts):
            note = read_note(self._order.paths.host(host))
            if note is None or str(note.job) != self._number or self._notes.get(host) == note:
                continue
            self._notes[host] = note
            if note.boot == self._boot:
                self._tasks.start_soon(self._watch_process, note)

    async def _watch_process(self, note: HostNote) -> None:
        await wait_gone(note.pid, note.start_time)
        self._gone.add(note)
        self._nudge.set()

    async def _nap(self, seconds: float, sign: object) -> None:
        """Until the time is up, a process has ended, or a file has changed, which is cheaper to look at."""
        until = anyio.current_time() + seconds
        while (left := until - anyio.current_time()) > 0 and not self._nudge.is_set():
            with anyio.move_on_after(min(left, _SIGN_S)):
                await self._nudge.wait()
            if self._sign() != sign:
                return

    def _sign(self) -> object:
        """Changes when the job's script begins or is warned, and while hosts start."""
        notes = 0
        if self._told.phase == "starting":
            notes = sum(
                self._changed_at(self._order.paths.host(host) / NODE_FILE) > 0
                for host in range(self._order.spec.hosts)
            )
        return self._changed_at(self._files.started), self._changed_at(self._files.warned), notes

    @staticmethod
    def _changed_at(path: Path) -> int:
        try:
            return path.stat().st_mtime_ns
        except OSError:
            return 0
