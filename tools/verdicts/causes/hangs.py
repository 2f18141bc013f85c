"""Rules for ranks that wait: for a rank that left, for one that does something else, for ever. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..frames import is_library
from ..stacks import main_thread
from .case import Look, RankCase, RunCase, names, numbers, spans
from .collectives import find_last, find_lateness, is_moving, quiet_s
from .finding import Finding
from .said import (
    in_ms,
    is_or_are,
    last_lines,
    place_in_words,
    printed_failure,
    short_place,
    wait_or_waits,
)
from .starting import fails_to_start

__all__ = ["find_hangs"]

_IDLE = 0.1
_BUSY = 0.5
# As long a rank may compute while others wait for it before that is taken for a fault.
_PATIENT_S = 30.0
_SLEEPS_AGAIN = 2
_WAITS = ("collective", "backward")
# A look itself wakes a rank a few times.
_WAKES = 8
_STOPPED = ("T", "t")
_TIMED_OUT = re.compile(
    r"[Tt]imed? ?out (?:waiting )?(?:after )?(\d+) ?ms|Watchdog caught collective operation timeout"
    r"|monitoredBarrier in (\d+) ?ms|reached monitoredBarrier, but|[Tt]imed out .*monitored_?[Bb]arrier"
)
_AT_EXIT = (
    ("multiprocessing/util.py", "_exit_function", "child processes"),
    ("threading.py", "_shutdown", "threads"),
    ("concurrent/futures/process.py", "_python_exit", "worker processes"),
    ("concurrent/futures/thread.py", "_python_exit", "worker threads"),
)
_BLOCKING = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (r"\bwith\b.*(?:lock|mutex|cond|sem)\w*\s*(?::|,|\(|$)|\.acquire\(", "a lock"),
        (r"\.(?:recv\w*|accept|sendall|connect)\(", "a socket"),
        (r"\.(?:get|put)\(", "a queue"),
        (r"\.join\(", "join of a thread or process"),
        (r"\.(?:result|exception)\(", "a future"),
        (r"\.(?:wait|wait_for)\(", "an event or condition"),
        (r"\.(?:select|poll)\(", "select (socket or pipe)"),
    )
)
_WHOSE = re.compile(r"\branks? (\d[\d,-]*)")
_SLEEP = re.compile(r"\bsleep\(")


def find_hangs(case: RunCase) -> Iterator[Finding]:
    yield from _stopped(case)
    yield from _straggler(case)
    yield from _elsewhere(case)
    yield from _timeouts(case)
    yield from _left_children(case)


def _stopped(case: RunCase) -> Iterator[Finding]:
    stopped = [one for one in case.alive if one.process is not None and one.process.os_state in _STOPPED]
    if stopped:
        others = [one for one in case.waiting if one not in stopped]
        then = f"; {names(others)} {wait_or_waits(others)} in {others[0].collective}" if others else ""
        yield Finding(
            "stopped",
            97,
            f"{names(stopped).capitalize()} {is_or_are(stopped)} stopped by a signal (state T, as by"
            f" SIGSTOP){then}.",
            numbers(stopped),
            tuple(
                f"rank {one.rank} (pid {one.process.pid}) at {case.place_of(one)}"
                for one in stopped[:2]
                if one.process
            ),
            f"kill -CONT {' '.join(str(one.process.pid) for one in stopped[:4] if one.process)} on its"
            " host lets it go on.",
        )


def _straggler(case: RunCase) -> Iterator[Finding]:
    if case.first_failure is not None:
        return  # it failed of something else, or of the timeout that somebody's work was too long for
    late = find_lateness(case)
    if late is None or (case.alive and not is_moving(case)):
        return
    slow = [case.by_rank[rank] for rank in late.ranks]
    others = [one for one in case.ranks if one not in slow]
    # A look in which one of them does not wait, as it may already do again, tells where the time goes.
    looks = [(one, look) for one in slow for look in (one.latest, one.first) if look.frames]
    rank, look = next((one for one in looks if one[1].wait.kind not in _WAITS), (slow[0], slow[0].latest))
    at = (f"rank {rank.rank} at {case.place_in(look)}",) if look.frames else ()
    busy = rank.process.cpu if rank.process is not None else None
    cpu = (f"it uses {busy:.0%} of a core",) if busy is not None else ()
    hosts = {one.host for one in slow}
    alone = len(slow) > 1 and len(hosts) == 1 and hosts.isdisjoint(one.host for one in others)
    of_host = f" (all of host {slow[0].host})" if alone else ""
    are = "are the stragglers: they come" if len(slow) > 1 else "is the straggler: it comes"
    yield Finding(
        "straggler",
        88,
        f"{names(slow).capitalize()}{of_host} {are} last to {late.share:.0%} of collectives,"
        f" {in_ms(late.behind_s)}"
        f" behind {names(others)}, one every {in_ms(late.every_s)}. All make progress.",
        numbers(slow),
        (*at, *cpu),
        f"stack_dump(target={case.run!r}, ranks='{spans(late.ranks)}') a few times shows what is done"
        " between them.",
    )


def _elsewhere(case: RunCase) -> Iterator[Finding]:
    """A rank that is in no collective and does not get on."""
    if not case.alive or is_moving(case):
        return
    waiting = case.waiting
    odd = [
        one
        for one in case.looked_at
        if one.alive and one not in waiting and not _is_stopped(one) and not _waits_at_exit(one)
    ]
    for one in odd[:2]:
        then = (
            f"; {names(waiting)} {wait_or_waits(waiting)} for it in {waiting[0].collective}"
            if waiting
            else ""
        )
        found = _what_holds(case, one, then)
        if found is not None:
            yield _of_all_there(found, one, odd)


def _of_all_there(found: Finding, one: RankCase, odd: Sequence[RankCase]) -> Finding:
    """Of the ranks at the same place too."""
    place = _places_of(one.latest)
    others = [other for other in odd if other is not one and _places_of(other.latest) == place]
    if not others:
        return found
    return replace(
        found,
        summary=f"{found.summary.rstrip('.')}; so {is_or_are(others)} {names(others)}.",
        ranks=tuple(sorted((*found.ranks, *numbers(others)))),
    )


def _what_holds(case: RunCase, one: RankCase, then: str) -> Finding | None:
    if _gets_on(one):
        return None
    look = one.latest
    still = one.second is None or _places_of(one.first) == _places_of(one.second)
    cpu = one.process.cpu if one.process is not None and one.process.cpu is not None else 0.0
    # On a crowded host who computes may get little of a core: who is ready to run is busy too.
    wanted = one.process.wanted if one.process is not None and one.process.wanted is not None else 0.0
    busy = max(cpu, wanted) >= _BUSY
    evidence = [f"rank {one.rank} at {case.place_of(one)}"]
    certainty = 86 if still else 55
    if _holds_gil(one) and still:
        evidence.append(f"it holds the GIL in both looks and uses {cpu:.0%} of a core")
        evidence += [f"in {one.native[0].function}"] if one.native else []
        return Finding(
            "gil_held",
            certainty + 2,
            f"Rank {one.rank} is in native code that holds the GIL at {short_place(case, one)}{then}.",
            (one.rank,),
            tuple(evidence),
            "No other thread of it can run, timeouts and signals included: mend that call, or run it in"
            " a process.",
        )
    blocked = look.wait.what if look.wait.kind == "blocked" else _blocks(_line(case, one))
    if blocked:
        children = _children(case, look)
        if busy and children:
            return None  # a child computes, and it waits for that
        raised = printed_failure(case, one)
        wrote = (f"it wrote last: {place_in_words(raised)}{raised}",) if raised is not None else ()
        return Finding(
            "waiting_in_python",
            certainty,
            f"Rank {one.rank} waits in {blocked} at {short_place(case, one)}{then}.",
            (one.rank,),
            (*evidence, *wrote, *children, *_threads(case, look)),
            "A thread or child of it failed, and nobody heard of that: mend what it wrote."
            if raised is not None
            else "Whoever should release, put or send has not: look at its other threads and children.",
        )
    if busy and not case.waiting:
        return None  # a program that computes, as it should
    if busy and quiet_s(case) < _PATIENT_S:
        return None  # it may be evaluating alone, or writing a checkpoint
    if busy:
        return Finding(
            "straggler",
            50,
            f"Rank {one.rank} computes at {short_place(case, one)} ({cpu:.0%} of a core) and has not come to"
            f" the next collective{then}.",
            (one.rank,),
            tuple(evidence),
            f"diagnose_run(run={case.run!r}) again in a while: if it is at one place still, it loops there.",
        )
    if not still:
        return None
    if _SLEEP.search(_line(case, one)):
        if (one.woke or 0) >= _SLEEPS_AGAIN and quiet_s(case) < _PATIENT_S:
            return None  # short sleeps, one after another: slow work, or a poll that is not in vain yet
        return Finding(
            "waiting_in_python",
            certainty - 4,
            f"Rank {one.rank} sleeps at {short_place(case, one)}{then}.",
            (one.rank,),
            tuple(evidence),
        )
    if cpu < _IDLE:
        return Finding(
            "stuck_in_c",
            certainty - 2,
            f"Rank {one.rank} is in a native call that does not return at {short_place(case, one)}{then}.",
            (one.rank,),
            (*evidence, "it uses no processor and the GIL is free"),
            f"stack_dump(target={case.run!r}, ranks='{one.rank}', native=true) names the function.",
        )
    return None


def _timeouts(case: RunCase) -> Iterator[Finding]:
    """A collective gave up while a rank was on its way to it."""
    timed = [
        one
        for one in case.ranks
        if one.failed and one.failure and _TIMED_OUT.search(str(one.failure)) and not fails_to_start(one)
    ]
    if not timed:
        return
    last = find_last(case)
    found = _TIMED_OUT.search(str(timed[0].failure))
    told = next(filter(None, found.groups()), "") if found is not None else ""
    limit = f" after {int(told) / 1000:g} s" if told else ""
    others = [one for one in case.looked_at if one not in timed and not one.collective]
    late = others[0] if others else None
    behind = 0.0
    if late is None and last is not None:
        late, behind = case.by_rank[last[0]], last[1]
    elif late is None:
        late = next((one for one in case.ranks if one not in timed and one.exit and not one.exit.ok), None)
    evidence = [f"{names(timed)}: {str(timed[0].failure)[:160]}"]
    if late is None:
        where = "another rank had not come"
    elif late.latest.frames and not late.collective:
        where = f"rank {late.rank} was at {short_place(case, late)}"
        evidence.append(f"rank {late.rank} at {case.place_of(late)}")
    else:
        where = f"rank {late.rank} came {in_ms(behind)} later" if behind else f"rank {late.rank} had not come"
        evidence += last_lines([late])
    yield Finding(
        "timeout_order",
        78,
        f"{names(timed).capitalize()} gave up a collective{limit} while {where}: its timeout is shorter"
        " than that"
        " work.",
        (late.rank,) if late is not None else numbers(timed),
        tuple(evidence),
        "Give init_process_group (or new_group) a timeout longer than the longest work between two"
        " collectives.",
    )


def _left_children(case: RunCase) -> Iterator[Finding]:
    over = [(one, what) for one in case.looked_at if one.alive and (what := _waits_at_exit(one))]
    if over:
        one, what = over[0]
        ranks = [other for other, for_what in over if for_what == what]
        below = f"{one.process.children if one.process else 0} processes below it"
        found = _threads(case, one.latest) if what == "threads" else _children(case, one.latest)
        several = len(ranks) > 1
        yield Finding(
            "left_children",
            92,
            f"{names(ranks).capitalize()} {'have' if several else 'has'} finished"
            f" {'their' if several else 'its'} script and {'wait' if several else 'waits'} for"
            f" {'their' if several else 'its'} {what} to end.",
            numbers(ranks),
            found or (below,),
            "End them in the script (terminate, close a queue, daemon=True), or cancel_run.",
        )
        return
    for note in case.notes:
        yield Finding(
            "left_children",
            60,
            f"The run ended, and left processes behind: {note}.",
            ranks_in(note),
            (),
            "They were ended; wait for children in the script if their work matters.",
        )
        return


def _waits_at_exit(one: RankCase) -> str:
    """For what a rank waits whose script is over; empty where it is not."""
    for frame in one.latest.frames:
        for file, function, what in _AT_EXIT:
            if frame.file.endswith(file) and frame.function == function:
                return what
    return ""


def ranks_in(note: str) -> tuple[int, ...]:
    """Of `2 background processes of ranks 0,2-3 ended`."""
    found = _WHOSE.search(note)
    if found is None:
        return ()
    parts = [part.split("-") for part in found[1].split(",")]
    return tuple(rank for part in parts for rank in range(int(part[0]), int(part[-1]) + 1))


def _is_stopped(one: RankCase) -> bool:
    return one.process is not None and one.process.os_state in _STOPPED


def _holds_gil(one: RankCase) -> bool:
    """Python code has the GIL too whenever it runs, but gives it to threads that ask for it."""
    if not one.has_gil:
        return False
    last = one.second or one.first
    if last.flight.entries or "GIL" in last.flight.problem:  # its thread has had the GIL, or has not
        return not last.flight.entries
    cpu = one.process.cpu if one.process is not None and one.process.cpu is not None else 1.0
    return bool(one.native) if one.native is not None else one.second is not None and cpu < _IDLE


def _gets_on(one: RankCase) -> bool:
    """Whether a rank that is at one place moves there: it keeps waking."""
    return one.woke is not None and one.woke >= _WAKES


def _places_of(look: Look) -> tuple[tuple[str, str, int], ...]:
    return tuple((frame.function, frame.file, frame.line) for frame in look.frames)


def _line(case: RunCase, one: RankCase) -> str:
    frames = one.latest.frames
    return case.line_of(frames[0].file, frames[0].line) if frames and not is_library(frames[0].file) else ""


def _blocks(line: str) -> str:
    """What a line of the user's own waits in, where it is C that waits: by what it calls."""
    return next((what for pattern, what in _BLOCKING if pattern.search(line)), "")


def _children(case: RunCase, look: Look) -> tuple[str, ...]:
    found = []
    for child in look.children[:2]:
        thread = main_thread(child)
        frames = [frame for frame in thread.frames if not is_library(frame.file)] if thread else []
        if frames:
            found.append(f"its child {child.pid} at {case.frame_words(frames[0])}")
    return tuple(found)


def _threads(case: RunCase, look: Look) -> tuple[str, ...]:
    own = look.own
    if own is None:
        return ()
    main = main_thread(own)
    found = []
    for thread in own.threads:
        frames = [frame for frame in thread.frames if not is_library(frame.file)]
        if thread is not main and frames:
            found.append(f"its thread {thread.thread} at {case.frame_words(frames[0])}")
    return tuple(found[:2])
