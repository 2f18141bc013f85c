from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.codec import from_json, to_json
from milkweed.runtime.metrics.json_lines import parse_json_lines, parse_reported
from milkweed.runtime.metrics.series import MOST_POINTS, BadValue, MetricPoint, RankMetrics, collect


def points(count: int) -> list[MetricPoint]:
    return [MetricPoint(step, None, {"loss": 1.0 / (step + 1)}) for step in range(count)]


def test_nothing_is_none() -> None:
    assert collect("x", []) is None


@given(st.integers(1, 3000), st.sets(st.integers(0, 3000), max_size=5))
def test_few_points_stand_for_many_and_the_first_bad_one_of_each_name_is_among_them(
    count: int, bad: set[int]
) -> None:
    many = points(count)
    for at in bad:
        if at < count:
            many[at] = MetricPoint(at, None, {f"m{at}": math.nan})
    found = collect("x", many)
    assert found is not None
    assert (found.count, found.first, found.last) == (count, many[0], many[-1])
    assert len(found.points) <= MOST_POINTS
    assert [found.points[0], found.points[-1]] == [many[0], many[-1]]
    steps = [point.step for point in found.points]
    assert steps == sorted(set(steps), key=lambda step: step or 0)
    assert {one.step for one in found.first_bad} == {at for at in bad if at < count} <= set(steps)
    if count <= MOST_POINTS:
        assert len(found.points) == count


def test_the_first_bad_value_and_the_last_finite_one_before_it() -> None:
    values = [0.5, 0.25, math.nan, math.inf, 0.75]
    found = collect("x", [MetricPoint(step, None, {"loss": v}) for step, v in enumerate(values)])
    assert found is not None
    (bad,) = found.first_bad
    assert (bad.name, bad.step, math.isnan(bad.value), bad.last_finite) == ("loss", 2, True, 0.25)


def test_metrics_of_one_step_are_one_point() -> None:
    parts = [
        MetricPoint(1, 2.0, {"loss": 0.5}),
        MetricPoint(1, 2.1, {"lr": 0.1}),
        MetricPoint(1, 2.2, {"lr": 1.0}),
    ]
    found = collect("x", parts)
    assert found is not None
    assert [dict(point.values) for point in found.points] == [{"loss": 0.5, "lr": 0.1}, {"lr": 1.0}]
    assert found.names == ("loss", "lr")


@given(st.integers(1, 5000), st.integers(2, 400))
def test_what_is_told_seldom_is_not_lost_among_what_is_told_each_step(count: int, every: int) -> None:
    many = [
        MetricPoint(step, None, {"loss": 1.0, **({"val_loss": 2.0} if step % every == 0 else {})})
        for step in range(1, count + 1)
    ]
    found = collect("x", many)
    assert found is not None
    validations = [point.step for point in found.points if "val_loss" in point.values]
    assert len(validations) >= min(count // every, MOST_POINTS // 2 - 1)
    assert len(found.points) <= MOST_POINTS
    assert [found.points[0], found.points[-1]] == [many[0], many[-1]]


def test_it_travels_as_json() -> None:
    found = collect("x", points(3))
    assert from_json(RankMetrics, json.loads(json.dumps(to_json(found)))) == found
    bad = BadValue("loss", 3, math.inf, 0.5)
    assert from_json(BadValue, json.loads(json.dumps(to_json(bad)))) == bad


def test_reported_lines_that_are_cut_or_foreign_are_left_out() -> None:
    data = b'5, {"loss": 1}]\n[1.0, 3, {"loss": NaN}]\n{"note": "x"}\n[1, 2]\n[1.0, "x", {}]\n[1.0, 4, {"lo'
    (point,) = parse_reported(data)
    assert (point.step, math.isnan(point.values["loss"])) == (3, True)


def test_lines_of_json_with_metrics() -> None:
    lines = [
        {"step": 1, "loss": 0.5, "time": 1.7e9, "epoch": 0, "tokens": 12, "text": "x"},
        {"global_step": 2, "eval": {"loss": 0.25, "name": "y"}},
        {"step": 3, "question": "what?", "answer": 4},
        {"lr": 0.1},
        {"loss": True, "step": 4},
    ]
    data = b"\n".join(json.dumps(line).encode() for line in lines) + b'\n{"step": 5, "loss": 0.1\n[1]\n'
    assert list(parse_json_lines(data)) == [
        MetricPoint(1, 1.7e9, {"loss": 0.5, "epoch": 0.0}),
        MetricPoint(2, None, {"eval/loss": 0.25}),
    ]
