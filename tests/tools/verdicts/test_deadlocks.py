"""Circles of calls none of which can go on."""

from __future__ import annotations

from milkweed.runtime.records import CallWait, Inside, ProcessStacks, ServedNote, ThreadStack
from milkweed.tools.verdicts.deadlocks import Link, find_deadlock


def proc(rank: int, waits: CallWait | None, *calls: ServedNote) -> ProcessStacks:
    inside = Inside(f"node-{rank}", waits, calls)
    return ProcessStacks(rank, 0, 100 + rank, procs="p-1f", inside=inside)


def on(endpoint: str, *ranks: int) -> CallWait:
    return CallWait(f"p.{endpoint}", tuple(f"p-1f-{rank}" for rank in ranks))


def running(sender: str = "program") -> ServedNote:
    return ServedNote("Stage.exchange", "main", sender, 5.0)


def waiting(sender: int, endpoint: str = "state") -> ServedNote:
    return ServedNote(f"Stage.{endpoint}", "waiting", f"node-{sender}")


def test_two_that_wait_for_each_others_main_thread_are_a_circle() -> None:
    left, right = (
        proc(0, on("state", 1), running(), waiting(1)),
        proc(1, on("state", 0), running(), waiting(0)),
    )
    assert find_deadlock([left, right]) == (
        Link("p-1f-0", "Stage.exchange", "Stage.state"),
        Link("p-1f-1", "Stage.exchange", "Stage.state"),
    )


def test_one_that_calls_itself_is_a_circle() -> None:
    assert find_deadlock([proc(0, on("state", 0), running(), waiting(0))]) == (
        Link("p-1f-0", "Stage.exchange", "Stage.state"),
    )


def test_a_circle_is_found_behind_those_that_wait_for_it() -> None:
    outside = proc(0, on("state", 1), running())
    one = proc(1, on("state", 2), running(), waiting(0), waiting(2))
    two = proc(2, on("state", 1), running(), waiting(1))
    assert [link.proc for link in find_deadlock([outside, one, two])] == ["p-1f-1", "p-1f-2"]


def test_a_chain_whose_end_is_at_work_is_none() -> None:
    first = proc(0, on("state", 1), running())
    last = proc(1, None, running(), waiting(0))
    assert find_deadlock([first, last]) == ()


def test_an_async_endpoint_runs_beside_a_busy_main_thread() -> None:
    served = ServedNote("Stage.state", "task", "node-0", stack=ThreadStack("Task-1", ()))
    left = proc(0, on("state", 1), running(), waiting(1, "other"))
    right = proc(1, on("other", 0), running(), served)
    assert find_deadlock([left, right]) == ()


def test_an_async_endpoint_that_awaits_its_caller_closes_a_circle() -> None:
    stack = ThreadStack("Task-1", (), waits=on("other", 0))
    served = ServedNote("Stage.state", "task", "node-0", stack=stack)
    left = proc(0, on("state", 1), running(), waiting(1, "other"))
    assert find_deadlock([left, proc(1, None, served)]) == (
        Link("p-1f-0", "Stage.exchange", "Stage.state"),
        Link("p-1f-1", "Stage.state", "Stage.other"),
    )


def test_many_that_wait_for_all_are_looked_at_once_each() -> None:
    everyone = range(40)
    calls = tuple(waiting(sender) for sender in everyone)
    busy = [
        proc(rank, on("state", *(one for one in everyone if one > rank)), running(), *calls)
        for rank in everyone
    ]
    assert find_deadlock(busy) == ()
