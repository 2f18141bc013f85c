"""The facts of replica jobs that travel between client, keeper and hosts: plain frozen records.

A job is R replicas, a replica a group of N ranks on one host that is started, ended and restarted as one.
Each attempt of it is a run with an id of its own (`attempt_id`), which is read, awaited and dumped like any
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .records import HostCopies, HostPlan, RunView
from .supervision import Failure, Restart

__all__ = [
    "JobRequest",
    "JobState",
    "JobStatus",
    "JobView",
    "ReplicaPlan",
    "ReplicaState",
    "ReplicaView",
    "attempt_id",
]

JobState = Literal["starting", "running", "degraded", "succeeded", "failed", "stopped"]
ReplicaState = Literal["pending", "running", "restarting", "succeeded", "given_up", "lost", "stopped"]


def attempt_id(base: str, attempt: int) -> str:
    """The run of an attempt (from 1): `run-7qd.2`. The host names it alone, since its keeper may be gone."""
    return f"{base}.{attempt}"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What `start_replicas` was asked for; equal ones that run at once are one job.

    `keep` and `scratch` are those of a `RunRequest`.
    """

    argv: tuple[str, ...]
    replicas: int
    procs_per_replica: int = 1
    restart: Restart = field(default_factory=Restart)
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    warm: bool = True
    keep: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What a host does for one replica; `plan.run` is the base of its attempts' ids."""

    job: str
    replica: int
    plan: HostPlan
    restart: Restart


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica as far as it is known. `run` is its latest attempt, `base` what its attempts are named by.

    `slot` is its place on the host, from 0. `failure` is the latest one, of attempt `failed_attempt` (0 of a
    lost host's), `seq` the last event folded into this.
    """

    replica: int
    host: int
    slot: int
    base: str
    state: ReplicaState = "pending"
    attempt: int = 0
    restarts: int = 0
    run: str = ""
    failure: Failure | None = None
    reason: str = ""
    ended_at: float | None = None
    seq: int = 0
    failed_attempt: int = 0


@dataclass(frozen=True, slots=True)
class JobView:
    job: str
    mesh: str
    state: JobState
    command: str
    request: JobRequest
    replicas: tuple[ReplicaView, ...]
    created_at: float
    ended_at: float | None = None
    reason: str = ""
    why_stopped: str = ""
    warnings: tuple[str, ...] = ()
    host_copies: tuple[HostCopies, ...] = ()


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job and the runs of its replicas' latest attempts, by replica."""

    view: JobView
    runs: Mapping[int, RunView]
