"""By how much a host's clock is ahead of the keeper's."""

from __future__ import annotations

import time

from ..checking import Clock
from ..services.fitness import Fitness
from .links import HostLink

__all__ = ["measure_clock"]


async def measure_clock(link: HostLink, *, rounds: int, within_s: float) -> Clock:
    """Of several round trips the shortest tells it best.

    Raises:
        MilkweedError: the host does not answer, each time within `within_s`.
    """
    best: Clock | None = None
    for _ in range(rounds):
        began, asked = time.time(), time.perf_counter()
        there = await link.look_within(within_s, Fitness, Fitness.clock)
        half = (time.perf_counter() - asked) / 2
        if best is None or half < best.within:
            best = Clock(there - (began + half), half)
    assert best is not None
    return best
