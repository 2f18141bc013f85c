"""How a run stands, from what is known of its ranks and what they wrote: pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from ..runtime.mesh import format_ranks
from ..runtime.records import Exit, OutputSlice, RankState, RankView, RunView
from .homes import Homes
from .mending import Mender
from .reading import Page, notes_on, page_tail, text_of
from .results import FailureGroup, FirstFailure, RunItem, RunResult, bounded
from .selection import format_cursor
from .tree_words import host_copy_words
from .verdicts import clean
from .verdicts.failures import RankFailure, exit_in_words, first_failure, group_failures
from .verdicts.tracebacks import PythonFailure, parse_failure, start_of_last
from .words import clip

__all__ = ["describe_item", "describe_run", "health_of", "tail_bytes"]

_TAIL = 2400
_TAIL_AFTER_FAILURE = 1200
_TRACEBACK = 1500
_GROUPS_SHOWN = 6
# What ranks raise when another one failed, or when their collectives do not fit together.
_OF_COLLECTIVES = frozenset(
    {
        "BrokenPipeError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "EOFError",
        "RuntimeError",
        "TimeoutError",
    }
)
_LAST_WORDS = 400
_READ_BYTES = 2 * 1024 * 1024
_STATE_ORDER: tuple[RankState, ...] = ("failed", "lost", "ended", "running", "pending", "succeeded")


def tail_bytes(ranks: int) -> int:
    """Bytes to read from the end of each of so many ranks, for their tracebacks and the tail."""
    return min(16_384, max(2_048, _READ_BYTES // max(1, ranks)))


# What `ranks` says too.
_TOLD_BY_RANKS = re.compile(r"ranks? [\d,-]+ failed")


def describe_run(
    view: RunView,
    slices: Sequence[OutputSlice],
    *,
    now: float,
    lease_left_s: float,
    workspace: str = "",
    homes: Homes | None = None,
    mender: Mender | None = None,
    faults: Mapping[int, str] = MappingProxyType({}),
) -> RunResult:
    """The outcome in the order in which it helps: state, first failure, groups that failed alike, tail.

    Args:
        slices: the end of every rank's output, `tail_bytes` of each.
        now: wall clock.
        workspace: directory of the user's own code, which tracebacks are told from.
        homes: where hosts have it elsewhere.
        mender: knows what helps with a failure.
        faults: what faulthandler wrote of ranks that a signal ended.
    """
    told = str if homes is None else homes.text
    texts = {piece.rank: told(text_of(piece)) for piece in slices}
    texts |= {rank: told(text) for rank, text in faults.items()}
    failures = [
        _rank_failure(rank, rank.exit, texts, workspace) for rank in view.ranks if rank.exit is not None
    ]
    failures = [one for one in failures if _by_itself(one.exit)]
    first = first_failure(failures)
    groups = group_failures(failures) if len(failures) > 1 else ()
    start, cold_because = _start(view.ranks)
    untold = slices
    if view.ended_at is not None and first is not None and first.failure is not None:
        alike = groups[0].ranks if groups else (first.rank,)
        untold = [_without_end(piece, first.failure) if piece.rank in alike else piece for piece in slices]

    def build(share: float) -> RunResult:
        """The result with all that has no natural bound cut to a share of its room."""

        def room(size: int) -> int:
            return int(size * share)

        shown = groups[: max(1, room(_GROUPS_SHOWN))]
        warnings = [clip(told(warning), room(300)) for warning in (*view.warnings, *notes_on(slices))[:5]]
        if len(groups) > len(shown):
            warnings.append(f"{len(groups) - len(shown)} more groups of ranks failed in other ways")
        tail_room = room(_TAIL_AFTER_FAILURE if first is not None else _TAIL)
        tail = page_tail(untold, tail_room, f"read_run_output(run={view.run!r})")
        return RunResult(
            run=view.run,
            mesh=view.mesh,
            state=view.state,
            reason=_reason(view, room(400)),
            health=health_of(view),
            still_s=_still_s(view, now),
            pace=_pace(view, now),
            host_copies=[clip(line, room(300)) for line in host_copy_words(view.host_copies)],
            ranks={state: clip(ranks, room(200)) for state, ranks in _ranks_by_state(view.ranks).items()},
            first_failure=_first(first, room) if first is not None else None,
            failure_groups=[_group(group.ranks, group.first, room) for group in shown],
            output_tail=tail.text,
            cursor=format_cursor(tail.offsets) if view.ended_at is None else "",
            command=clip(view.command, room(200)),
            start=start,
            cold_because=clip(clean(cold_because), room(200)),
            job=view.job,
            duration_s=_duration(view, now),
            workspace_revision=str(view.workspace_revision or ""),
            edited_since_start=view.edited_since_start,
            lease_left_s=round(lease_left_s),
            warnings=warnings,
            next=_next(view, first, tail, mender),
        )

    return bounded(build)


def describe_item(view: RunView, now: float, share: float = 1.0) -> RunItem:
    """A run as one entry of a list; `share` of the usual room for what has no natural bound."""
    return RunItem(
        run=view.run,
        state=view.state,
        health=health_of(view),
        reason=_reason(view, int(120 * share)),
        ranks={state: clip(ranks, int(60 * share)) for state, ranks in _ranks_by_state(view.ranks).items()},
        command=clip(view.command, int(100 * share)),
        job=view.job,
        duration_s=_duration(view, now),
        age_s=round(max(0.0, now - view.created_at), 1),
    )


def health_of(view: RunView) -> Literal["ok", "slow", "hung"]:
    """`hung` once no rank of a Python program has moved for so long that the watch of its hosts says so.

    `slow` while it takes its steps several times more slowly than before.
    """
    if view.state != "running":
        return "ok"
    is_python = any(rank.start for rank in view.ranks)
    if view.still_since is not None and is_python:
        return "hung"
    return "slow" if view.slow is not None else "ok"


def _pace(view: RunView, now: float) -> str:
    """Of a slow run how slow it is: `2.1 s a step for 95 s now, usually 0.35 s`."""
    if view.slow is None or health_of(view) != "slow":
        return ""
    slow = view.slow
    return (
        f"{slow.step_s:.2g} s a step for {max(0.0, now - slow.since):.0f} s now, usually {slow.usual_s:.2g} s"
    )


def _still_s(view: RunView, now: float) -> float:
    if view.still_since is None or view.state != "running":
        return 0.0
    return round(max(0.0, now - view.still_since), 1)


def _by_itself(exit_: Exit) -> bool:
    """Whether a rank failed; one that we ended is told by its state and the run's reason."""
    return not exit_.ok and exit_.ended_by is None


