"""From what Slurm says of a job, again and again, to what became of its hosts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..events import AllocationEvent, Ended, HowEnded, Lost, Preempted, Queued, Running, Starting
from .jobs import Job, Place

__all__ = ["Look", "Told", "fold", "look_again_s", "nodes_of_hosts", "why_in_log", "why_waiting"]

_WAITS = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNS = ("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING")
_HOW: dict[str, HowEnded] = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "node_failed",
    "NODE_FAIL": "node_failed",
    "PREEMPTED": "preempted",
}
_NOT_LOOKED_AT = ("", "None", "Prolog", "Cleaning")
_REASONS = {
    "Resources": "no such nodes are free",
    "Priority": "others are before it",
    "BeginTime": "Slurm holds it back until its begin time, after a requeue too",
    "Dependency": "it depends on another job",
    "JobHeldUser": "it is held: scontrol release lets it go on",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was requeued too often, and is held",
    "PartitionTimeLimit": "its time is longer than the partition allows: it would wait for ever",
    "PartitionNodeLimit": "it asks for more nodes than the partition has: it would wait for ever",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "ReqNodeNotAvail": "nodes that it needs are down or reserved",
    "Licenses": "it waits for a licence",
    "Reservation": "it waits for its reservation",
    "AssocGrpNodeLimit": "the account's nodes are in use",
    "QOSMaxJobsPerUserLimit": "the QOS allows no more jobs of this user",
    "launch failed requeued held": "it could not be launched, and is held",
}
_IN_LOG = (
    ("DUE TO PREEMPTION", "it was preempted"),
    ("DUE TO TIME LIMIT", "its time limit was reached"),
    ("DUE TO NODE FAILURE", "a node failed"),
    ("DUE TO JOB REQUEUE", "it was requeued"),
    ("CANCELLED AT", "it was cancelled from outside"),
)


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a job at one time.

    `job` is None where Slurm knows it no more. `up` are hosts whose command was started in this life of the
    job, with their nodes, `gone` those of them whose guard has ended; `late`: the others had time enough.
    `log` is the end of the job's own log.
    """

    job: Job | None
    place: Place = field(default_factory=Place)
    up: Mapping[int, str] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    late: bool = False
    log: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What was told so far. `nodes` are those of the job's present life, in the order of the hosts."""

    phase: str = "new"  # new, queued, starting, running, over
    life: int = 0
    nodes: tuple[str, ...] = ()
    lost: frozenset[int] = frozenset()
    queued: Queued | None = None


def fold(told: Told, look: Look, hosts: int) -> tuple[Told, tuple[AllocationEvent, ...]]:
    """What is to be told now, and what then was told; nothing twice. An allocation that is over stays so."""
    if told.phase == "over":
        return told, ()
    job = look.job
    if job is None:
        return _over(told, Ended("forgotten", f"Slurm does not know its job any more{_logged(look.log)}"))
    before: tuple[AllocationEvent, ...] = ()
    if told.phase in ("starting", "running") and (job.restarts > told.life or _is_waiting(job)):
        told, before = _given_up(look, hosts)
    if _is_waiting(job):
        told, events = _waiting(told, job, look.place)
    elif job.state in _RUNS or job.state in ("CONFIGURING", "COMPLETING") or "COMPLETING" in job.states:
        told, events = _on_nodes(told, job, look, hosts)
    elif job.state in _HOW:
        told, events = _ended(told, job, look, hosts)
    else:
        events = ()
    return told, (*before, *events)


def _is_waiting(job: Job) -> bool:
    return job.state in _WAITS and not {"COMPLETING", "CONFIGURING"} & set(job.states)


def _over(told: Told, *events: AllocationEvent) -> tuple[Told, tuple[AllocationEvent, ...]]:
    return replace(told, phase="over"), events


def _given_up(look: Look, hosts: int) -> tuple[Told, tuple[AllocationEvent, ...]]:
    """The job was sent back to the queue, with all that it had."""
    assert look.job is not None
    why = f"job {look.job.job} is queued again: {why_in_log(look.log) or 'its nodes were taken'}"
    event: AllocationEvent = Lost(tuple(range(hosts)), why)
    if "DUE TO PREEMPTION" in look.log:
        event = Preempted(why)
    return Told(phase="new", life=look.job.restarts), (event,)


def _waiting(told: Told, job: Job, place: Place) -> tuple[Told, tuple[AllocationEvent, ...]]:
    looked_at = job.reason not in _NOT_LOOKED_AT
    event = Queued(
        reason=why_waiting(job, place),
        position=place.position,
        waiting=place.waiting,
        expected_start_at=job.start_at if looked_at else None,
        looked_at=looked_at,
    )
    if event == told.queued:
        return told, ()
    return Told("queued", job.restarts, queued=event), (event,)


