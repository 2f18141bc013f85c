"""What changes between two looks at the index: records and a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Changes", "Glance", "compare"]


@dataclass(frozen=True, slots=True)
class Glance:
    """The live meshes, and runs that are unfinished or among the latest; each with a stamp that is another
    one after a change.

    `events`: by live mesh, the number of its last event, of all hosts together. `names`: the ids of live
    meshes by their names.
    """

    meshes: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids of what is not as it was; what came and what ended is among them. `listed`: something did."""

    meshes: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    listed: bool = False


def compare(before: Glance, after: Glance) -> Changes:
    return Changes(
        meshes=_changed(before.meshes, after.meshes),
        runs=_changed(before.runs, after.runs),
        events=_changed(before.events, after.events),
        listed=(before.meshes.keys() != after.meshes.keys() or not after.runs.keys() <= before.runs.keys()),
    )


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> frozenset[str]:
    return frozenset(one for one in {**before, **after} if before.get(one) != after.get(one))
