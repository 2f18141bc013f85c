"""From samples to figures: medians, spreads, paired ratios, verdicts. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .plan import Row, Side

__all__ = ["Figure", "Verdict", "percentile", "spread"]

Verdict = Literal["met", "missed", "not measured", ""]


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest of the values."""
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile, of few values the least and the most."""
    if len(values) < 4:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4)
    return low, high


@dataclass(frozen=True, slots=True)
class Figure:
    """A row with the samples of each side, in the order of the rounds, or why there are none."""

    line: str
    row: Row
    samples: Mapping[Side, Sequence[float]]
    failed: Mapping[Side, str]
    note: str = ""

    def median(self, side: Side) -> float | None:
        values = self.samples.get(side)
        return statistics.median(values) if values else None

    def times(self, side: Side = "monarch") -> float | None:
        """How many times better ours is than the side: above 1 is better."""
        ours, theirs = self.median("ours"), self.median(side)
        return None if not ours or not theirs else self._better(ours, theirs)

    def pairs(self) -> tuple[float, ...]:
        """As `times`, of Monarch, round by round."""
        both = zip(self.samples.get("ours", ()), self.samples.get("monarch", ()), strict=False)
        return tuple(self._better(ours, theirs) for ours, theirs in both if ours and theirs)

    def _better(self, ours: float, theirs: float) -> float:
        return ours / theirs if self.row.more else theirs / ours

    @property
    def verdict(self) -> Verdict:
        if self.row.limit is None and self.row.times is None and self.row.bare is None:
            return ""
        ours = self.median("ours")
        if ours is None:
            return "not measured"
        if self.row.bare is not None:
            return self._verdict_beside_bare(self.row.bare)
        limit, times = self.row.limit, self.times()
        within = limit is not None and (ours >= limit if self.row.more else ours <= limit)
        ahead = self.row.times is not None and times is not None and times >= self.row.times
        if within or ahead:
            return "met"
        return "missed" if limit is not None or times is not None else "not measured"

    def _verdict_beside_bare(self, least: float) -> Verdict:
        bare, times = self.times("bare"), self.times()
        if bare is None or (times is None and self.row.times is not None):
            return "not measured"
        ahead = self.row.times is None or (times is not None and times >= self.row.times)
        return "met" if bare >= least and ahead else "missed"

    def as_json(self) -> dict[str, Any]:
        sides = {
            side: {
                "median": self.median(side),
                "spread": spread(values),
                "runs": len(values),
                "values": list(values),
            }
            for side, values in self.samples.items()
            if values
        }
        pairs = self.pairs()
        return {
            "line": self.line,
            "title": self.row.title,
            "unit": self.row.unit,
            "more_is_better": self.row.more,
            "sides": sides,
            "failed": dict(self.failed),
            "times_better": self.times(),
            "times_better_spread": spread(pairs) if pairs else None,
            "times_bare": self.times("bare"),
            "target": {"limit": self.row.limit, "times": self.row.times, "bare": self.row.bare},
            "verdict": self.verdict,
            "note": self.note,
        }