def _on_nodes(told: Told, job: Job, look: Look, hosts: int) -> tuple[Told, tuple[AllocationEvent, ...]]:
    events: list[AllocationEvent] = []
    if told.phase not in ("starting", "running"):
        if job.state != "RUNNING" or not (len(job.nodes) == hosts or look.up):
            return told, ()  # not given yet, or over before anybody looked
        told = Told("starting", job.restarts, nodes_of_hosts(hosts, job.nodes, look.up))
        events.append(Starting())
    # Slurm takes a node that failed off the list of a job that goes on without it.
    failed = {host for host, name in enumerate(told.nodes) if name not in job.nodes} if job.nodes else set()
    groups = (
        (look.gone, _why_taken(job, look.log)),
        (failed, ""),
        (
            set(range(hosts)) - look.up.keys() if look.late else (),
            f"its command was not started{_logged(look.log)}",
        ),
    )
    for group, why in groups:
        fresh = sorted(set(group) - told.lost)
        if fresh:
            told = replace(told, lost=told.lost | frozenset(fresh))
            if why:
                events.append(Lost(tuple(fresh), why))
            elif group is failed:
                events += [Lost((one,), _given_up_node(told.nodes[one])) for one in fresh]
            else:
                events.append(Lost(tuple(fresh)))
    if told.phase == "starting" and len(look.up) == hosts and not told.lost:
        told = replace(told, phase="running")
        events.append(Running())
    return told, tuple(events)


def _given_up_node(name: str) -> str:
    return f"Slurm has given its node {name} up" if name else "Slurm has given its node up"


def nodes_of_hosts(hosts: int, nodes: Sequence[str], up: Mapping[int, str]) -> tuple[str, ...]:
    """The node of each host: what its task has told, else what is left of the job's, in order, as tasks are
    given; empty where nothing is left, since Slurm has taken the node off the job.
    """
    left = iter([node for node in nodes if node not in up.values()])
    return tuple(up[host] if host in up else next(left, "") for host in range(hosts))


def _why_taken(job: Job, log: str) -> str:
    """Why hosts end while Slurm ends the job; empty while it does not."""
    if "COMPLETING" not in job.states and job.state in _RUNS:
        return ""
    return f"Slurm ends job {job.job}{_because(why_in_log(log))}"


def _ended(told: Told, job: Job, look: Look, hosts: int) -> tuple[Told, tuple[AllocationEvent, ...]]:
    how, logged = _HOW[job.state], why_in_log(look.log)
    exited = f"exit {job.exit_code}" if not job.exit_signal else f"signal {job.exit_signal}"
    ever_ran = told.phase in ("starting", "running")
    words = {
        "completed": f"job {job.job} ended by itself" + ("" if ever_ran else _logged(look.log)),
        "cancelled": f"job {job.job} was cancelled from outside (scancel, or an administrator)",
        "time_limit": f"job {job.job} reached its time limit",
        "failed": f"job {job.job} failed ({job.state}, {exited}){_logged(look.log)}",
        "node_failed": f"job {job.job} lost a node that it cannot go on without{_because(logged)}",
        "preempted": f"job {job.job} was preempted",
    }
    why = words[how]
    events: list[AllocationEvent] = []
    if ever_ran:
        left = tuple(sorted(set(range(hosts)) - told.lost))
        if how == "preempted":
            events.append(Preempted(why))
        elif left:
            events.append(Lost(left, why))
    return _over(told, *events, Ended(how, why))


def why_waiting(job: Job, place: Place) -> str:
    """`job 12 waits in partition gpu: no such nodes are free (Resources); 3rd of 5`."""
    where = f" in partition {job.partition}" if job.partition else ""
    if job.reason in _NOT_LOOKED_AT:
        return f"job {job.job} waits{where}: Slurm has not looked at it yet"
    name = job.reason.partition(",")[0]
    known = _REASONS.get(name)
    words = f"{known} ({job.reason})" if known else job.reason
    at = f"; number {place.position} of {place.waiting} that wait there" if place.position else ""
    return f"job {job.job} waits{where}: {words}{at}"


def why_in_log(log: str) -> str:
    """Why Slurm ended the job's steps, as it wrote in the job's log last; empty where it did not."""
    at, found = -1, ""
    for mark, words in _IN_LOG:
        where = max((match.start() for match in re.finditer(re.escape(mark), log)), default=-1)
        if mark == "CANCELLED AT":  # which begins the lines of the others too
            where = max((one.start() for one in re.finditer(r"CANCELLED AT \S+ \*\*\*", log)), default=-1)
        if where > at:
            at, found = where, words
    return found


def _logged(log: str) -> str:
    last = [line.strip() for line in log.splitlines() if line.strip()][-4:]
    return f"; its log ends: {' | '.join(last)[-600:]}" if last else "; its log is empty"


def _because(why: str) -> str:
    return f": {why}" if why else ""


def look_again_s(told: Told, age_s: float) -> float:
    """How long to wait before Slurm, which serves many, is asked again, `age_s` after the phase began."""
    if told.phase in ("new", "starting"):
        return 0.5 if age_s < 30 else 2.0
    if told.phase == "queued":
        return 1.0 if age_s < 30 else 5.0 if age_s < 600 else 15.0
    return 5.0
