"""From a job request to what each host does: where replicas go, and what their ranks are started with.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import Conflict, InvalidArgument
from ..job_records import JobRequest, ReplicaPlan
from ..mesh import Extent, format_ranks
from ..records import RunRequest
from .launchers import Placement, plan_run

__all__ = ["Slot", "place", "plan_replica", "run_request"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Room for one replica: place `slot` of `host`, whose ranks there are `ranks`."""

    host: int
    slot: int
    ranks: tuple[int, ...]


def place(
    request: JobRequest,
    extent: Extent,
    ready: Collection[int],
    taken: Mapping[str, Collection[tuple[int, int]]],
) -> tuple[Slot, ...]:
    """A slot for each replica, spread over the hosts: the emptiest first.

    Args:
        ready: the hosts that can be used.
        taken: by job, the (host, local rank) of the mesh that its replicas have.

    Raises:
        InvalidArgument: unsupported, a replica that no host has room for; invalid_argument, more than fit.
        Conflict: slots_in_use, they would fit, were there no other job.
    """
    size, each = request.procs_per_replica, extent.gpus
    if size > each:
        raise InvalidArgument(
            "unsupported",
            f"a replica lies on one host: {size} ranks do not fit the {each} of a host",
            f"Ask for procs_per_replica of at most {each}, or allocate a mesh with procs_per_host={size}.",
        )
    room = len(ready) * (each // size)
    left = sorted(set(range(extent.hosts)).difference(ready))
    hosts = f"{len(ready)} host{'' if len(ready) == 1 else 's'}"
    gone = f" (hosts {format_ranks(left)} cannot be used)" if left else ""
    if request.replicas > room:
        raise InvalidArgument(
            "invalid_argument",
            f"{request.replicas} replicas of {size} ranks; there is room for {room}: {each // size} on each"
            f" of {hosts} with {each} ranks{gone}",
            "Ask for fewer or smaller replicas, or allocate more hosts.",
        )
    used = {spot for spots in taken.values() for spot in spots}
    free = {
        host: [slot for slot in range(each // size) if not used.intersection(_spots(host, slot, size))]
        for host in sorted(ready)
    }
    slots: list[Slot] = []
    while len(slots) < request.replicas:
        host = max(free, key=lambda one: (len(free[one]), -one), default=None)
        if host is None or not free[host]:
            raise Conflict(
                "slots_in_use",
                f"{request.replicas} replicas of {size} ranks; {len(slots)} fit beside"
                f" {', '.join(sorted(taken))}, of {room} in all{gone}",
                f"stop_replicas(job={min(taken)!r}), or ask for fewer.",
            )
        slot = free[host].pop(0)
        first = host * each + slot * size
        slots.append(Slot(host, slot, tuple(range(first, first + size))))
    return tuple(slots)


def _spots(host: int, slot: int, size: int) -> set[tuple[int, int]]:
    return {(host, local) for local in range(slot * size, (slot + 1) * size)}


def run_request(request: JobRequest, ranks: Sequence[int]) -> RunRequest:
    """The run that an attempt of a replica is."""
    return RunRequest(
        request.argv, ranks=format_ranks(ranks), env=request.env, cwd=request.cwd, warm=request.warm
    )


def plan_replica(
    request: JobRequest, job: str, replica: int, slot: Slot, place_of_run: Placement
) -> ReplicaPlan:
    """What the slot's host does for a replica; its ranks also get what only a job has:

    MILKWEED_JOB, MILKWEED_REPLICA of MILKWEED_REPLICAS, and MILKWEED_LOCAL_SLOT, their place among all
    ranks of the host (LOCAL_RANK counts those of their replica). MILKWEED_ATTEMPT follows with each
    attempt.

    Raises:
        InvalidArgument: as `plan_run`.
    """
    (plan,) = plan_run(run_request(request, slot.ranks), place_of_run)
    processes = []
    for local, process in enumerate(plan.processes):
        env = {
            "MILKWEED_JOB": job,
            "MILKWEED_REPLICA": str(replica),
            "MILKWEED_REPLICAS": str(request.replicas),
            "MILKWEED_LOCAL_SLOT": str(slot.slot * len(slot.ranks) + local),
        }
        processes.append(replace(process, env={**process.env, **env}))
    return ReplicaPlan(job, replica, replace(plan, processes=tuple(processes)), request.restart)
