"""How a replica job stands, from what is known of its replicas: pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..runtime.job_records import JobStatus, JobView, ReplicaState, ReplicaView
from ..runtime.mesh import format_ranks
from ..runtime.records import RunView
from ..runtime.supervision import Failure
from .homes import Homes
from .results import JobItem, JobResult, ReplicaItem, bounded
from .tree_words import host_copy_words
from .verdicts import clean
from .verdicts.failures import exit_in_words
from .verdicts.tracebacks import parse_failure
from .words import clip

__all__ = ["describe_job", "describe_job_item", "failure_in_words"]

_ITEMS_SHOWN = 24
_PIDS_SHOWN = 128
_RUNS_SHOWN = 96
_LAST_LINE = 100
# What helps most comes first.
_STATE_ORDER: tuple[ReplicaState, ...] = (
    "given_up",
    "lost",
    "restarting",
    "pending",
    "running",
    "stopped",
    "succeeded",
)
_NUMBER = re.compile(r"\d+")


class _Alike(NamedTuple):
    """What replicas have in common that share an entry."""

    order: int
    restarts: int
    attempt: int
    failed_attempt: int
    reason: str
    failure: str


def describe_job(
    status: JobStatus,
    *,
    now: float,
    lease_left_s: float,
    workspace: str = "",
    homes: Homes | None = None,
    restarted: int | None = None,
) -> JobResult:
    """The job, its troubled replicas first; those that are alike share an entry.

    Args:
        now: wall clock.
        workspace: directory of the user's own code, which tracebacks are told from.
        homes: where hosts have it elsewhere.
        restarted: a replica that was started again just now.
    """
    view = status.view
    words = {
        one.replica: failure_in_words(one.failure, workspace, homes) for one in view.replicas if one.failure
    }
    groups: dict[_Alike, list[ReplicaView]] = {}
    for one in view.replicas:
        key = _Alike(
            _STATE_ORDER.index(one.state),
            -one.restarts,
            -one.attempt,
            one.failed_attempt,
            one.reason,
            _NUMBER.sub("#", words.get(one.replica, "")),
        )
        groups.setdefault(key, []).append(one)
    ordered = [groups[key] for key in sorted(groups)]
    warnings = (*host_copy_words(view.host_copies), *view.warnings)

    def build(share: float) -> JobResult:
        shown = ordered[: max(3, int(_ITEMS_SHOWN * share))]
        return JobResult(
            job=view.job,
            mesh=view.mesh,
            state=view.state,
            reason=_reason(view, int(300 * share)),
            replicas=_by_state(view.replicas, int(200 * share)),
            procs_per_replica=view.request.procs_per_replica,
            restarts=sum(one.restarts for one in view.replicas),
            replica_list=[_item(members, status.runs, words, share) for members in shown],
            more=sum(len(members) for members in ordered[len(shown) :]),
            command=clip(view.command, int(200 * share)),
            duration_s=_duration(view, now),
            lease_left_s=round(lease_left_s),
            warnings=[clip(warning, int(300 * share)) for warning in warnings[:5]],
            next=_next(view, restarted),
        )

    return bounded(build)


def describe_job_item(view: JobView, now: float, share: float = 1.0) -> JobItem:
    """A job as one entry of a list."""
    return JobItem(
        job=view.job,
        state=view.state,
        reason=_reason(view, int(120 * share)),
        replicas=_by_state(view.replicas, int(60 * share)),
        command=clip(view.command, int(100 * share)),
        duration_s=_duration(view, now),
    )


def failure_in_words(failure: Failure, workspace: str = "", homes: Homes | None = None) -> str:
    """One line: `rank 1, exit 1: ValueError: no such layer`; without an exception, its last output line."""
    if failure.exit is None:
        return clean(failure.summary())
    who = f"rank {format_ranks(failure.ranks)}, " if failure.ranks else ""
    text = clean("\n".join(failure.tail))
    text = text if homes is None else homes.text(text)
    found = parse_failure(text, workspace=workspace) if text else None
    said = str(found) if found is not None else clip(_last_line(text), _LAST_LINE)
    if found is not None and found.file:
        said += f" ({found.file}:{found.line})"
    how = exit_in_words(failure.exit)
    if found is not None and failure.exit.ended_by == "peer_failed":
        # It raised what others lost their connection by, and was ended for that before it had left.
        who, how = who.removesuffix(", "), ""
    line = f"{who}{how}" + (f": {said}" if said else "")
    return " ".join(line.split())


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _item(
    members: Sequence[ReplicaView], runs: Mapping[int, RunView], words: Mapping[int, str], share: float
) -> ReplicaItem:
    first = members[0]
    pids = {
        str(one.replica): [rank.pid for rank in runs[one.replica].ranks if rank.pid and rank.ended_at is None]
        for one in members
        if one.replica in runs
    }
    pids = {replica: found for replica, found in pids.items() if found}
    if sum(len(found) for found in pids.values()) > int(_PIDS_SHOWN * share):
        pids = {}
    named = [one for one in members if one.run][: int(_RUNS_SHOWN * share)]
    return ReplicaItem(
        replicas=clip(format_ranks(one.replica for one in members), int(200 * share)),
        state=first.state,
        reason=clip(clean(first.reason), int(160 * share)),
        attempt=first.attempt,
        restarts=first.restarts,
        failed_attempt=first.failed_attempt,
        last_failure=clip(words.get(first.replica, ""), int(240 * share)),
        hosts=clip(format_ranks(one.host for one in members), int(120 * share)),
        runs={str(one.replica): one.run for one in named},
        pids=pids,
    )


def _by_state(replicas: Iterable[ReplicaView], limit: int) -> dict[str, str]:
    members: dict[ReplicaState, list[int]] = {}
    for one in replicas:
        members.setdefault(one.state, []).append(one.replica)
    return {state: clip(format_ranks(members[state]), limit) for state in _STATE_ORDER if state in members}


def _reason(view: JobView, limit: int) -> str:
    return "" if view.reason == view.state else clip(clean(view.reason), limit)


def _duration(view: JobView, now: float) -> float:
    return round(max(0.0, (view.ended_at or now) - view.created_at), 2)


def _next(view: JobView, restarted: int | None = None) -> str:
    by_state = {one.state: one for one in reversed(view.replicas)}
    if view.state == "succeeded":
        return f"read_run_output(run={view.replicas[0].run!r}) has what replica 0 wrote."
    if restarted is not None and view.replicas[restarted].state == "running":
        return _wait_for_news(view, view.replicas[restarted])
    given_up, lost = by_state.get("given_up"), by_state.get("lost")
    if given_up is not None and given_up.run:
        look = f"read_run_output(run={given_up.run!r}) has why"
        if view.state in ("failed", "stopped"):  # it has ended: none of it can be restarted
            return f"{look}; then start_replicas again."
        return f"{look}; then restart_replica(job={view.job!r}, replica={given_up.replica})."
    if lost is not None:
        return f"mesh_status(mesh={view.mesh!r}) tells which host is gone; its replicas do not come back."
    if view.state == "stopped":
        return ""
    failed = by_state.get("restarting")
    if failed is not None and failed.run:
        return f"read_run_output(run={failed.run!r}) has why replica {failed.replica} failed."
    back = [one for one in view.replicas if one.state == "running" and one.attempt > 1]
    return _wait_for_news(view, max(back, key=lambda one: (one.restarts, one.attempt), default=None))


def _wait_for_news(view: JobView, back: ReplicaView | None) -> str:
    run = back.run if back is not None else ""
    look = f"; stack_dump(target={run!r}) if replica {back.replica} does not go on" if back and run else ""
    return f"replica_status(job={view.job!r}, wait_s=40) waits for news{look}."
