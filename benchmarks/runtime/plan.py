"""What a line measures: its program, its options, its rows, their targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "ALL",
    "BOTH",
    "EVERY",
    "LINES",
    "MEMORY_LINES",
    "MOUNT_LINES",
    "Plan",
    "Program",
    "Row",
    "Side",
    "module_of",
]

Side = Literal["ours", "monarch", "bare", "nixl"]
BOTH: tuple[Side, ...] = ("ours", "monarch")
ALL: tuple[Side, ...] = (*BOTH, "bare")
EVERY: tuple[Side, ...] = (*ALL, "nixl")

LINES = ("spawn", "call", "fanout", "rate", "payload", "death", "stacks", "torchrun", "memory")
"""Modules of `lines/`: each has `plans(quick)` and a `Measured`, the program that every side runs."""
MEMORY_LINES = ("onesided", "network", "broadcast")
"""Those of `make bench-memory`."""
MOUNT_LINES = (
    "mounts.small_tree",
    "mounts.spreading",
    "mounts.large_tree",
    "mounts.environment",
    "mounts.in_mesh",
    "mounts.writing",
    "mounts.gathering",
)
"""Those of `make bench-mounts`, in `benchmarks/mounts/lines/`."""


def module_of(line: str) -> str:
    """The module that has a line."""
    package, _, name = line.rpartition(".")
    return f"benchmarks.{package or 'runtime'}.lines.{name}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. Met is its `limit` (the least where `more` is better) or `times` better than Monarch; where
    `bare` is given, so many times as good as the bare side, and `times` too.

    `why` is what keeps it from that where it has been missed, told when it is.
    """

    metric: str
    title: str
    unit: str
    limit: float | None = None
    times: float | None = None
    bare: float | None = None
    more: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A program with its options, in `rounds` samples a side.

    `env` is added to a side's environment, `timeout_s` is for one sample, `setup_s` for the set-up.
    """

    rows: tuple[Row, ...]
    rounds: int
    options: Mapping[str, Any] = field(default_factory=dict)
    sides: tuple[Side, ...] = BOTH
    env: Mapping[Side, Mapping[str, str]] = field(default_factory=dict)
    timeout_s: float = 60.0
    setup_s: float = 120.0
    note: str = ""


class Program:
    """What a line runs on each side; its options are the keywords of its constructor."""

    async def open(self) -> None:
        """Sets up, outside of what is measured."""

    async def sample(self) -> Mapping[str, float | str]:
        """Figures of one round by metric; one that the side cannot give is left out. A text is a note."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends what was started."""
