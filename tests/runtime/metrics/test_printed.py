"""What is read out of lines for people, and what is not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.metrics.printed import parse_printed


def read(text: str) -> list[tuple[int | None, dict[str, float]]]:
    return [(point.step, dict(point.values)) for point in parse_printed(text.encode())]


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        ("step 12 loss 3.41", 12, {"loss": 3.41}),
        ("[step 7] train_loss 2.3", 7, {"train_loss": 2.3}),
        ("[rank0]: step=3, loss=tensor(0.5, grad_fn=<X>)", 3, {"loss": 0.5}),
        (" 12%|# | 12/100 [00:01<00:10, 8it/s, loss=2.1, acc=0.5]", 12, {"loss": 2.1, "acc": 0.5}),
        ("{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 5e-05}", None, None),
        ("Epoch: [0][ 10/50] Time 0.5 Loss 6.98e+00 (7.0) Acc@1 0.00", 10, None),
        ("iteration 5: val loss 2.25", 5, {"loss": 2.25}),
        ("global_step=100 | lm loss: 1.0E+01", 100, {"loss": 10.0}),
        ("step 3/100 loss 2.0 lr 1e-3", 3, {"loss": 2.0, "lr": 1e-3}),
        ("step: 5 reward -3.5", 5, {"reward": -3.5}),
        ("pretrain | it   26/60 | train/loss inf | tok/s 1491", 26, {"train/loss": math.inf}),
        ('{"update": 9, "loss": 2.5}', 9, {"loss": 2.5}),
        ("\x1b[32mstep 4\x1b[0m loss: \x1b[1m2.5\x1b[0m", 4, {"loss": 2.5}),
        ('{"step": 4, "loss": 2.5}', 4, {"loss": 2.5}),
    ],
)
def test_lines_that_tell(line: str, step: int | None, values: dict[str, float] | None) -> None:
    ((found_step, found),) = read(line)
    assert found_step == step
    if values is not None:
        assert found == values


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("loss: nan", math.nan),
        ("epoch 1/3 ... loss=inf", math.inf),
        ("Loss is nan, stopping training", math.nan),
        ("loss tensor(nan)", math.nan),
        ("train/loss -inf", -math.inf),
        ("loss: NaN", math.nan),
    ],
)
def test_what_is_not_finite(line: str, value: float) -> None:
    ((step, values),) = read(line)
    assert step is None
    assert str(next(value for name, value in values.items() if "oss" in name)) == str(value)


def test_an_epoch_is_no_step() -> None:
    assert read("epoch 2/3 loss 0.5") == [(None, {"loss": 0.5, "epoch": 2.0})]


@pytest.mark.parametrize(
    "line",
    [
        "we had a loss 3 times",
        "lr: 0.001",
        "Namespace(lr=0.1, loss='mse', loss_weight=2)",
        "lossless 3.2",
        "loss_fn: 3",
        "loss = 1,234.5",
        "acc: 2024-01-01",
        "loss 3ms",
        "loss/path 3.2/5",
        "the accuracy of 12 samples",
        "step 12",
        "glossary: 3.5",
        "class: 3.0",
        "loss: 10.0.0.1",
        "loss=0x10",
        "inf loss",
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 3, in <module>\n    loss = 3.5',
    ],
)
def test_a_name_or_a_number_is_never_invented(line: str) -> None:
    assert read(line) == []


def test_a_bar_tells_at_each_of_its_states() -> None:
    assert [step for step, _ in read("\r 1/9 [x, loss=1.0]\r 2/9 [x, loss=0.5]\n")] == [1, 2]


@given(st.binary(max_size=300))
def test_junk_is_no_fault(data: bytes) -> None:
    assert isinstance(list(parse_printed(data)), list)


@given(st.text(st.sampled_from("los acurye=:.0123-/[]nif \n{'\""), max_size=200))
def test_names_are_words_of_the_line(text: str) -> None:
    for point in parse_printed(text.encode()):
        assert all(name in text or "/" in name or name == "epoch" for name in point.values)


def test_the_time_of_a_bar_is_no_step() -> None:
    assert read("12 it [00:03, 3.9 it/s, loss=2.0]") == [(None, {"loss": 2.0})]
