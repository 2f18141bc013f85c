"""What the table of the runtime's benchmarks says of its samples."""

import pytest

from benchmarks.runtime.figures import Figure, percentile, spread
from benchmarks.runtime.plan import Row
from benchmarks.runtime.table import row_of, show


def figure(row: Row, ours=(), monarch=(), failed=None) -> Figure:
    return Figure("line", row, {"ours": ours, "monarch": monarch}, failed or {})


def test_times_better_is_of_the_medians_and_pairs_are_of_the_rounds():
    found = figure(Row("s", "less", "s"), ours=(1.0, 2.0, 4.0), monarch=(10.0, 10.0, 10.0))
    assert found.times() == 5
    assert found.pairs() == (10, 5, 2.5)


def test_where_more_is_better_ours_is_the_numerator():
    assert figure(Row("r", "more", "MB/s", more=True), (300.0,), (100.0,)).times() == 3


@pytest.mark.parametrize(
    ("row", "ours", "monarch", "verdict"),
    [
        (Row("s", "limit", "s", limit=0.5), (0.5,), (9.0,), "met"),
        (Row("s", "limit", "s", limit=0.5), (0.6,), (9.0,), "missed"),
        (Row("s", "either", "s", limit=0.5, times=9), (0.6,), (9.0,), "met"),
        (Row("s", "ratio", "us", times=3), (2.0,), (5.9,), "missed"),
        (Row("s", "ratio", "us", times=3), (2.0,), (6.0,), "met"),
        (Row("s", "rate", "MB/s", limit=100, more=True), (99.0,), (), "missed"),
        (Row("s", "rate", "MB/s", limit=100, more=True), (100.0,), (), "met"),
        (Row("s", "no Monarch to compare with", "us", times=3), (1.0,), (), "not measured"),
        (Row("s", "nothing of ours", "us", limit=3, times=3), (), (5.0,), "not measured"),
        (Row("s", "no target", "us"), (1.0,), (5.0,), ""),
    ],
)
def test_met_is_the_limit_or_the_ratio(row, ours, monarch, verdict):
    assert figure(row, ours, monarch).verdict == verdict


def test_a_side_without_samples_is_a_dash_and_never_a_number():
    cells = row_of(figure(Row("s", "t", "s", times=3), ours=(1.0,), failed={"monarch": "not installed"}))
    assert cells[3] == "-"
    assert cells[6] == ""


def test_the_spread_of_few_values_is_their_range():
    assert spread([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_percentiles_are_values_that_were_measured():
    values = [float(n) for n in range(101)]
    assert percentile(values, 99) == 99
    assert percentile([5.0], 99) == 5


def test_a_target_that_was_missed_is_told_with_its_reason(capsys):
    row = Row("s", "spawn", "s", limit=0.5, why="two cores are the bound")
    show([figure(row, ours=(0.6,))])
    assert "line: spawn missed: two cores are the bound" in capsys.readouterr().out
    show([figure(row, ours=(0.4,))])
    assert "two cores" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ours", "bare", "monarch", "verdict"),
    [
        (4.0, 5.0, 0.5, "met"),
        (3.9, 5.0, 0.5, "missed"),
        (4.0, 5.0, 1.0, "missed"),
        (4.0, None, 0.5, "not measured"),
    ],
)
def test_beside_the_bare_side_both_ratios_must_be_reached(ours, bare, monarch, verdict):
    samples = {"ours": [ours], "monarch": [monarch], "bare": [] if bare is None else [bare]}
    row = Row("read", "a read", "GB/s", times=5, bare=0.8, more=True)
    assert Figure("onesided", row, samples, {}).verdict == verdict
