"""Stacks of all ranks become one line that names the odd rank, and a short report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.records import Frame, ProcessStacks, ThreadStack
from milkweed.tools.verdicts import group_stacks, render, verdict

SITE = "/v/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
LOGGER = Frame("_exception_logger.<locals>.wrapper", f"{SITE}/torch/distributed/c10d_logger.py", 83)
MODULE = Frame("<module>", "/w/train.py", 60)
MAIN = Frame("main", "/w/train.py", 52)
TRAIN = Frame("train", "/w/train.py", 41)


def process(rank: int, *frames: Frame, **more: object) -> ProcessStacks:
    thread = ThreadStack("MainThread", (*frames, MODULE), main=True)
    return ProcessStacks(rank, 0, 100 + rank, threads=(thread,), **more)  # type: ignore[arg-type]


def in_collective(rank: int, name: str, *user: Frame) -> ProcessStacks:
    return process(rank, Frame(name, C10D, 3000 + rank), LOGGER, *user)


def said(*processes: ProcessStacks, world_size: int | None = None) -> str:
    size = len({one.rank for one in processes}) if world_size is None else world_size
    return verdict(group_stacks(processes), size, workspace="/w")


REDUCING = tuple(in_collective(rank, "all_reduce", TRAIN, MAIN) for rank in range(3))


def test_the_rank_that_left_a_loop_early_is_named() -> None:
    assert said(*REDUCING, in_collective(3, "barrier", MAIN)) == (
        "ranks 0-2 wait in all_reduce (train.py:41 train); rank 3 is elsewhere: barrier (train.py:52 main)"
    )


def test_a_rank_that_waits_for_nobody_is_the_odd_one_whatever_the_numbers() -> None:
    sleeping = [process(rank, Frame("load", "/w/data.py", 7), MAIN) for rank in (1, 2, 3)]
    assert said(REDUCING[0], *sleeping) == (
        "rank 0 waits in all_reduce (train.py:41 train); ranks 1-3 are elsewhere: data.py:7 load"
    )


def test_equal_numbers_in_different_collectives_name_no_odd_one() -> None:
    assert said(REDUCING[0], in_collective(1, "barrier", MAIN)) == (
        "the ranks disagree: rank 0 in all_reduce (train.py:41 train); rank 1 in barrier (train.py:52 main)"
    )


def test_when_all_are_at_one_place_none_is_called_odd() -> None:
    assert said(*REDUCING) == (
        "all 3 ranks are in all_reduce (train.py:41 train), so none is odd by its Python stack"
    )
    assert said(process(0, TRAIN)) == "rank 0 is at train.py:41 train"


def test_most_ranks_in_backward_are_not_odd_because_one_is_in_a_barrier() -> None:
    engine = Frame("_engine_run_backward", f"{SITE}/torch/autograd/graph.py", 800)
    backward = [process(rank, engine, TRAIN) for rank in range(3)]
    assert said(*backward, in_collective(3, "barrier", MAIN)) == (
        "ranks 0-2 are in backward (train.py:41 train); rank 3 is elsewhere: barrier (train.py:52 main)"
    )


def test_a_stopped_rank_is_odd_although_its_stack_is_the_others() -> None:
    stopped = replace(REDUCING[2], os_state="T")
    assert said(*REDUCING[:2], stopped).endswith(
        "rank 2 is elsewhere: stopped by a signal in all_reduce (train.py:41 train)"
    )


def test_ranks_that_could_not_be_dumped_or_have_ended_are_said() -> None:
    gone = ProcessStacks(3, 0, 103, error="the process has ended")
    assert said(*REDUCING, gone, world_size=6) == (
        "ranks 0-2 are in all_reduce (train.py:41 train), so none is odd by its Python stack;"
        " rank 3 not dumped: the process has ended; ranks 4-5 without a process here: ended"
    )
    assert said(world_size=0) == "no process to dump"


def test_who_holds_the_gil_is_said() -> None:
    holder = ThreadStack("loader", (Frame("spin", "/w/data.py", 9),), owns_gil=True)
    stack = replace(REDUCING[0], threads=(*REDUCING[0].threads, holder))
    assert "the GIL held by thread loader (data.py:9 spin)" in said(stack)


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        (
            [Frame("all_gather", C10D, 1), LOGGER, Frame("all_gather_object", C10D, 2), LOGGER],
            "all_gather_object",
        ),
        (
            [
                Frame("_create_c10d_store", f"{SITE}/torch/distributed/rendezvous.py", 199),
                Frame("init_process_group", C10D, 1892),
            ],
            "init_process_group",
        ),
        (
            [
                Frame("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 415),
                Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
                Frame(
                    "_MultiProcessingDataLoaderIter._get_data", f"{SITE}/torch/utils/data/dataloader.py", 1464
                ),
            ],
            "DataLoader (next batch)",
        ),
        (
            [
                Frame("wait", "/usr/lib/python3.11/threading.py", 1),
                Frame("get", "/usr/lib/python3.11/queue.py", 2),
            ],
            "Queue.get",
        ),
        ([Frame("pthread_cond_wait", "libc.so.6", 0)], ""),
    ],
)
def test_what_a_rank_waits_in_is_told_from_its_library_frames(frames: list[Frame], what: str) -> None:
    (group,) = group_stacks([process(0, *frames, TRAIN)])
    assert group.wait.what == what


def test_dumps_from_inside_and_from_outside_are_grouped_together() -> None:
    inside = in_collective(1, "all_reduce", TRAIN, MAIN)
    inside = replace(inside, source="in-process")
    wrapper = replace(LOGGER, function="wrapper")
    threads = (
        ThreadStack("MainThread", (inside.threads[0].frames[0], wrapper, TRAIN, MAIN, MODULE), main=True),
    )
    assert len(group_stacks([REDUCING[0], replace(inside, threads=threads)])) == 1


def test_native_frames_do_not_split_a_group() -> None:
    native = Frame("0x7fa1", "/usr/lib/libc.so.6", 0)
    threads = (ThreadStack("MainThread", (native, *REDUCING[1].threads[0].frames), main=True),)
    assert len(group_stacks([REDUCING[0], replace(REDUCING[1], threads=threads)])) == 1


def test_the_report_gives_the_verdict_first_and_the_odd_rank_next() -> None:
    source = {41: "dist.all_reduce(gradient)", 52: "dist.barrier()"}
    groups = group_stacks([*REDUCING, in_collective(3, "barrier", MAIN)])
    assert render(groups, workspace="/w", source_line=lambda file, line: source.get(line)).splitlines() == [
        "ranks 0-2 wait in all_reduce (train.py:41 train); rank 3 is elsewhere: barrier (train.py:52 main)",
        "rank 3 (barrier):",
        "  train.py:52 main: dist.barrier()",
        "ranks 0-2 (all_reduce):",
        "  train.py:41 train: dist.all_reduce(gradient)",
        "  train.py:52 main: dist.barrier()",
        "all of these, further out:",
        "  train.py:60 <module>",
    ]


def test_children_are_shown_but_are_no_ranks() -> None:
    worker = Frame("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 374)
    children = [
        process(0, Frame("__getitem__", "/w/data.py", 6), worker, child_of=100, command="python")
        for _ in range(2)
    ]
    groups = group_stacks([REDUCING[0], *(replace(child, pid=200 + n) for n, child in enumerate(children))])
    report = render(groups, workspace="/w")
    assert [group.ranks for group in groups] == [(0,)]
    assert "2 children of rank 0: at data.py:6 __getitem__ (DataLoader worker)" in report


def test_locals_and_other_threads_are_shown_where_they_were_asked_for() -> None:
    frame = replace(TRAIN, locals=(("step", "7"), ("x", "y" * 200)))
    other = ThreadStack("saver", (Frame("save", "/w/save.py", 3),))
    stack = process(0, frame)
    report = render(group_stacks([replace(stack, threads=(*stack.threads, other))]), workspace="/w")
    assert "    step = 7" in report
    assert "  thread saver at save.py:3 save" in report
    assert max(map(len, report.splitlines())) < 100


def deep(rank: int) -> ProcessStacks:
    frames = [Frame(f"function_{level}_of_{rank}", "/w/model.py", level) for level in range(30)]
    return process(rank, *frames)


@pytest.mark.parametrize("max_bytes", [50, 200, 1400, 2000])
@pytest.mark.parametrize("ranks", [1, 4, 32, 512])
def test_the_report_keeps_its_size(ranks: int, max_bytes: int) -> None:
    report = render(
        group_stacks([deep(rank) for rank in range(ranks)]),
        max_bytes=max_bytes,
        source_line=lambda file, line: "a line of source é " * 20,
    )
    assert len(report.encode()) <= max_bytes
    if max_bytes >= 1400:
        assert "function_0_of_0" in report


PLACES = st.sampled_from(
    [
        (TRAIN,),
        (MAIN,),
        (TRAIN, MAIN),
        (Frame("all_reduce", C10D, 1), LOGGER, TRAIN),
        (Frame("barrier", C10D, 2), LOGGER, MAIN),
        (Frame("wait", "/usr/lib/python3.11/threading.py", 3),),
    ]
)
PROCESSES = st.lists(
    st.one_of(
        st.builds(
            lambda rank, frames, state: process(rank, *frames, os_state=state),
            st.integers(0, 20),
            PLACES,
            st.sampled_from("ST"),
        ),
        st.builds(lambda rank, frames: process(rank, *frames, child_of=1), st.integers(0, 20), PLACES),
        st.builds(lambda rank: ProcessStacks(rank, 0, rank, error="gone"), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(PROCESSES, st.integers(0, 1500))
def test_each_rank_is_in_exactly_one_group(processes: list[ProcessStacks], max_bytes: int) -> None:
    groups = group_stacks(processes)
    ranks = [rank for group in groups for rank in group.ranks]
    assert sorted(ranks) == sorted({one.rank for one in processes})
    assert len(render(groups, max_bytes=max_bytes).encode()) <= max_bytes
    assert verdict(groups, 21)
