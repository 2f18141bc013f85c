"""What makes two looks at a rank equal."""

from __future__ import annotations

from dataclasses import replace

from milkweed.runtime.records import Frame, ProcessStacks, ThreadStack
from milkweed.runtime.watching.signature import signatures, trimmed

LIBRARY = "/x/lib/python3.11/site-packages/torch/distributed/c10d.py"


def stacks(*frames: Frame, threads: tuple[ThreadStack, ...] = (), rank: int = 0) -> ProcessStacks:
    return ProcessStacks(rank, 0, 10, (ThreadStack("MainThread", frames, main=True), *threads))


def same(one: ProcessStacks, other: ProcessStacks) -> bool:
    return signatures([one]) == signatures([other])


USER = Frame("train", "/w/train.py", 12)
WAIT = Frame("all_reduce", LIBRARY, 100)


def test_lines_of_the_users_count_and_those_of_libraries_do_not() -> None:
    assert same(stacks(WAIT, USER), stacks(replace(WAIT, line=101), USER))
    assert not same(stacks(WAIT, USER), stacks(WAIT, replace(USER, line=13)))
    assert not same(stacks(WAIT, USER), stacks(replace(WAIT, function="barrier"), USER))


def test_native_frames_do_not_count() -> None:
    native = Frame("poll", "libc.so.6", 0)
    assert same(stacks(native, WAIT, USER), stacks(WAIT, USER))


def test_other_threads_count_only_where_the_main_thread_may_wait_for_them() -> None:
    working = [ThreadStack("w", (Frame("work", "/w/train.py", line),)) for line in (5, 6)]
    join = Frame("join", "/usr/lib/python3.11/threading.py", 1100)
    assert same(*(stacks(WAIT, USER, threads=(thread,)) for thread in working))
    assert not same(*(stacks(join, USER, threads=(thread,)) for thread in working))


def test_a_child_that_moves_makes_its_rank_move() -> None:
    child = replace(stacks(Frame("load", "/w/data.py", 3)), pid=11, child_of=10)
    other = replace(stacks(Frame("load", "/w/data.py", 4)), pid=11, child_of=10)
    assert signatures([stacks(WAIT), child]) != signatures([stacks(WAIT), other])


def test_what_could_not_be_dumped_has_none() -> None:
    assert signatures([ProcessStacks(3, 0, 10, error="denied")]) == {3: None}


def test_very_deep_stacks_are_kept_short_and_both_ends_stay() -> None:
    (kept,) = trimmed([stacks(*(replace(USER, line=line) for line in range(10_000)))])
    lines = [frame.line for frame in kept.threads[0].frames]
    assert (len(lines), lines[0], lines[-1]) == (200, 0, 9999)
