"""Events of a mesh as lines: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..runtime.mesh import format_ranks
from .verdicts import clean
from .verdicts.failures import exit_in_words
from .words import clock

if TYPE_CHECKING:
    from ..runtime.index import MeshEvent
    from ..runtime.records import HostEvent

__all__ = ["fold_events"]


def fold_events(events: Iterable[MeshEvent]) -> list[str]:
    """A line for each event; ranks of one run to which the same happened, one after another, share a line."""
    lines: list[str] = []
    for key, group in groupby(events, _same_event):
        members = list(group)
        ranks = sorted({one.event.rank for one in members if one.event.rank is not None})
        what, hosts = members[-1].event, sorted({one.host for one in members})
        where = "keeper" if hosts[0] < 0 else f"host{'s' if len(hosts) > 1 else ''} {format_ranks(hosts)}"
        who = f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}" if ranks else ""
        subject = what.run if what.note is None else _replicas(members)
        words = (clock(what.at), where, what.kind, subject, who, *key[2:])
        lines.append(" ".join(word for word in words if word))
    return lines


def _replicas(members: Sequence[MeshEvent]) -> str:
    notes = [one.event.note for one in members if one.event.note is not None]
    numbers = format_ranks(note.replica for note in notes)
    plural = "s" if len({note.replica for note in notes}) > 1 else ""
    return f"{notes[-1].job} replica{plural} {numbers}, attempt {notes[-1].attempt}"


def _same_event(one: MeshEvent) -> tuple[str, ...]:
    """Equal for neighbours that differ in nothing but their rank, host or replica."""
    what = one.event
    if what.note is not None:
        ended = exit_in_words(what.exit) if what.exit is not None else ""
        return (f"{what.kind} {what.note.job} {what.note.attempt}", "", ended, _detail(what))
    apart = "keeper" if one.host < 0 else ""
    ended = exit_in_words(what.exit) if what.exit is not None else ""
    return (f"{what.kind} {what.run}", apart, ended, _detail(what))


def _detail(event: HostEvent) -> str:
    if event.kind != "run_still":
        return clean(event.detail)
    try:
        return f"since {clock(float(event.detail))}"
    except (ValueError, OverflowError, OSError):
        return clean(event.detail)
