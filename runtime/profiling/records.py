"""What is asked of a profile, and what one rank answers. Frozen; times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ProfileRequest", "RankProfile", "TorchProfile"]


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """`rate`: samples a second. Threads that sleep are left out, unless `idle`; with `gil` all that do not
    hold the GIL. `torch`: also the operations, from torch's own profiler inside the rank.
    """

    seconds: float = 5.0
    rate: int = 100
    native: bool = False
    gil: bool = False
    idle: bool = False
    torch: bool = False


@dataclass(frozen=True, slots=True)
class TorchProfile:
    """`trace` is a Chrome trace, compressed by gzip; `problem` why there is none."""

    trace: bytes = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RankProfile:
    """What py-spy saw of a rank and the processes below it.

    `folded` is its text (`parse_folded` reads it), `pid` the process that it began with. `error`: why there
    is none, `note` what is to be known of the one that is there. `seconds` and `rate` are what was asked for;
    of a rank that ended meanwhile, how long it was there.
    """

    rank: int
    host: int
    pid: int
    folded: str = ""
    seconds: float = 0.0
    rate: int = 0
    error: str = ""
    note: str = ""
    torch: TorchProfile | None = None
