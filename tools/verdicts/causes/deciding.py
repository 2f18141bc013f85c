"""From findings to a verdict: the cause, or the two likeliest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .case import RunCase
from .collectives import is_moving
from .deaths import find_deaths
from .devices import find_device_faults
from .drift import find_drift
from .finding import Finding
from .hangs import find_hangs
from .leaving import find_leaving
from .numbers import find_bad_numbers
from .raised import find_raised
from .resources import find_shortages
from .starting import find_starting

__all__ = ["Diagnosis", "diagnose"]

_RULES: tuple[Callable[[RunCase], Iterator[Finding]], ...] = (
    find_raised,
    find_shortages,
    find_deaths,
    find_device_faults,
    find_leaving,
    find_hangs,
    find_starting,
    find_bad_numbers,
    find_drift,
)
# A second finding is told when it is about as likely as the first.
_ABOUT = 12
_LEAST = 45


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`cause` is None where nothing is wrong as far as can be seen; `other` is one that may be it instead.

    `progress`: ranks were seen to get on while they were looked at.
    """

    cause: Finding | None
    other: Finding | None = None
    progress: bool = False


def diagnose(case: RunCase) -> Diagnosis:
    """The likeliest cause of what a run does, of all that the rules find."""
    best: dict[str, Finding] = {}
    for rule in _RULES:
        for found in rule(case):
            if found.certainty >= _LEAST and found.certainty > (
                best[found.kind].certainty if found.kind in best else 0
            ):
                best[found.kind] = found
    ordered = sorted(best.values(), key=lambda one: -one.certainty)
    cause = ordered[0] if ordered else None
    other = next((one for one in ordered[1:] if cause and cause.certainty - one.certainty < _ABOUT), None)
    return Diagnosis(cause, other, progress=is_moving(case))
