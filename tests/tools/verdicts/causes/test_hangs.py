"""Ranks that wait: for whom, and in what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from milkweed.runtime.evidence import Collective, Flight

from .building import (
    ALL_REDUCE,
    BACKWARD,
    BARRIER,
    BROADCAST,
    QUEUE_GET,
    case,
    cause,
    flight,
    frame,
    process,
    raised,
    rank,
    thread,
    told,
)

SOURCE = {
    "train.py": """\
def main():
    for batch in loader:
        loss = step(batch)
        all_reduce(loss)
    save()
    time.sleep(3600)
    queue.get()
    libc.pause()
"""
}
INSIDE = ["train.py:4 main", ALL_REDUCE]
THREE = flight("all_reduce", "all_reduce", "all_reduce", done=False)
TWO = flight("all_reduce", "all_reduce")


def waiting(*numbers: int, ops: Flight = THREE) -> list[Any]:
    return [rank(number, stack=INSIDE, ops=ops) for number in numbers]


def hung(*ranks: Any, **more: Any) -> tuple[str, tuple[int, ...]]:
    return cause(*ranks, source=SOURCE, **more)


def test_a_rank_that_left_the_loop_and_does_something_else() -> None:
    left = rank(3, stack=["train.py:5 main", "train.py:60 save"], ops=TWO)
    found = told(*waiting(0, 1, 2), left, source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("left_early", (3,))
    assert "ranks 0-2 still wait in all_reduce" in found.summary
    assert "collectives begun: rank 3: 2, ranks 0-2: 3" in found.evidence


def test_of_one_rank_it_is_said_that_it_waits() -> None:
    left = rank(1, stack=["train.py:5 main", "train.py:60 save"], ops=TWO)
    found = told(*waiting(0), left, source=SOURCE).cause
    assert found is not None
    assert "rank 0 still waits in all_reduce" in found.summary


def test_a_rank_that_left_into_another_collective_left_early_too() -> None:
    left = rank(
        3, stack=["train.py:5 main", BARRIER], ops=flight("all_reduce", "all_reduce", "barrier", done=False)
    )
    found = told(*waiting(0, 1, 2), left, source=SOURCE)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == ("left_early", (3,))
    assert found.other is not None
    assert found.other.kind == "collective_mismatch"


def test_a_rank_that_ended_well_while_others_wait() -> None:
    assert hung(*waiting(0, 1), rank(2, code=0, text="done\n")) == ("left_early", (2,))
    lost = rank(0, code=1, text=raised("RuntimeError: Connection closed by peer"))
    assert hung(lost, rank(1, code=0)) == ("left_early", (1,))


def test_a_rank_that_ended_well_while_another_raised_is_not_the_cause() -> None:
    kind, ranks = hung(rank(0, code=0), rank(1, code=1, text=raised("KeyError: 1")))
    assert (kind, ranks) == ("exception", (1,))


def test_different_collectives_at_one_number() -> None:
    other = rank(
        0,
        stack=["train.py:3 main", BROADCAST],
        ops=flight("all_reduce", "all_reduce", "broadcast", done=False),
    )
    assert hung(other, *waiting(1, 2, 3)) == ("collective_mismatch", (0,))


def test_different_collectives_by_the_stacks_alone() -> None:
    other = rank(0, stack=["train.py:3 main", BROADCAST])
    assert hung(other, *waiting(1, 2, 3, ops=Flight())) == ("collective_mismatch", (0,))


def test_the_same_collective_with_other_shapes() -> None:
    small = rank(0, stack=INSIDE, ops=flight("all_reduce 4", done=False))
    others = waiting(1, 2, ops=flight("all_reduce 8", done=False))
    assert hung(small, *others) == ("shape_mismatch", (0,))


def test_a_run_that_gets_on_is_in_no_hang() -> None:
    left = rank(1, stack=["train.py:5 main"], ops=TWO)
    moves = rank(0, stack=INSIDE, ops=TWO, ops_then=THREE)
    assert hung(moves, left) == ("", ())
    writes = rank(0, stack=INSIDE, grows=20)
    assert hung(writes, rank(1, stack=["train.py:7 main", QUEUE_GET])) == ("", ())


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_rank_is_the_cause_whatever_it_is_in(state: str) -> None:
    for stack in (INSIDE, ["train.py:7 main", QUEUE_GET], ["train.py:8 main"]):
        found = told(*waiting(0, 1), rank(2, stack=stack, os_state=state), source=SOURCE).cause
        assert found is not None
        assert (found.kind, found.ranks) == ("stopped", (2,))
        assert "kill -CONT 102" in found.next


def test_a_rank_in_a_queue_is_told_with_its_threads_and_children() -> None:
    stuck = rank(
        1,
        stack=["train.py:3 main", QUEUE_GET],
        ops=TWO,
        threads=[thread(["data.py:9 produce"], name="producer")],
        children=[process(1, ["data.py:40 fetch"], child_of=1)],
    )
    found = told(*waiting(0, 2), stuck, source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("waiting_in_python", (1,))
    assert "Queue.get" in found.summary
    assert "its child 1001 at data.py:40 fetch" in found.evidence
    assert "its thread producer at data.py:9 produce" in found.evidence


def test_native_code_that_lets_the_gil_go_or_holds_it() -> None:
    free = rank(1, stack=["train.py:3 main"], ops=TWO)
    assert hung(*waiting(0), free) == ("stuck_in_c", (1,))
    silent = Flight(problem="no answer from its flight recorder within 1.0 s: is the GIL held?")
    held = rank(1, stack=["train.py:3 main"], ops=silent, gil=True)
    assert hung(*waiting(0), held) == ("gil_held", (1,))
    busy = rank(1, stack=["train.py:3 main"], ops=silent, gil=True, cpu=1.0)
    assert hung(*waiting(0), busy) == ("gil_held", (1,))


def test_python_code_that_runs_has_the_gil_and_does_not_hold_it() -> None:
    loop = partial(rank, 0, stack=["train.py:3 main"], gil=True, cpu=1.0)
    assert hung(loop(native=())) == ("", ())
    matching = frame("/usr/lib/libpython3.11.so.1.0:0 sre_ucs1_match")
    assert hung(loop(native=(matching,))) == ("gil_held", (0,))
    assert hung(loop()) == ("", ())
    assert hung(rank(0, stack=["train.py:3 main"], gil=True, cpu=0.0)) == ("gil_held", (0,))
    kind, _ = hung(*waiting(1), loop(ops=TWO))  # its thread has had the GIL to tell of them
    assert kind == "straggler"


def test_ranks_that_wait_at_one_place_are_told_together() -> None:
    stuck = [rank(n, stack=["train.py:3 main", QUEUE_GET], ops=TWO) for n in (1, 2, 4)]
    found = told(*waiting(0, 3), *stuck, source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("waiting_in_python", (1, 2, 4))
    assert found.summary.endswith("; so are ranks 2,4.")


def test_the_gil_that_moves_on_is_not_held() -> None:
    computing = rank(1, stack=["train.py:3 main"], then=["train.py:7 main"], ops=TWO, gil=True, cpu=1.0)
    kind, _ = hung(*waiting(0), computing)
    assert kind != "gil_held"


def test_a_rank_that_sleeps_waits_in_python() -> None:
    kind, ranks = hung(
        *waiting(0), rank(1, stack=["train.py:6 main"], ops=flight("all_reduce", "all_reduce"))
    )
    assert ranks == (1,)
    assert kind in ("waiting_in_python", "left_early")


def test_backward_is_a_collective_once_it_has_begun_one() -> None:
    begun = flight("all_reduce", done=False)
    inside = [rank(n, stack=["train.py:3 main", BACKWARD], ops=begun) for n in (0, 1)]
    found = told(*inside, rank(2, stack=["train.py:8 main"]), source=SOURCE).cause
    assert found is not None
    assert found.ranks == (2,)
    assert "all_reduce (backward)" in found.summary


def test_a_straggler_is_told_while_all_get_on() -> None:
    many, more = ("all_reduce",) * 10, ("all_reduce",) * 11
    ranks = [
        rank(
            n, stack=INSIDE, ops=flight(*many, lag=0.6 * (n == 1)), ops_then=flight(*more, lag=0.6 * (n == 1))
        )
        for n in range(3)
    ]
    found = told(*ranks, source=SOURCE)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == ("straggler", (1,))
    assert found.progress


def test_a_timeout_that_is_shorter_than_the_work_of_another_rank() -> None:
    timed = rank(
        0, code=1, text=raised("RuntimeError: [gloo] Timed out waiting 2000ms for recv operation to complete")
    )
    late = rank(1, stack=["train.py:3 main", "eval.py:9 evaluate"], signal=15, ended_by="peer_failed")
    found = told(timed, late, source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("timeout_order", (1,))
    assert "after 2 s" in found.summary
    assert "eval.py:9 evaluate" in found.summary


def test_a_script_that_is_over_and_waits_for_its_children() -> None:
    at_exit = [
        "/usr/lib/python3.11/multiprocessing/util.py:357 _exit_function",
        "/usr/lib/python3.11/multiprocessing/process.py:149 join",
    ]
    over = rank(0, stack=at_exit, children=[process(0, ["eval.py:3 forever"], child_of=0)])
    found = told(over, rank(1, code=0), source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("left_children", (0,))
    assert "its child 1000 at eval.py:3 forever" in found.evidence


def test_scripts_that_are_over_and_wait_for_a_thread_are_told_with_it() -> None:
    stack = ["/usr/lib/python3.11/threading.py:1590 _shutdown"]
    waits = [rank(n, stack=stack, threads=[thread(["data.py:9 produce"], name="producer")]) for n in (0, 1)]
    found = told(*waits, source=SOURCE)
    assert found.other is None
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == ("left_children", (0, 1))
    assert found.cause.summary == "Ranks 0-1 have finished their script and wait for their threads to end."
    assert found.cause.evidence == ("its thread producer at data.py:9 produce",)


def test_what_a_run_left_behind_is_told_where_there_is_nothing_worse() -> None:
    assert cause(rank(0, code=0), notes=("2 processes were ended",)) == ("left_children", ())
    failed = rank(0, code=1, text=raised("KeyError: 1"))
    assert cause(failed, notes=("2 processes were ended",))[0] == "exception"


def test_all_ranks_at_one_place_are_nobodys_fault() -> None:
    assert case(*waiting(0, 1)).waiting
    assert hung(*waiting(0, 1)) == ("", ())


def test_a_collective_later_in_the_same_step_is_no_way_out_of_the_loop() -> None:
    source = {
        "train.py": "def step():\n    share()\n    average()\n",
        "sync.py": "def share():\n    gather()\ndef average():\n    for p in model:\n        reduce(p)\n",
    }
    shares = [
        rank(
            n,
            stack=["train.py:2 step", "sync.py:2 share", BROADCAST],
            ops=flight("all_reduce", "broadcast", done=False),
        )
        for n in (0, 1)
    ]
    averages = rank(
        2,
        stack=["train.py:3 step", "sync.py:5 average", ALL_REDUCE],
        ops=flight("all_reduce", "all_reduce", done=False),
    )
    found = told(*shares, averages, source=source)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == ("collective_mismatch", (2,))
    assert found.other is None


def of_group(group: str, number: int, before: int = 3) -> Flight:
    """Collectives of group 1 that all got through, and one of a group that waits."""
    done = (Collective(at + 1, "all_reduce", "1", at=float(at)) for at in range(before))
    return Flight((*done, Collective(number, "all_reduce", group, at=4.0, done=False)))


def test_ranks_that_wait_in_different_groups_have_another_order() -> None:
    gradients = [rank(n, stack=INSIDE, ops=of_group("1", 4)) for n in (0, 2, 3)]
    metrics = rank(1, stack=["train.py:3 main", ALL_REDUCE], ops=of_group("2", 1))
    found = told(*gradients, metrics, source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("collective_mismatch", (1,))
    assert any("train.py:3 main" in line for line in found.evidence)


def test_ranks_of_different_groups_that_wait_for_one_elsewhere_have_not() -> None:
    stuck = rank(1, stack=["train.py:3 main", QUEUE_GET], ops=of_group("1", 4))
    others = [
        rank(0, stack=INSIDE, ops=of_group("1", 4)),
        rank(2, stack=["train.py:2 main", ALL_REDUCE], ops=of_group("2", 1)),
    ]
    assert hung(*others, stuck) == ("waiting_in_python", (1,))


def test_all_ranks_of_a_slow_host_are_stragglers() -> None:
    many, more = ("all_reduce",) * 10, ("all_reduce",) * 11
    ranks = [
        rank(
            n,
            host=n // 2,
            stack=INSIDE if n < 3 else ["train.py:3 main", "data.py:9 read"],
            ops=flight(*many, lag=0.6 * (n // 2) + 0.01 * n),
            ops_then=flight(*more, lag=0.6 * (n // 2) + 0.01 * n),
        )
        for n in range(4)
    ]
    found = told(*ranks, source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("straggler", (2, 3))
    assert "all of host 1" in found.summary
    assert found.evidence[0].startswith("rank 3 at data.py:9 read")


def test_a_rank_that_waits_for_what_failed_is_told_with_its_words() -> None:
    text = "step 3\n" + raised("KeyError: 'label'", "data.py:9 produce")
    stuck = rank(1, stack=["train.py:3 main", QUEUE_GET], ops=TWO, text=text)
    found = told(*waiting(0), stuck, source=SOURCE).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("waiting_in_python", (1,))
    assert any("data.py:9" in line and "KeyError: 'label'" in line for line in found.evidence)
    went_on = rank(1, stack=["train.py:3 main", QUEUE_GET], ops=TWO, text=text + "tried again\nstep 4\n")
    found = told(*waiting(0), went_on, source=SOURCE).cause
    assert found is not None
    assert "KeyError" not in " ".join(found.evidence)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)",
            "shm_full",
        ),
        ("[Errno 28] No space left on device: 'cache/7.bin'", "disk_full"),
    ],
)
def test_a_rank_that_waits_for_a_worker_that_had_no_room(words: str, kind: str) -> None:
    stuck = [
        rank(n, stack=["train.py:7 main", QUEUE_GET], text=raised(f"OSError: {words}", "data.py:9 produce"))
        for n in range(2)
    ]
    assert hung(*stuck) == (kind, (0, 1))


@pytest.mark.parametrize(("cpu", "wanted"), [(0.98, 1.0), (0.2, 0.9)], ids=["alone", "on a crowded host"])
def test_a_rank_that_waits_for_a_child_which_computes_is_in_no_hang(cpu: float, wanted: float) -> None:
    busy = rank(
        0,
        stack=["train.py:3 main", QUEUE_GET],
        ops=TWO,
        children=[process(0, ["build.py:4 compile"], child_of=0)],
        cpu=cpu,
        wanted=wanted,
    )
    assert hung(busy, *waiting(1)) == ("", ())


EPOCHS = {
    "train.py": """\
