"""What a run computes: values that are not finite, a loss that does not fall, replicas that part."""

from __future__ import annotations

import math

import pytest

from milkweed.runtime.metrics.series import MetricPoint, collect

from .building import cause, losses, raised, rank, told

NAN, INF = math.nan, math.inf
FALLING = [4.0 / (step + 1) for step in range(20)]


def test_the_step_at_which_the_loss_became_nan() -> None:
    bad = losses(2.5, 2.25, 3.5, NAN, NAN)
    found = told(
        rank(0, code=0, metrics=bad), rank(1, code=0, metrics=losses(2.5, 2.25, 3.5, 3.5, 3.5))
    ).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("nan_loss", (0,))
    assert "NaN from step 3 on" in found.summary
    assert "3.5 before" in found.summary
    assert "only on rank 0" in found.evidence


def test_infinity_counts_and_the_earliest_rank_is_named() -> None:
    found = told(*(rank(n, code=0, metrics=losses(2.0, *[2.0] * (3 - n), INF)) for n in range(2))).cause
    assert found is not None
    assert found.ranks == (0, 1)
    assert "infinite from step 3 on (rank 1" in found.summary


def test_a_step_that_was_skipped_is_no_fault() -> None:
    assert cause(rank(0, code=0, metrics=losses(*FALLING[:5], NAN, *FALLING[6:]))) == ("", ())


def test_of_several_bad_metrics_the_loss_is_told() -> None:
    points = [
        MetricPoint(step, None, {"grad_norm": NAN if step > 1 else 1.0, "loss": NAN if step > 2 else 1.0})
        for step in range(5)
    ]
    found = told(rank(0, code=0, metrics=collect("m.jsonl", points))).cause
    assert found is not None
    assert found.summary.startswith("loss is NaN from step 3")
    assert "grad_norm is nan from step 2 on" in found.evidence


def test_a_nan_goes_before_the_exception_that_it_led_to() -> None:
    text = raised("AssertionError: diverged")
    assert cause(rank(0, code=1, text=text, metrics=losses(1.0, NAN)))[0] == "nan_loss"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([2.3] * 30, "loss_not_falling", id="flat"),
        pytest.param([2.3 + 0.1 * step for step in range(30)], "loss_not_falling", id="rising"),
        pytest.param(FALLING, "", id="falling"),
        pytest.param([2.3] * 11, "", id="too few"),
        pytest.param([0.0] * 30, "", id="nothing to fall"),
        pytest.param([-1.0 - step for step in range(30)], "", id="below zero"),
    ],
)
def test_a_loss_that_does_not_fall(values: list[float], expected: str) -> None:
    ranks = [rank(n, code=0, metrics=losses(*values)) for n in range(2)]
    assert cause(*ranks) == (expected, (0, 1) if expected else ())


def test_one_rank_whose_loss_falls_is_enough() -> None:
    ranks = [rank(0, code=0, metrics=losses(*[2.3] * 30)), rank(1, code=0, metrics=losses(*FALLING))]
    assert cause(*ranks)[0] != "loss_not_falling"


def test_the_accuracy_is_no_loss() -> None:
    assert cause(rank(0, code=0, metrics=losses(*[0.9] * 30, name="acc"))) == ("", ())


def test_a_replica_that_parts_from_the_others() -> None:
    parts = [4.0 / (step + 1) if step < 5 else 3.0 for step in range(20)]
    ranks = [rank(n, code=0, metrics=losses(*(parts if n == 2 else FALLING))) for n in range(4)]
    assert cause(*ranks) == ("replicas_diverge", (2,))


def test_replicas_that_never_were_alike_or_still_are_do_not_part() -> None:
    other = [value * 10 for value in FALLING]
    assert cause(rank(0, code=0, metrics=losses(*FALLING)), rank(1, code=0, metrics=losses(*other))) == (
        "",
        (),
    )
    assert cause(*(rank(n, code=0, metrics=losses(*FALLING)) for n in range(4))) == ("", ())


def test_weights_that_part_on_every_rank() -> None:
    ranks = [
        rank(
            n,
            code=0,
            metrics=losses(*(5.0 + (0.1 + 0.4 * n) * step for step in range(20)), name="param_norm"),
        )
        for n in range(4)
    ]
    assert cause(*ranks) == ("replicas_diverge", (0, 1, 2, 3))
    grows = [rank(n, code=0, metrics=losses(*range(5, 25), name="param_norm")) for n in range(4)]
    assert cause(*grows) == ("", ())
    shards = [
        rank(n, code=0, metrics=losses(*(2.0 + n + 0.1 * step for step in range(20)), name="param_norm"))
        for n in range(4)
    ]
    assert cause(*shards) == ("", ())
