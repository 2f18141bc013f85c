"""What torchrun says about the ranks it started, as pure functions of its output (torch 2.13).

Its summary names each failed rank of its host and the first one to fail; a rank that it stopped because of
another also stands there, with the signal that torchrun sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..records import EndReason, Exit

__all__ = ["RankFailure", "endings", "parse_failures"]

_SUMMARY = "ChildFailedError"
_ROOT_CAUSE = "Root Cause (first observed failure):"
_ENTRY = re.compile(
    r"^\s*rank\s*: (?P<rank>\d+) \(local_rank: \d+\)\s*\n"
    r"\s*exitcode\s*: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)",
    re.MULTILINE,
)
_CLOSING = re.compile(r"Sending process (\d+) closing signal SIG")


@dataclass(frozen=True, slots=True)
class RankFailure:
    """One entry of the summary. `code` is -N for signal N; `stopped`: torchrun itself sent that signal."""

    rank: int
    pid: int
    code: int
    first: bool = False
    stopped: bool = False


def parse_failures(text: str) -> tuple[RankFailure, ...]:
    """The entries of the last failure summary in torchrun's output, the root cause first."""
    begin = text.rfind(_SUMMARY)
    if begin < 0:
        return ()
    summary = text[begin:]
    root = summary.find(_ROOT_CAUSE)
    closing = {int(pid) for pid in _CLOSING.findall(text)}
    failures = [
        RankFailure(
            int(entry["rank"]),
            int(entry["pid"]),
            int(entry["code"]),
            first=root >= 0 and entry.start() > root,
            stopped=int(entry["pid"]) in closing and int(entry["code"]) < 0,
        )
        for entry in _ENTRY.finditer(summary)
    ]
    return tuple(sorted(failures, key=lambda failure: (not failure.first, failure.stopped, failure.rank)))


def endings(ranks: Sequence[int], launcher: Exit, text: str) -> tuple[tuple[int, Exit], ...]:
    """How each of torchrun's ranks ended, the first failure first; empty when nothing is known of them.

    `launcher` is torchrun's own end and `text` (the end of) its output. It names every rank that did not end
    with 0, also those that it stopped: one that it neither names nor stopped had ended well before. Ranks do
    not outlive torchrun: where it stopped one and does not name it, what is not named was ended with it.
    """
    if launcher.ok:
        return tuple((rank, Exit(code=0)) for rank in ranks)
    if launcher.ended_by is not None:
        return tuple((rank, Exit(signal=launcher.signal, ended_by=launcher.ended_by)) for rank in ranks)
    failures = [failure for failure in parse_failures(text) if failure.rank in ranks]
    if not failures:
        return ()
    named = {failure.rank for failure in failures}
    told = [(failure.rank, _exit(failure)) for failure in failures]
    stopped = {int(pid) for pid in _CLOSING.findall(text)} - {failure.pid for failure in failures}
    other = Exit(ended_by="peer_failed") if stopped else Exit(code=0)
    return (*told, *((rank, other) for rank in ranks if rank not in named))


def _exit(failure: RankFailure) -> Exit:
    ended_by: EndReason | None = "peer_failed" if failure.stopped else None
    if failure.code < 0:
        return Exit(signal=-failure.code, ended_by=ended_by)
    return Exit(code=failure.code, ended_by=ended_by)
