"""Rules for ranks that a signal ended: a fault of native code, the kernel, somebody. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

from .case import RankCase, RunCase, names, numbers
from .finding import Finding
from .resources import shared_full
from .said import FATAL, MB, faults, kernel_lines, memory_words, said

__all__ = ["find_deaths"]

_FAULTS = {
    signal.SIGSEGV: "SIGSEGV",
    signal.SIGBUS: "SIGBUS",
    signal.SIGILL: "SIGILL",
    signal.SIGFPE: "SIGFPE",
}
_LEFT_AT_EXIT = "terminate called without an active exception"


def find_deaths(case: RunCase) -> Iterator[Finding]:
    """Of all ranks that failed by a signal, or, as shells tell it, whose child did."""
    for rank in case.ranks:
        if rank.exit is None or not rank.failed:
            continue
        number = _signal_of(rank)
        if number in _FAULTS:
            yield _fault(case, rank, _FAULTS[signal.Signals(number)])
        elif number == signal.SIGABRT and (rank.failure is None or rank.failure.exception == FATAL):
            yield _aborted(case, rank)
        elif number == signal.SIGKILL:
            yield _killed(case, rank)


def _signal_of(rank: RankCase) -> int:
    """That ended a rank, or, as shells tell, a child of it; 0 for none."""
    if rank.exit is None:
        return 0
    code = rank.exit.code or 0
    return rank.exit.signal or (code - 128 if code > 128 else 0)


def _fault(case: RunCase, rank: RankCase, name: str) -> Finding:
    alike = tuple(one for one in case.ranks if one.failed and _signal_of(one) == _signal_of(rank))
    if name == "SIGBUS":
        return _bus_error(case, alike)
    kernel = [
        line.text for line in kernel_lines(case, rank) if "segfault" in line.text or "traps" in line.text
    ]
    at = faults(rank)
    where = f" in {at[0].partition(': ')[2]}" if at else ""
    return Finding(
        "segfault",
        92,
        f"{names(alike).capitalize()} died of {name}{where}: native code broke memory.",
        numbers(alike),
        (*at[1:], *(f"kernel: {text[:160]}" for text in kernel[-1:])),
        "Look at what that line hands to native code (sizes, dtypes, freed memory); rebuild the"
        " extension for this torch.",
    )


def _aborted(case: RunCase, rank: RankCase) -> Finding:
    alike = tuple(one for one in case.ranks if _ended_at_exit(one))
    if rank in alike:
        return Finding(
            "abort_at_exit",
            85,
            f"{names(alike).capitalize()} ran to the end and aborted while Python shut down: a thread"
            " of torch's process group was still at work.",
            numbers(alike),
            ("faulthandler: Python had no frame left when SIGABRT came", *said(alike[0])),
            "Its work was done: take the results. To end cleanly: dist.barrier() and"
            " dist.destroy_process_group(), then drop the model and the last tensors of collectives.",
        )
    return Finding(
        "exception",
        75,
        f"Rank {rank.rank} aborted (SIGABRT) in native code.",
        (rank.rank,),
        (*faults(rank), *said(rank)),
    )


def _ended_at_exit(rank: RankCase) -> bool:
    """Its main thread had no frame of Python left when it aborted, and C++ had thrown nothing.

    That is a thread which Python makes exit as it asks for the interpreter's lock at shutdown, in a C++
    destructor that may not be left (`take_gil` and `PyThread_exit_thread` of CPython up to 3.13).
    """
    return (
        _signal_of(rank) == signal.SIGABRT
        and _LEFT_AT_EXIT in rank.text[-1500:]
        and any(one.main and not one.frames for fault in rank.faults for one in fault.threads)
    )


def _bus_error(case: RunCase, ranks: tuple[RankCase, ...]) -> Finding:
    """Of mapped memory with nothing behind it: shared memory that is full, or a file that was cut."""
    full = shared_full(case, ranks[0])
    return replace(
        full,
        certainty=84,
        summary=(
            f"{names(ranks).capitalize()} died of SIGBUS: shared memory (/dev/shm) was full, or a"
            " mapped file cut."
        ),
        ranks=numbers(ranks),
        evidence=(*faults(ranks[0]), *full.evidence[len(said(ranks[0])) :]),
    )


def _killed(case: RunCase, rank: RankCase) -> Finding:
    assert rank.exit is not None
    host = case.hosts.get(rank.host)
    kernel = [
        line.text
        for line in kernel_lines(case, rank)
        if "oom" in line.text.lower() or "out of memory" in line.text.lower()
    ]
    if rank.exit.oom_kills or kernel:
        memory = host.memory if host is not None else None
        group = memory is not None and bool(memory.group_kills) and memory.limit is not None
        what = (
            f"its cgroup's limit ({(memory.limit or 0) // MB} MiB)"
            if group and memory is not None
            else "its host's memory"
        )
        return Finding(
            "out_of_memory",
            95,
            f"Rank {rank.rank} was killed by the kernel: it ran out of {what}.",
            (rank.rank,),
            (
                f"SIGKILL while the kernel's oom_kill counter rose by {rank.exit.oom_kills}",
                *(f"kernel: {text[:160]}" for text in kernel[-1:]),
                *memory_words(case, rank),
            ),
            "Load or hold less per rank, use fewer ranks a host, or raise the limit.",
        )
    alike = [
        one
        for one in case.ranks
        if one.failed and one.exit and _signal_of(one) == signal.SIGKILL and not one.exit.oom_kills
    ]
    return Finding(
        "killed",
        60,
        f"{names(alike).capitalize()} {'were' if len(alike) > 1 else 'was'} killed (SIGKILL) by somebody"
        " else, and not for memory as far as the kernel tells.",
        numbers(alike),
        said(rank),
    )
