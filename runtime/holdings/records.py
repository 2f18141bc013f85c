"""What is known of files that only a host has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["HeldFile", "HostHoldings", "Place"]

Place = Literal["workspace", "scratch", "temporary"]
"""Written over the client's directory; in a scratch folder; in TMPDIR or /var/tmp of the host."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """`path` is what programs of the host call it, `real` where its bytes lie on the host's disk.

    `size` is in bytes, `stored` what it takes on the disk: less, where it has holes.
    """

    path: str
    real: str
    size: int
    stored: int
    mtime_ns: int
    place: Place


@dataclass(frozen=True, slots=True)
class HostHoldings:
    """`files` are at most so many, checkpoints and the largest first; `more` counts those left out.

    `bytes` and `count` are of all that was seen; `is_partial`: the time was up before all was, or
    some of it could not be looked at.
    """

    files: tuple[HeldFile, ...] = ()
    count: int = 0
    bytes: int = 0
    is_partial: bool = False

    @property
    def more(self) -> int:
        return self.count - len(self.files)