def _rank_failure(rank: RankView, exit_: Exit, texts: Mapping[int, str], workspace: str) -> RankFailure:
    failure = parse_failure(texts.get(rank.rank, ""), workspace=workspace) if _by_itself(exit_) else None
    return RankFailure(rank.rank, rank.host, exit_, rank.ended_at, failure)


def _without_end(piece: OutputSlice, failure: PythonFailure) -> OutputSlice:
    """Without the tracebacks that end it, which the first failure tells already; what led to them stays."""
    start = start_of_last(piece.data)
    if start is None:
        return piece
    end = clean(piece.data[start:]).rstrip().rpartition("\n")[2]
    if (failure.last or failure.exception) not in end:
        return piece
    return replace(piece, data=piece.data[:start], next=piece.start + start)


def _reason(view: RunView, limit: int) -> str:
    told = view.reason == view.state or _TOLD_BY_RANKS.fullmatch(view.reason)
    return "" if told else clip(clean(view.reason), limit)


def _first(one: RankFailure, room: Callable[[int], int]) -> FirstFailure:
    return FirstFailure(
        rank=one.rank,
        host=one.host,
        exit=clip(exit_in_words(one.exit), room(200)),
        exception=_exception(one.failure, room(400)),
        traceback=_end_of(one.failure.traceback, room(_TRACEBACK)) if one.failure else "",
    )


def _group(ranks: Sequence[int], one: RankFailure, room: Callable[[int], int]) -> FailureGroup:
    return FailureGroup(
        ranks=clip(format_ranks(ranks), room(120)),
        exit=clip(exit_in_words(one.exit), room(120)),
        exception=_exception(one.failure, room(160)),
    )


def _exception(failure: PythonFailure | None, limit: int) -> str:
    return clip(str(failure), limit) if failure is not None else ""


def _end_of(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    tail = text[len(text) - limit :]
    return f"[...]\n{tail.partition(chr(10))[2] or tail}"


def _ranks_by_state(ranks: Iterable[RankView]) -> Mapping[str, str]:
    members: dict[RankState, list[int]] = {}
    for rank in ranks:
        members.setdefault(rank.state, []).append(rank.rank)
    return {state: format_ranks(members[state]) for state in _STATE_ORDER if state in members}


def _start(ranks: Iterable[RankView]) -> tuple[Literal["", "warm", "cold", "mixed"], str]:
    """How the ranks started, and why the first cold one did though warm was wanted."""
    parts = [rank.start.partition(": ") for rank in ranks if rank.start]
    kinds = {kind for kind, _, _ in parts}
    if not kinds:
        return "", ""
    start: Literal["warm", "cold", "mixed"] = (
        "mixed" if len(kinds) > 1 else "warm" if kinds == {"warm"} else "cold"
    )
    return start, next((why for _, _, why in parts if why), "")


def _duration(view: RunView, now: float) -> float:
    return round(max(0.0, (view.ended_at or now) - view.created_at), 2)


def _next(view: RunView, first: RankFailure | None, tail: Page, mender: Mender | None) -> str:
    if health_of(view) == "hung":
        return f"diagnose_run(run={view.run!r}) tells where and why."
    if health_of(view) == "slow":
        return (
            f"diagnose_run(run={view.run!r}) names a straggler; profile_run(run={view.run!r}) what takes"
            " long."
        )
    if view.state in ("queued", "running"):
        return (
            f"wait_for_run(run={view.run!r}); if nothing comes, diagnose_run(run={view.run!r})"
            f" and cancel_run(run={view.run!r})."
        )
    if view.state == "failed" and first is not None:
        words = tail.text[-_LAST_WORDS:] if first.failure is None else str(first.failure)
        words = "\n".join([words, *tail.notes])
        if mender is not None and (mend := mender.next_step(words)):
            return mend
        if first.failure is None and tail.earlier:
            return f"read_run_output(run={view.run!r}, ranks='{first.rank}') has what it wrote."
        clear = first.failure is not None and first.failure.exception not in _OF_COLLECTIVES
        alone = len(view.ranks) == 1 and first.failure is not None
        return "" if alone or clear else f"diagnose_run(run={view.run!r}) tells the cause from all ranks."
    if view.reason == "timed out":
        return f"diagnose_run(run={view.run!r}) tells where it was; else give it a longer timeout_s."
    if view.state == "lost":
        return f"mesh_status(mesh={view.mesh!r}) tells which host is gone; what was written stays readable."
    return ""
