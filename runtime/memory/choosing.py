"""Which way is taken: those that lead there, in the order in which they are to be tried. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["NAMES", "Transport", "by_preference", "smoothed"]

# Ways of one group do the same with the same means: the fastest of them is taken, once each was measured.
# Groups are not compared: a later one needs the owner's help, or a network.
_GROUPS = (("local",), ("shared", "process_vm"), ("unix",), ("rdma",), ("tcp",))
NAMES = tuple(name for group in _GROUPS for name in group)
_NEW_COUNTS = 0.3


class Transport:
    """How a buffer's bytes are moved to and from this process.

    `name` is `local`, `shared` (a mapping), `process_vm`, `unix`, `rdma` or `tcp`; `gb_per_s` what large
    transfers reached, None until there was one; `passed_over` why the ways before it were not taken; `staged`
    at which ends (`here`, `at its owner`) a device's bytes went through memory of the host, in the last one.
    """

    __slots__ = ("gb_per_s", "name", "passed_over", "staged")

    def __init__(
        self,
        name: str,
        gb_per_s: float | None,
        passed_over: Mapping[str, str],
        staged: Collection[str] = (),
    ) -> None:
        self.name = name
        self.gb_per_s = gb_per_s
        self.passed_over = dict(passed_over)
        self.staged = tuple(sorted(staged))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        speed = "not measured" if self.gb_per_s is None else f"{self.gb_per_s:.2f} GB/s"
        others = "".join(f"; not {name}: {why}" for name, why in self.passed_over.items())
        through = f", through memory of the host {' and '.join(self.staged)}" if self.staged else ""
        return f"<{self.name}, {speed}{through}{others}>"


def by_preference(names: Collection[str], speeds: Mapping[str, float]) -> list[str]:
    """The order: by groups, in each what was not yet measured, then the fastest."""
    ordered = []
    for group in _GROUPS:
        here = [name for name in group if name in names]
        ordered += sorted(here, key=lambda name: -speeds.get(name, float("inf")))
    return ordered


def smoothed(before: float | None, now: float) -> float:
    """A speed that one slow transfer does not overturn."""
    return now if before is None else before + _NEW_COUNTS * (now - before)
