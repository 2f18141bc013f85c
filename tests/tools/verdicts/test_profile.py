"""Profiles of ranks: merged, their hot functions, and who differs."""

from __future__ import annotations

from milkweed.runtime.profiling import FoldedStack
from milkweed.runtime.records import Frame
from milkweed.tools.verdicts.profile import (
    Function,
    RankSamples,
    differences,
    group_ranks,
    hot_functions,
    hot_libraries,
    merge,
)

MAIN = Frame("main", "/w/train.py", 30)
STEP = Frame("step", "/w/train.py", 12)
STEP_LATER = Frame("step", "/w/train.py", 14)
LOAD = Frame("load", "/w/data.py", 7)
LINEAR = Frame("linear", "/v/lib/python3.11/site-packages/torch/nn/functional.py", 3)
BOOTSTRAP = Frame("run", "/usr/lib/python3.11/threading.py", 5)


def stack(count: int, *frames: Frame) -> FoldedStack:
    return FoldedStack(frames, count)


def rank(number: int, step: int, load: int) -> RankSamples:
    return RankSamples(number, (stack(step, MAIN, STEP), stack(load, MAIN, LOAD)), possible=500)


def test_what_libraries_do_counts_for_the_line_that_calls_them() -> None:
    hot = hot_functions(
        [stack(50, MAIN, STEP, LINEAR), stack(10, MAIN, STEP), stack(20, MAIN, STEP_LATER), stack(20, MAIN)]
    )
    step, main = hot
    assert (step.function.name, step.own, step.total) == ("step", 0.8, 0.8)
    assert step.lines == ((12, 0.6, Function("linear", LINEAR.file)), (14, 0.2, None))
    assert (main.function.name, main.own, main.total) == ("main", 0.2, 1.0)
    assert hot_libraries([stack(50, MAIN, LINEAR), stack(50, MAIN)]) == (
        (Function("linear", LINEAR.file), 0.5),
    )


def test_a_recursive_function_counts_once_a_sample() -> None:
    (hot,) = hot_functions([stack(10, STEP, STEP, STEP)])
    assert (hot.own, hot.total) == (1.0, 1.0)


def test_a_thread_without_user_code_stands_for_itself() -> None:
    (hot,) = hot_functions([stack(10, BOOTSTRAP, LINEAR)])
    assert hot.function.name == "run"


def test_equal_stacks_of_ranks_are_one() -> None:
    one, other = (Frame("f", f"/s/hosts/{host}/runs/run-1ab/script", 3) for host in (0, 1))
    assert merge([[stack(3, one)], [stack(4, other)]]) == (stack(7, Frame("f", "script", 3)),)


def test_native_code_without_a_name_is_one_function_in_all_processes() -> None:
    assert (
        len(merge([[stack(1, Frame("0x7f1", "libc.so.6", 0))], [stack(1, Frame("0x7f2", "libc.so.6", 0))]]))
        == 1
    )


def test_a_rank_that_is_elsewhere_is_found_and_told_first() -> None:
    ranks = [rank(number, 430 + number, 50) for number in range(3)] + [rank(3, 190, 300)]
    odd, others = group_ranks(ranks)
    assert [one.rank for one in odd] == [3]
    assert [one.rank for one in others] == [0, 1, 2]
    (difference,) = differences([odd, others])
    assert difference.ranks == (3,)
    assert difference.function in (Function("load", "/w/data.py"), Function("step", "/w/train.py"))
    assert abs(difference.here - difference.elsewhere) > 0.4


def test_ranks_that_differ_by_chance_alone_are_one_group() -> None:
    ranks = [rank(0, 60, 40), rank(1, 50, 50), rank(2, 70, 30)]
    groups = group_ranks(ranks)
    assert len(groups) == 1
    assert differences(groups) == ()


def test_a_rank_that_only_waits_is_told_by_its_time_on_a_cpu() -> None:
    groups = group_ranks([rank(0, 450, 20), rank(1, 5, 1), rank(2, 440, 30)])
    (difference,) = differences(groups)
    assert (difference.ranks, difference.function) == ((1,), None)
    assert difference.here < 0.02
    assert difference.elsewhere > 0.9


def test_ranks_without_any_sample_are_alike() -> None:
    assert len(group_ranks([RankSamples(0, ()), RankSamples(1, ())])) == 1


def test_of_two_ranks_that_differ_both_are_told() -> None:
    assert [one.ranks for one in differences(group_ranks([rank(0, 400, 0), rank(1, 0, 400)]))] == [(0,), (1,)]


def test_a_rank_that_ended_early_is_measured_by_the_time_it_had() -> None:
    half = RankSamples(3, (stack(100, MAIN, STEP), stack(20, MAIN, LOAD)), possible=125)
    assert len(group_ranks([rank(0, 400, 80), rank(1, 400, 80), half])) == 1
    at_once = RankSamples(2, (stack(1, MAIN, LOAD),), possible=15)
    assert differences(group_ranks([rank(0, 400, 80), at_once, rank(1, 400, 80)])) == ()
    waits = RankSamples(4, (stack(5, MAIN, STEP),), possible=125)
    (told,) = differences(group_ranks([rank(0, 400, 80), rank(1, 400, 80), waits]))
    assert told.ranks == (4,)
