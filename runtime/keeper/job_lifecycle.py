"""The life of a replica job as a pure state machine: host events in, a new view out.

A replica is pending -> running <-> restarting and then succeeded, given up, stopped, or lost with its host.
What happened on a host is numbered, and a replica lives on one host: events up to `ReplicaView.seq` are
known and change nothing. The job's state follows from its replicas'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..job_records import JobState, JobView, ReplicaState, ReplicaView
from ..mesh import format_ranks
from ..records import HostEvent, ReplicaNote
from ..supervision import Failure

__all__ = ["began", "end_all", "fold", "is_over", "lose_host"]

_OVER: frozenset[ReplicaState] = frozenset({"succeeded", "given_up", "lost", "stopped"})
_STATES: Mapping[str, ReplicaState] = {
    "replica_started": "running",
    "replica_failed": "restarting",
    "replica_gave_up": "given_up",
    "replica_succeeded": "succeeded",
    "replica_stopped": "stopped",
}
_WORDS = {"released": "the mesh was released", "lease_ended": "the lease ended", "cancelled": "stopped"}


def is_over(view: JobView) -> bool:
    return view.state in ("succeeded", "failed", "stopped")


def fold(view: JobView, host: int, event: HostEvent) -> JobView:
    """The view after one event of a host; one of another job, or one that is known, changes nothing."""
    note, state = event.note, _STATES.get(event.kind)
    if note is None or state is None or note.job != view.job or not 0 <= note.replica < len(view.replicas):
        return view
    known = view.replicas[note.replica]
    if known.host != host or event.seq <= known.seq or known.state == "lost":
        return view
    over, failed = state in _OVER, event.kind == "replica_failed"
    changed = replace(
        known,
        state=state,
        attempt=note.attempt,
        restarts=note.restarts,
        run=event.run,
        failure=_failure(view, note, event) if failed else known.failure,
        reason=_WORDS.get(event.detail, event.detail) if over else "",
        ended_at=event.at if over else None,
        seq=event.seq,
        failed_attempt=note.attempt if failed else known.failed_attempt,
    )
    return _settle(view, lambda one: changed if one.replica == note.replica else one, event.at)


def began(view: JobView) -> JobView:
    """Every host has its part: from now on the job outlives its keeper."""
    return _settle(replace(view, state="running"), lambda one: one, view.created_at)


def lose_host(view: JobView, host: int, why: str, at: float) -> JobView:
    """The view after a host died: its replicas are lost."""

    def lose(one: ReplicaView) -> ReplicaView:
        if one.host != host or one.state in _OVER:
            return one
        failure = Failure("host", str(host), view.mesh, reason=why or "it was lost", at=at)
        return replace(
            one, state="lost", reason=f"host {host} was lost", failure=failure, failed_attempt=0, ended_at=at
        )

    return _settle(view, lose, at)


def end_all(view: JobView, reason: str, at: float) -> JobView:
    """Whatever has not ended by now is stopped; `reason` is an `EndReason`, or words."""
    words = _WORDS.get(reason, reason)

    def end(one: ReplicaView) -> ReplicaView:
        return one if one.state in _OVER else replace(one, state="stopped", reason=words, ended_at=at)

    return _settle(replace(view, why_stopped=view.why_stopped or words), end, at)


def _failure(view: JobView, note: ReplicaNote, event: HostEvent) -> Failure:
    ranks = () if event.rank is None else (event.rank,)
    who = "group" if event.rank is None else str(event.rank)
    return Failure(
        "rank",
        f"{who} of {event.run}",
        view.mesh,
        ranks,
        exit=event.exit,
        at=event.at,
        tail=note.tail,
        restarts=note.restarts,
    )


def _settle(view: JobView, change: Callable[[ReplicaView], ReplicaView], at: float) -> JobView:
    replicas = tuple(change(one) for one in view.replicas)
    state, reason = _outcome(replicas)
    if state == "running" and view.state == "starting":
        state = "starting"
    if state == "stopped":
        reason = view.why_stopped or reason
    over = state in ("succeeded", "failed", "stopped")
    ended_at = (view.ended_at or at) if over else None
    return replace(view, replicas=replicas, state=state, reason=reason, ended_at=ended_at)


def _outcome(replicas: tuple[ReplicaView, ...]) -> tuple[JobState, str]:
    trouble = _trouble(replicas)
    if any(one.state not in _OVER for one in replicas):
        return ("degraded", trouble) if trouble else ("running", "")
    stopped = [one for one in replicas if one.state == "stopped"]
    if stopped:
        return "stopped", stopped[0].reason
    return ("failed", trouble) if trouble else ("succeeded", "")


def _trouble(replicas: tuple[ReplicaView, ...]) -> str:
    """Which replicas were given up or lost, and why the first of each was."""
    parts = []
    for state, words in (("given_up", "given up"), ("lost", "lost")):
        found = [one for one in replicas if one.state == state]
        if found:
            was = "was" if len(found) == 1 else "were"
            who = f"replica{'' if len(found) == 1 else 's'} {format_ranks(one.replica for one in found)}"
            parts.append(f"{who} {was} {words}: {found[0].reason}")
    return "; ".join(parts)
