"""Rules for what a run computes: numbers that are not finite, losses that do not fall, or part. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ....runtime.metrics.series import BadValue, RankMetrics
from .case import RankCase, RunCase, names, spans
from .finding import Finding

__all__ = ["find_bad_numbers"]

_LEAST_POINTS = 12
_RISES = 1.5
_FALLS = 0.98
_PART = 0.5
_ALIKE = 0.7
_BEGINS = (1, 3)
_GROWS = 2.0
_COUNTS = 0.03
# Of what all replicas have the same: logarithms of ratios, since a step may have been made before the first.
_SAME = 0.25
_PARTED = 0.2
_PARTS_BY = 3.0
_NOT_AVERAGED = (
    "Gradients of these ranks are not averaged with the others': check what is wrapped in"
    " DistributedDataParallel, no_sync, and which parameters are reduced."
)


def find_bad_numbers(case: RunCase) -> Iterator[Finding]:
    bad = [(one, value) for one in case.ranks if one.metrics for value in _lasting(one.metrics)]
    if bad:
        yield _not_finite(case, bad)
        return
    yield from _loss(case)
    yield from _parting(case)


def _lasting(metrics: RankMetrics) -> Iterator[BadValue]:
    """Metrics that became NaN or infinite and stayed so: a step that was skipped for an overflow is none."""
    for bad in metrics.first_bad:
        last = next(
            (point.values[bad.name] for point in reversed(metrics.points) if bad.name in point.values), None
        )
        if last is not None and not math.isfinite(last):
            yield bad


def _not_finite(case: RunCase, bad: Sequence[tuple[RankCase, BadValue]]) -> Finding:
    losses = [one for one in bad if "loss" in one[1].name.lower()] or list(bad)
    first_rank, first = min(losses, key=lambda one: (one[1].step is None, one[1].step or 0, one[0].rank))
    ranks = sorted({rank.rank for rank, _ in losses})
    what = "NaN" if math.isnan(first.value) else "infinite"
    when = f" from step {first.step} on" if first.step is not None else ""
    before = f", {first.last_finite:.4g} before" if first.last_finite is not None else ""
    others = [value for rank, value in bad if rank is first_rank and value.name != first.name]
    evidence = [f"rank {first_rank.rank} ({_source(first_rank)}): {_path(first_rank, first.name)}"]
    evidence += [f"{one.name} is {one.value} from step {one.step} on" for one in others[:2]]
    if len(ranks) < case.world_size and _told(case) > len(ranks):
        evidence.append(f"only on {names(ranks)}")
    return Finding(
        "nan_loss",
        88,
        f"{first.name} is {what}{when} (rank {spans([first_rank.rank])}{before}).",
        tuple(ranks),
        tuple(evidence),
        "Look at that step's data and learning rate; torch.autograd.set_detect_anomaly(True) names the"
        " operation.",
    )


def _source(rank: RankCase) -> str:
    return rank.metrics.source if rank.metrics is not None else ""


def _told(case: RunCase) -> int:
    return sum(one.metrics is not None and bool(one.metrics.names) for one in case.ranks)


def _path(rank: RankCase, name: str) -> str:
    """The values around a step: `2.31, 2.40, nan`."""
    points = [point for point in rank.metrics.points if name in point.values] if rank.metrics else []
    at = next((i for i, point in enumerate(points) if not math.isfinite(point.values[name])), len(points) - 1)
    near = points[max(0, at - 3) : at + 2]
    return f"{name} " + ", ".join(
        f"{point.values[name]:.4g}" + (f" (step {point.step})" if point.step is not None else "")
        for point in near
    )


def _series(metrics: RankMetrics | None) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for point in metrics.points if metrics is not None else ():
        for name, value in point.values.items():
            if math.isfinite(value):
                found.setdefault(name, []).append(value)
    return found


def _ends(values: Sequence[float], begin: int | None = None) -> tuple[float, float]:
    """Medians of the first (of `begin` values) and of the last quarter."""
    part = max(3, len(values) // 4)
    first = begin or part
    return sorted(values[:first])[first // 2], sorted(values[-part:])[part // 2]


def _loss_name(series: dict[str, list[float]]) -> str:
    named = [name for name in series if "loss" in name.lower()]
    return min(named, key=lambda name: ("val" in name or "eval" in name, len(name)), default="")


def _loss(case: RunCase) -> Iterator[Finding]:
    falls_not = []
    for one in case.ranks:
        series = _series(one.metrics)
        name = _loss_name(series)
        if name and len(series[name]) >= _LEAST_POINTS:
            first, last = _ends(series[name])
            if first <= 0 or last < _FALLS * first:
                return
            falls_not.append((one, name, first, last))
    if not falls_not:
        return
    one, name, first, last = falls_not[0]
    rises = last > _RISES * first
    count = one.metrics.count if one.metrics is not None else 0
    yield Finding(
        "loss_not_falling",
        66 if rises else 60,
        f"{name} {'rises' if rises else 'does not fall'}: {first:.4g} at first, {last:.4g} at last,"
        f" over {count} values.",
        tuple(rank.rank for rank, *_ in falls_not),
        (f"rank {one.rank} ({_source(one)})",),
        "Check that the optimizer has the model's parameters, that gradients reach them (zero_grad, detach,"
        " requires_grad), and the learning rate.",
    )


def _parting(case: RunCase) -> Iterator[Finding]:
    """One rank's metrics part from the others', that were alike at first."""
    told = {one.rank: _series(one.metrics) for one in case.ranks if one.metrics is not None}
    if len(told) < 2:
        return
    for name in dict.fromkeys(name for series in told.values() for name in series):
        ends = {
            rank: _ends(series[name])
            for rank, series in told.items()
            if name in series and len(series[name]) >= _LEAST_POINTS // 2
        }
        if len(ends) < 2 or not _means_state(name):
            continue
        begins = [sorted(_ends(told[rank][name], begin)[0] for rank in ends) for begin in _BEGINS]
        firsts = min(begins, key=lambda values: _apart(values[0], values[-1]))
        lasts = sorted(last for _, last in ends.values())
        middle_first, middle = firsts[len(firsts) // 2], lasts[len(lasts) // 2]
        at_first, at_last = _apart(firsts[0], firsts[-1]), _apart(lasts[0], lasts[-1])
        if _is_of_weights(name) and at_first < _SAME and at_last > max(_PARTED, _PARTS_BY * at_first):
            yield Finding(
                "replicas_diverge",
                76,
                f"{name} differs between ranks, {lasts[0]:.4g} to {lasts[-1]:.4g}, and began alike.",
                tuple(sorted(ends)),
                (", ".join(f"rank {rank}: {ends[rank][1]:.4g} at last" for rank in sorted(ends)[:4]),),
                _NOT_AVERAGED,
            )
            return
        if at_first > _ALIKE or at_last < _GROWS * at_first:
            continue
        # What is small beside all that has changed is noise: losses near zero are many times each other.
        counts = _COUNTS * max(abs(middle_first), abs(middle))
        odd = [
            rank for rank, (_, last) in ends.items() if abs(last - middle) > max(_PART * abs(middle), counts)
        ]
        if odd and len(odd) <= len(ends) // 2:
            words = ", ".join(
                f"rank {rank}: {ends[rank][0]:.4g} to {ends[rank][1]:.4g}" for rank in sorted(ends)[:4]
            )
            yield Finding(
                "replicas_diverge",
                74,
                f"{name} of {names(odd)} parts from that of the other ranks, which began alike.",
                tuple(odd),
                (words,),
                _NOT_AVERAGED,
            )
            return


def _is_of_weights(name: str) -> bool:
    """Whether replicas have the same of it, whatever data they see."""
    return re.search(r"(?:param(?:eter)?|weight)s?_?norm", name.lower()) is not None


def _means_state(name: str) -> bool:
    return any(
        word in name.lower() for word in ("loss", "norm", "acc", "weight", "param", "ppl", "perplexity")
    )


def _apart(low: float, high: float) -> float:
    """The logarithm of their ratio; of numbers that are not above zero, their distance."""
    return math.log(high / max(low, 1e-9)) if high > 0 and low >= 0 else high - low
