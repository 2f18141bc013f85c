"""What failed ranks have said, and what is known of their ends: for rules that read it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....runtime.consequences import is_consequence
from ....runtime.evidence import KernelLine
from ..frames import is_library, place
from ..tracebacks import PythonFailure, parse_failure
from .case import RankCase, RunCase

__all__ = [
    "FATAL",
    "MB",
    "alike",
    "faults",
    "in_ms",
    "is_lost",
    "is_or_are",
    "it_or_them",
    "kernel_lines",
    "last_lines",
    "memory_words",
    "place_in_words",
    "place_of_failure",
    "printed_failure",
    "said",
    "short_place",
    "wait_or_waits",
    "words_of",
]

FATAL = "Fatal Python error"
_FOLDED = re.compile(r"^\.\.\. \d+ library frames? to ")
MB = 1024 * 1024


def words_of(rank: RankCase) -> str:
    """What a rank failed with: its exception with what it was raised from, else the end of its output, with
    what is known of that, or why it was never started."""
    if rank.failure is not None:
        return f"{rank.failure}\n{rank.failure.cause}\n{rank.failure.traceback}"
    error = rank.exit.error if rank.exit is not None else ""
    return "\n".join(filter(None, (rank.text[-1500:], rank.note, error)))


def alike(case: RunCase, pattern: re.Pattern[str]) -> tuple[RankCase, ...]:
    return tuple(one for one in case.ranks if one.failed and pattern.search(words_of(one)))


def said(rank: RankCase) -> tuple[str, ...]:
    """The exception and its place, as evidence."""
    if rank.failure is None and rank.exit is not None and rank.exit.error:
        return (f"rank {rank.rank} was never started: {rank.exit.error[:240]}",)
    if rank.failure is None and rank.note:
        return (f"rank {rank.rank}: {rank.note}",)
    if rank.failure is None:
        lines = [line for line in rank.text.splitlines() if line.strip()]
        return (f"rank {rank.rank} wrote last: {lines[-1][:200]}",) if lines else ()
    return (f"rank {rank.rank}: {place_of_failure(rank)}{str(rank.failure)[:240]}",)


def place_of_failure(rank: RankCase) -> str:
    return place_in_words(rank.failure) if rank.failure is not None else ""


def place_in_words(failure: PythonFailure) -> str:
    """`train.py:12 `, empty where none is known."""
    return f"{failure.file}:{failure.line} " if failure.file else ""


def printed_failure(case: RunCase, rank: RankCase) -> PythonFailure | None:
    """Of a rank that runs: the traceback that its output ends with, as of a thread or child that failed."""
    if not rank.alive:
        return None
    found = parse_failure(rank.text, workspace=case.workspace)
    if found is None or found.exception == FATAL:
        return None
    lines = [line for line in rank.text.splitlines() if line.strip()]
    begin = str(found).partition("\n")[0][:80]
    return found if any(begin in line for line in lines[-2:]) else None


def faults(rank: RankCase) -> tuple[str, ...]:
    """Where the thread was that a signal ended, as faulthandler wrote it: to its file, or to the output."""
    if rank.failure is not None and rank.failure.exception == FATAL:
        lines = [
            _FOLDED.sub("", line.strip())
            for line in rank.failure.traceback.splitlines()
            if line.startswith("  ")
        ]
        return (
            (f"{rank.failure.message}: {lines[-1]}", *(f"called from {line}" for line in lines[-2:-4:-1]))
            if lines
            else ()
        )
    for fault in rank.faults:
        thread = next((one for one in fault.threads if one.active), None) or next(iter(fault.threads), None)
        if thread is not None and thread.frames:
            own = [frame for frame in thread.frames if not is_library(frame.file)]
            words = [place(frame) for frame in (own or list(thread.frames))[:3]]
            return (f"{fault.reason}: {words[0]}", *(f"called from {word}" for word in words[1:]))
    return ()


def memory_words(case: RunCase, rank: RankCase) -> tuple[str, ...]:
    host = case.hosts.get(rank.host)
    if host is None or host.memory is None:
        return ()
    memory = host.memory
    words = f"host {rank.host}: {memory.available // MB} of {memory.total // MB} MiB available now"
    return (words + (f", limit {memory.limit // MB} MiB" if memory.limit is not None else ""),)


def kernel_lines(case: RunCase, rank: RankCase) -> Sequence[KernelLine]:
    """Of its host's log."""
    host = case.hosts.get(rank.host)
    return host.kernel if host is not None else ()


def is_lost(one: RankCase) -> bool:
    failure = one.failure
    return failure is not None and (is_consequence(str(failure)) or is_consequence(failure.cause))


def short_place(case: RunCase, one: RankCase) -> str:
    return case.place_of(one).partition(": ")[0]


def last_lines(ranks: Sequence[RankCase]) -> tuple[str, ...]:
    for one in ranks:
        lines = [line for line in one.text.splitlines() if line.strip()]
        if lines:
            return (f"rank {one.rank} wrote last: {lines[-1][:120]}",)
    return ()


def wait_or_waits(ranks: Sequence[object]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def is_or_are(ranks: Sequence[object]) -> str:
    return "are" if len(ranks) > 1 else "is"


def it_or_them(ranks: Sequence[object]) -> str:
    return "them" if len(ranks) > 1 else "it"


def in_ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
