"""How the procs of controllers are, in a line for each of their meshes: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..runtime.mesh import format_ranks
from ..runtime.proc_records import ProcHealth, ProcOfRun
from .words import clip

__all__ = ["describe_procs"]

_BUSY_S = 5.0
_WHERE = 80
_MOST_STATES = 4
_TROUBLE = ("holds_gil", "blocked", "stopped", "silent")


def describe_procs(procs: Sequence[ProcOfRun], now: float) -> list[str]:
    """`run-7qd workers 0-7: 6 ok; 3 holds_gil for 40 s at spin (a.py:3)`, a line for each mesh of procs.

    A proc counts as busy after five seconds in one endpoint.

    Args:
        now: wall clock.
    """
    named = sorted(((one.run, *_name(one.health.proc), one.health) for one in procs), key=lambda one: one[:3])
    lines = []
    for (run, mesh), members in groupby(named, key=lambda one: one[:2]):
        ranks = {rank: health for _, _, rank, health in members}
        lines.append(" ".join(filter(None, (run, mesh, f"{format_ranks(ranks)}: {_states(ranks, now)}"))))
    return lines


def _name(proc: str) -> tuple[str, int]:
    mesh, _, rank = proc.rpartition("-")
    return (mesh, int(rank)) if mesh and rank.isdecimal() else (proc, 0)


def _states(ranks: dict[int, ProcHealth], now: float) -> str:
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, health in ranks.items():
        busy = health.state == "busy" and now - health.since >= _BUSY_S
        key = (health.state, health.where) if busy or health.state in _TROUBLE else ("ok", "")
        alike.setdefault(key, []).append(rank)
    fine = len(alike.pop(("ok", ""), ()))
    words = [f"{fine} ok"] * bool(fine)
    for (state, where), members in list(alike.items())[:_MOST_STATES]:
        longest = max((now - ranks[rank].since for rank in members if ranks[rank].since), default=0.0)
        words.append(
            f"{format_ranks(members)} {state}"
            + (f" for {longest:.0f} s" if longest >= 1 else "")
            + (f" at {clip(where, _WHERE)}" if where else "")
        )
    rest = sum(map(len, list(alike.values())[_MOST_STATES:]))
    words += [f"{rest} otherwise"] * bool(rest)
    return "; ".join(words)
