"""The life of a run as a pure state machine: host events in, a new view and actions out.

A rank goes pending -> running -> succeeded | failed | ended | lost and never back. The run's state follows
from its ranks. When one rank fails, the others mostly wait for it for ever: after `PEER_GRACE_S`, in which
they may still tell what they saw, the keeper ends them; `keep_going` leaves them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..mesh import format_ranks
from ..records import EndReason, Exit, HostEvent, RankState, RankView, RunState, RunView, Slowness

__all__ = ["PEER_GRACE_S", "EndRanks", "fold", "is_over", "lose_host", "peers_to_end", "was_on"]

PEER_GRACE_S = 5.0
_JUST_NOW_S = 5.0
_OVER: frozenset[RankState] = frozenset({"succeeded", "failed", "ended", "lost"})


@dataclass(frozen=True, slots=True)
class EndRanks:
    """Action: end these ranks at `at` (wall clock), since others failed."""

    run: str
    ranks: tuple[int, ...]
    at: float
    reason: EndReason = "peer_failed"


def is_over(view: RunView) -> bool:
    return view.state not in ("queued", "running")


def fold(view: RunView, event: HostEvent, host: int | None = None) -> RunView:
    """The view after one event of a host; events of another run, repeated and late ones change nothing."""
    if event.run != view.run:
        return view
    if event.kind in ("run_still", "run_moves"):
        return _join(_stand(view, host, _since(event) if event.kind == "run_still" else None))
    if event.kind in ("run_slow", "run_at_pace"):
        return _join(_slow(view, host, event.slow))
    if event.rank is None:
        return view
    return _join(_fold_rank(view, event))


def _fold_rank(view: RunView, event: HostEvent) -> RunView:
    if event.kind == "rank_started" and event.rank is not None:
        return _update(view, event.rank, "running", event, started_at=event.at, start=event.detail)
    if event.kind in ("rank_exited", "rank_failed_to_start") and event.rank is not None:
        ending = event.exit or Exit(error=event.detail or "it never started")
        if event.rank < 0:
            return _launcher_ended(view, event, ending)
        return _settle(
            _update(view, event.rank, _state_after(ending), event, ended_at=event.at, ending=ending)
        )
    return view


def _since(event: HostEvent) -> float:
    try:
        return float(event.detail)
    except ValueError:
        return event.at


def _stand(view: RunView, host: int | None, since: float | None) -> RunView:
    """A host says of its part that it stands still since then, or moves."""
    ranks = tuple(
        replace(rank, still_since=since) if rank.host == host and rank.state not in _OVER else rank
        for rank in view.ranks
    )
    return view if ranks == view.ranks else replace(view, ranks=ranks)


def _slow(view: RunView, host: int | None, slow: Slowness | None) -> RunView:
    """A host says of its part that it has become slow, or (None) is at its pace again."""
    ranks = tuple(
        replace(rank, slow=slow) if rank.host == host and rank.state not in _OVER else rank
        for rank in view.ranks
    )
    return view if ranks == view.ranks else replace(view, ranks=ranks)


def _join(view: RunView) -> RunView:
    """What all hosts say together: a run stands still when all that lives of it does.

    Ranks that have not started are not there yet, unless their launcher stands still.
    """
    counted = [
        rank
        for rank in view.ranks
        if rank.state == "running"
        or (rank.still_since is not None and rank.state == "pending")
        or (rank.exit is not None and rank.exit.ended_by is not None)
    ]
    times = [rank.still_since for rank in counted if rank.still_since is not None]
    since = max(times) if times and len(times) == len(counted) else None
    slow = max(
        (rank.slow for rank in view.ranks if rank.slow is not None and rank.state == "running"),
        key=lambda one: one.step_s / one.usual_s,
        default=None,
    )
    if (since, slow) == (view.still_since, view.slow):
        return view
    return replace(view, still_since=since, slow=slow)


def lose_host(view: RunView, host: int, at: float) -> RunView:
    """The view after a host died: what it had running is lost."""
    if is_over(view):
        return view
    ranks = tuple(
        replace(rank, state="lost", ended_at=at) if rank.host == host and rank.state not in _OVER else rank
        for rank in view.ranks
    )
    if ranks == view.ranks:
        return view
    return _join(_settle(replace(view, ranks=ranks, reason=f"host {host} was lost")))


def was_on(view: RunView, host: int, at: float) -> bool:
    """Whether what happened on a host at a time may concern the run: it has ranks there, or just had."""
    ended = at if view.ended_at is None else view.ended_at
    return ended >= at - _JUST_NOW_S and any(rank.host == host for rank in view.ranks)


def peers_to_end(view: RunView) -> EndRanks | None:
    """What to end since other ranks failed or were lost; None while nothing failed or nothing runs."""
    if view.keep_going or is_over(view) or view.launcher not in ("spmd", "torchrun"):
        return None
    failed = [rank.ended_at or 0.0 for rank in view.ranks if rank.state in ("failed", "lost")]
    running = tuple(rank.rank for rank in view.ranks if rank.state not in _OVER)
    return EndRanks(view.run, running, min(failed) + PEER_GRACE_S) if failed and running else None


def _state_after(ending: Exit) -> RankState:
    if ending.ended_by == "host_ended":
        return "lost"
    if ending.ended_by is not None:
        return "ended"
    return "succeeded" if ending.ok else "failed"


def _update(
    view: RunView,
    number: int,
    state: RankState,
    event: HostEvent,
    *,
    started_at: float | None = None,
    ended_at: float | None = None,
    ending: Exit | None = None,
    start: str = "",
) -> RunView:
    def change(rank: RankView) -> RankView:
        if rank.rank != number or rank.state in _OVER:
            return rank
        return replace(
            rank,
            state=state,
            pid=event.pid if event.pid is not None else rank.pid,
            started_at=started_at or rank.started_at,
            ended_at=ended_at,
            exit=ending,
            start=start or rank.start,
            still_since=rank.still_since if ending is not None and ending.ended_by is not None else None,
        )

    return replace(view, ranks=tuple(change(rank) for rank in view.ranks))


def _launcher_ended(view: RunView, event: HostEvent, ending: Exit) -> RunView:
    """A launcher process (torchrun) of host -1 - rank is gone; ranks it never told of share its fate."""
    host = -1 - (event.rank or 0)
    state = _state_after(ending)
    ranks = tuple(
        replace(rank, state=state, ended_at=event.at, exit=ending)
        if rank.host == host and rank.state not in _OVER
        else rank
        for rank in view.ranks
    )
    return _settle(replace(view, ranks=ranks))


def _settle(view: RunView) -> RunView:
    if is_over(view) or any(rank.state not in _OVER for rank in view.ranks):
        return view
    state, reason = _outcome(view.ranks)
    ended = max((rank.ended_at or view.created_at for rank in view.ranks), default=view.created_at)
    return replace(view, state=state, ended_at=ended, reason=view.reason or reason)


def _outcome(ranks: Sequence[RankView]) -> tuple[RunState, str]:
    by_state = {state: [rank for rank in ranks if rank.state == state] for state in _OVER}
    why = {rank.exit.ended_by for rank in by_state["ended"] if rank.exit}
    if why & {"cancelled", "released"} and not by_state["lost"]:
        return "cancelled", "cancelled" if "cancelled" in why else "the mesh was released"
    if "timeout" in why:
        return "failed", "timed out"
    if by_state["failed"]:
        return "failed", f"{_named(by_state['failed'])} failed"
    if "lease_ended" in why:
        return "cancelled", "the lease ended"
    if by_state["lost"]:
        return (
            "lost",
            f"ranks {format_ranks(rank.rank for rank in by_state['lost'])} were lost with their host",
        )
    if by_state["ended"]:
        return "failed", "ended by Milkweed"
    return "succeeded", ""


def _named(ranks: Sequence[RankView]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(rank.rank for rank in ranks)}"
