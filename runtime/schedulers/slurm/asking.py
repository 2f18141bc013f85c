"""Slurm's answers as records: one job, its queue, the partitions, the nodes."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence

import anyio.to_thread

from ...errors import Unavailable
from .commands import Commands, Refused
from .jobs import Job, JobFormatError, Place, jobs_from_json, jobs_from_plain, place_in_queue
from .offers import PARTITION_FORMAT, Node, Partition, elsewhere, nodes_from_plain, partitions_from_plain

__all__ = ["Asking", "is_own_address"]

logger = logging.getLogger(__name__)

# Since when each of them has `--json`.
_SCONTROL_JSON = (23, 2)
_SQUEUE_JSON = (21, 8)
_QUEUE_READ = 2000
_TRY = "Try: scontrol show job"


class Asking:
    def __init__(self, commands: Commands) -> None:
        self.commands = commands

    async def job(self, job: str) -> Job | None:
        """None where Slurm knows it no more.

        Raises:
            Unavailable: Slurm does not answer.
        """
        try:
            if await self.commands.version() >= _SCONTROL_JSON:
                try:
                    document = await self.commands.ask_json("scontrol", "show", "job", job, "--json")
                    return next(iter(jobs_from_json(document)), None)
                except (JobFormatError, ValueError) as error:
                    logger.warning("Slurm's JSON is not understood, plain it is: %s", error)
            return next(
                iter(jobs_from_plain(await self.commands.ask("scontrol", "-o", "show", "job", job))), None
            )
        except Refused as error:
            if "invalid job id" in str(error).lower():
                return None
            raise Unavailable(
                "scheduler_unusable", f"Slurm does not tell of job {job}: {error}", _TRY
            ) from None
        except JobFormatError as error:
            raise Unavailable("scheduler_unusable", f"job {job}: {error}", _TRY) from None

    async def place(self, job: Job) -> Place:
        """Where a job that waits is in its queue, as far as it can be told.

        Raises:
            Unavailable: Slurm does not answer.
        """
        try:
            if await self.commands.version() >= _SQUEUE_JSON:
                document = await self.commands.ask_json("squeue", "--json")
                return place_in_queue(job, jobs_from_json(document))
        except (Refused, JobFormatError, ValueError) as error:
            logger.debug("the queue cannot be read as JSON: %s", error)
        return await self._place_from_plain(job)

    async def _place_from_plain(self, job: Job) -> Place:
        words = [
            "squeue",
            "-h",
            "-t",
            "PENDING",
            "-o",
            "%i|%Q",
            *(["-p", job.partition] if job.partition else []),
        ]
        queue = []
        try:
            for line in (await self.commands.ask(*words)).splitlines()[:_QUEUE_READ]:
                number, _, priority = line.strip().partition("|")
                if number.isdigit() and priority.isdigit():
                    queue.append(
                        Job(int(number), states=("PENDING",), partition=job.partition, priority=int(priority))
                    )
        except Refused:
            return Place()
        return place_in_queue(job, tuple(queue))

    async def named(self, name: str) -> str:
        """The number of this user's job of that name that is not over; empty where there is none.

        Raises:
            Unavailable: Slurm does not answer.
        """
        try:
            found = await self.commands.ask("squeue", "-h", "-u", str(os.getuid()), "-n", name, "-o", "%i")
        except Refused:
            return ""
        return next(iter(found.split()), "")

    async def partitions(self) -> tuple[Partition, ...]:
        """
        Raises:
            Unavailable, Refused: it cannot be told.
        """
        return partitions_from_plain(await self.commands.ask("sinfo", "-h", "-o", PARTITION_FORMAT))

    async def nodes(self, names: Sequence[str] = ()) -> tuple[Node, ...]:
        """
        Raises:
            Unavailable, Refused: they cannot be told.
        """
        which = [",".join(names)] if names else []
        return nodes_from_plain(await self.commands.ask("scontrol", "-o", "show", "node", *which))

    async def elsewhere(self, partition: str) -> str:
        """Which nodes of a partition are other machines, in words; empty where none is.

        Raises:
            Unavailable, Refused: it cannot be told.
        """
        nodes = [one for one in await self.nodes() if not partition or partition in one.partitions]
        return await anyio.to_thread.run_sync(elsewhere, nodes, is_own_address)


def is_own_address(address: str) -> bool:
    """Whether it is this machine's: nobody can bind to another's. Blocking."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
                return True
        except OSError:
            continue
    return False
