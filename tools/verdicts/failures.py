"""How ranks failed: exits in words, which failed first, and which failed alike."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from ...runtime.consequences import is_consequence
from ...runtime.records import EndReason, Exit
from .alignment import NUMBER
from .tracebacks import PythonFailure

__all__ = ["FailureGroup", "RankFailure", "exit_in_words", "first_failure", "group_failures"]

_REASONS: dict[EndReason, str] = {
    "cancelled": "cancelled",
    "timeout": "the run's time was up",
    "peer_failed": "another rank had failed",
    "released": "the mesh was released",
    "lease_ended": "the lease had ended",
}
_OUT_OF_MEMORY = "likely out of memory: the kernel's oom_kill counter rose"
_HEX = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_CONSEQUENCE_WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class RankFailure:
    """One rank that failed; `ended_at` is wall clock, None where it is not known."""

    rank: int
    host: int
    exit: Exit
    ended_at: float | None = None
    failure: PythonFailure | None = None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Ranks that failed alike; `first` is the earliest of them and stands for all."""

    ranks: tuple[int, ...]
    first: RankFailure


def exit_in_words(exit: Exit) -> str:  # noqa: A002
    """How a process ended, in a few words: `exit 1`, `SIGSEGV`, `never started: ...`."""
    if exit.error:
        return f"never started: {exit.error}"
    if exit.ended_by is not None:
        return f"ended by Milkweed: {_REASONS[exit.ended_by]}"
    if exit.signal is not None:
        name = _signal_name(exit.signal) or f"signal {exit.signal}"
        return f"{name}, {_OUT_OF_MEMORY}" if name == "SIGKILL" and exit.oom_kills else name
    if exit.code is None:
        return "ended, how is not known"
    return f"exit {exit.code}{_shell_words(exit)}"


def _shell_words(exit: Exit) -> str:  # noqa: A002
    code = exit.code or 0
    if code in (126, 127):
        return (
            " (as shells say: the command was not found)"
            if code == 127
            else " (as shells say: not executable)"
        )
    name = _signal_name(code - 128) if code > 128 else None
    if name is None:
        return ""
    memory = f", {_OUT_OF_MEMORY}" if name == "SIGKILL" and exit.oom_kills else ""
    return f" (as shells say: {name} in a child{memory})"


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def first_failure(failures: Iterable[RankFailure]) -> RankFailure | None:
    """The failure that the others follow from, as far as time tells; None when none failed.

    The earliest end counts. A rank that Milkweed ended is never first while another failed by itself, nor is
    one that only lost its connection while another failed otherwise within seconds of it.
    """
    ordered = sorted((one for one in failures if not one.exit.ok), key=_when)
    by_itself = [one for one in ordered if one.exit.ended_by is None]
    if not by_itself:
        return ordered[0] if ordered else None
    earliest = by_itself[0]
    if _is_consequence(earliest):
        until = (earliest.ended_at or 0.0) + _CONSEQUENCE_WINDOW_S
        for other in by_itself[1:]:
            if not _is_consequence(other) and (other.ended_at is None or other.ended_at <= until):
                return other
    return earliest


def _when(one: RankFailure) -> tuple[float, int]:
    return (float("inf") if one.ended_at is None else one.ended_at, one.rank)


def _is_consequence(one: RankFailure) -> bool:
    failure = one.failure
    return failure is not None and (is_consequence(str(failure)) or is_consequence(failure.cause))


def group_failures(failures: Iterable[RankFailure]) -> tuple[FailureGroup, ...]:
    """Failures that are equal but for numbers and addresses, the group of the first failure first."""
    failed = [one for one in failures if not one.exit.ok]
    first = first_failure(failed)
    groups: dict[tuple[object, ...], list[RankFailure]] = {}
    for one in sorted(failed, key=lambda one: (one is not first, one.exit.ended_by is not None, *_when(one))):
        groups.setdefault(_key(one), []).append(one)
    return tuple(
        FailureGroup(tuple(sorted(one.rank for one in members)), members[0]) for members in groups.values()
    )


def _key(one: RankFailure) -> tuple[object, ...]:
    words = _plain(one.exit.error) if one.exit.error else exit_in_words(one.exit)
    if one.exit.ended_by is not None:
        return (words,)
    failure = one.failure
    if failure is None:
        return (words, None)
    return (words, failure.exception, _plain(failure.message), _plain(failure.file), failure.line)


def _plain(text: str) -> str:
    """A text without what differs from rank to rank: numbers, addresses, process ids in paths."""
    return NUMBER.sub("#", _HEX.sub("#", text))
