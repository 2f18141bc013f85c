"""Metrics of one rank as records, of a size that does not grow with the run. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["MOST_POINTS", "BadValue", "MetricPoint", "RankMetrics", "collect"]

MOST_POINTS = 200
_MOST_BAD = 20
_MOST_SERIES = 8


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """What was told at once. `step` and `at` (wall clock) are None where they were not told."""

    step: int | None
    at: float | None
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadValue:
    """The first NaN or infinity of a metric, and its last finite value before it."""

    name: str
    step: int | None
    value: float
    last_finite: float | None = None


@dataclass(frozen=True, slots=True)
class RankMetrics:
    """`source` says where they were read: `milkweed.report`, a file, or `printed lines`.

    `shared`: it is a file below the rank's directory that none of its processes has open, so another rank
    may have written it.

    `points` are at most 200 of the `count` that were read, the first and the last among them, and each with
    the first bad value of a metric; what is told seldom is left out last. `note`: why there is less than
    there was.
    """

    source: str
    count: int
    first: MetricPoint
    last: MetricPoint
    points: tuple[MetricPoint, ...] = ()
    first_bad: tuple[BadValue, ...] = ()
    note: str = ""
    shared: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of all kept points, in the order in which they came."""
        return tuple(dict.fromkeys(name for point in self.points for name in point.values))


def collect(source: str, points: Iterable[MetricPoint], note: str = "") -> RankMetrics | None:
    """All points as one record; None where there are none. Points of one step in a row are one."""
    series: dict[frozenset[str], _Series] = {}
    finite: dict[str, float] = {}
    bad: dict[str, BadValue] = {}
    count = 0
    first = last = None
    for point in _merged(points):
        found = _first_bad(point, finite, bad)
        first, last = first or point, point
        names = frozenset(point.values)
        if names not in series and len(series) >= _MOST_SERIES:
            names = next(iter(series))
        series.setdefault(names, _Series()).add(count, point, found)
        count += 1
    if first is None or last is None:
        return None
    chosen = _thinned(tuple(series.values()))
    if chosen[-1] != last:
        chosen = (*chosen, last)
    return RankMetrics(source, count, first, last, chosen, tuple(bad.values()), note)


@dataclass(slots=True)
class _Series:
    """Points that tell the same metrics: a validation every hundred steps is not lost among the steps."""

    kept: list[tuple[int, MetricPoint, bool]] = field(default_factory=list)
    count: int = 0
    _every: int = 1

    def add(self, number: int, point: MetricPoint, is_bad: bool) -> None:
        if is_bad or self.count % self._every == 0:
            self.kept.append((number, point, is_bad))
        self.count += 1
        if len(self.kept) > 2 * MOST_POINTS:
            self._every *= 2
            others = [one for one in self.kept if not one[2]][::2]
            pinned = [one for one in self.kept if one[2]]
            self.kept = sorted((*others, *pinned), key=lambda one: one[0])


def _merged(points: Iterable[MetricPoint]) -> Iterable[MetricPoint]:
    """TensorBoard writes an event a metric; what tells another value of one metric is another point."""
    current: MetricPoint | None = None
    for point in points:
        if (
            current is not None
            and point.step is not None
            and point.step == current.step
            and not set(point.values) & set(current.values)
        ):
            current = replace(current, values={**current.values, **point.values})
            continue
        if current is not None:
            yield current
        current = point
    if current is not None:
        yield current


def _first_bad(point: MetricPoint, finite: dict[str, float], bad: dict[str, BadValue]) -> bool:
    found = False
    for name, value in point.values.items():
        if math.isfinite(value):
            finite[name] = value
        elif name not in bad and len(bad) < _MOST_BAD:
            bad[name] = BadValue(name, point.step, value, finite.get(name))
            found = True
    return found


def _thinned(series: Sequence[_Series]) -> tuple[MetricPoint, ...]:
    """One less than allowed: the last point may have to follow. Short series get their room first."""
    pinned = {number: point for one in series for number, point, is_bad in one.kept if is_bad}
    room = MOST_POINTS - 1 - len(pinned)
    chosen = dict(pinned)
    waiting = sorted(([one for one in each.kept if not one[2]] for each in series), key=len)
    for place, others in enumerate(waiting):
        share = min(len(others), max(0, room) // (len(waiting) - place))
        room -= share
        chosen.update(others[at * len(others) // share][:2] for at in range(share))
    return tuple(chosen[number] for number in sorted(chosen))