def main():
    for epoch in range(3):
        for batch in loader:
            all_reduce(step(batch))
        barrier()
"""
}


def test_a_rank_that_left_the_inner_loop_for_a_barrier_left_early() -> None:
    inside = [rank(n, stack=["train.py:4 main", ALL_REDUCE], ops=THREE) for n in range(3)]
    ended = flight("all_reduce", "all_reduce", "barrier", done=False)
    left = rank(3, stack=["train.py:5 main", BARRIER], ops=ended)
    assert cause(*inside, left, source=EPOCHS) == ("left_early", (3,))


def test_a_rank_that_is_behind_the_inner_loop_of_the_turn_before_did_not_leave_it_early() -> None:
    inside = [rank(n, stack=["train.py:4 main", ALL_REDUCE], ops=THREE) for n in range(3)]
    behind = rank(3, stack=["train.py:5 main", "eval.py:9 evaluate"], ops=TWO)
    assert cause(*inside, behind, source=EPOCHS)[0] != "left_early"


def test_a_run_that_failed_did_not_fail_of_a_straggler() -> None:
    many = ("all_reduce",) * 10
    ranks = [
        rank(n, code=1, text=raised("KeyError: 'label'"), ops=flight(*many, lag=0.6 * (n == 1)))
        for n in range(3)
    ]
    found = told(*ranks)
    assert found.cause is not None
    assert found.cause.kind == "exception"
    assert found.other is None


def test_a_rank_that_computes_while_others_wait_is_taken_for_a_fault_only_after_a_while() -> None:
    alone = rank(1, stack=["train.py:3 main", "eval.py:9 evaluate"], ops=TWO, cpu=0.97)
    ranks = (*waiting(0, 2), alone)
    assert cause(*ranks, source=SOURCE, now=20.0) == ("", ())
    assert cause(*ranks, source=SOURCE, now=90.0) == ("straggler", (1,))


SLEEPS = ("micro.py:8 step",)
NAPS = {"micro.py": "\n" * 7 + "    time.sleep(0.25)\n"}


def test_short_sleeps_one_after_another_are_no_hang_until_they_have_been_in_vain_for_long() -> None:
    ops = flight("all_reduce", "all_reduce", start=95.0)
    ranks = [replace(rank(n, stack=SLEEPS, ops=ops), woke=4) for n in (0, 1)]
    assert cause(*ranks, source=NAPS, now=99.0) == ("", ())
    assert cause(*ranks, source=NAPS, now=140.0)[0] == "waiting_in_python"
    long_sleep = [replace(one, woke=0) for one in ranks]
    assert cause(*long_sleep, source=NAPS, now=99.0)[0] == "waiting_in_python"


def test_ranks_that_print_with_no_one_in_a_collective_get_on_though_they_had_collectives() -> None:
    ranks = [rank(n, stack=SLEEPS, ops=flight("broadcast"), text="epoch 1\n", grows=9) for n in (0, 1)]
    found = told(*ranks, source=NAPS)
    assert (found.cause, found.progress) == (None, True)
