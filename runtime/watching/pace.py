"""How fast a run takes its steps, and whether it has become slow: a machine over the step it is at, pure.

A look tells the number of the latest step. What a run does in a span of some looks is compared with what it
did before: it is slow when each of the last few spans is several times slower than its usual one, the median
of all spans before. So a pause (an evaluation, a checkpoint) is no slowness, as steps come at the usual pace
beside it; and where no step comes at all nothing is told: that is what the watch for hangs is for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from ..records import Slowness
from .policy import WatchPolicy

__all__ = ["Pace", "follow"]

_SPANS = 3
_LEAST_SPANS = 4
_CHANGES_IN_SPAN = 3
_MOST_LOOKS = 720


@dataclass(frozen=True, slots=True)
class Pace:
    """`done` is how many steps had been taken at each look, whatever number they began from; times are those
    of one clock. `usual` is in steps a second, and is kept while the run is slow."""

    step: int | None = None
    times: tuple[float, ...] = ()
    done: tuple[int, ...] = ()
    usual: float | None = None
    slow: Slowness | None = None


def follow(policy: WatchPolicy, pace: Pace, at: float, step: int | None) -> Pace:
    """The pace after a look that saw this step; None: it saw none, which tells nothing."""
    if step is None or (pace.times and at <= pace.times[-1]):
        return pace
    before = pace.done[-1] if pace.done else 0
    # A number below the last one begins anew: an epoch's, or that of a checkpoint.
    more = 0 if pace.step is None else step - pace.step if step >= pace.step else step
    pace = replace(
        pace,
        step=step,
        times=(*pace.times, at)[-_MOST_LOOKS:],
        done=(*pace.done, before + more)[-_MOST_LOOKS:],
    )
    return _judged(policy, pace)


def _judged(policy: WatchPolicy, pace: Pace) -> Pace:
    looks = _looks_in_span(policy, pace)
    now = len(pace.times) - 1
    begin = now - _SPANS * looks
    recent = [_rate(pace, begin + one * looks, begin + (one + 1) * looks) for one in range(_SPANS)]
    if pace.slow is not None and pace.usual is not None:
        if begin >= 0 and recent[-1] >= 2 * pace.usual / policy.slower:
            return replace(pace, slow=None, usual=None)
        return pace
    if begin < _LEAST_SPANS * looks:
        return pace
    before = [_rate(pace, at, at + looks) for at in range(begin % looks, begin, looks)]
    usual = median(before)
    steps = [at for at in range(begin + 1, now + 1) if pace.done[at] > pace.done[at - 1]]
    apart = steps[-1] - steps[0] if steps else 0  # what stopped, or has just begun again, is not slow
    if apart < looks or not all(rate * policy.slower < usual for rate in recent):
        return pace
    taken = pace.done[now] - pace.done[begin]
    lasts = pace.times[now] - pace.times[begin]
    return replace(pace, usual=usual, slow=Slowness(pace.times[begin], 1 / usual, lasts / taken))


def _looks_in_span(policy: WatchPolicy, pace: Pace) -> int:
    """Of a program that tells few of its steps a span is longer: several must be told in it."""
    changes = sum(a != b for a, b in zip(pace.done, pace.done[1:], strict=False))
    if pace.slow is not None or not changes:
        return policy.span_looks
    return max(policy.span_looks, -(-_CHANGES_IN_SPAN * (len(pace.done) - 1) // changes))


def _rate(pace: Pace, begin: int, end: int) -> float:
    """In steps a second between two looks; 0 where there is no time between them."""
    if begin < 0 or end >= len(pace.times):
        return 0.0
    return (pace.done[end] - pace.done[begin]) / (pace.times[end] - pace.times[begin])
