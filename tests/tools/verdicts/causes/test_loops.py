"""Whether one rank has left the loop that another is still in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.tools.verdicts.causes.loops import relate

from .building import ALL_REDUCE, BARRIER, case, rank

TRAIN = """\
def train():
    for epoch in range(3):
        for batch in data:
            step(batch)
            all_reduce()
        evaluate()
    save()


def step(batch):
    model(batch)
    all_reduce()


def main():
    prepare()
    train()
    finish()
"""
WHILE = """\
def train():
    while more():
        step()
    else:
        last()
    done()
"""
COMPREHENSION = """\
def train():
    totals = [
        reduce(one)
        for one in batches
    ]
    save(totals)
"""


MODEL = """\
def forward(batch):
    all_reduce(batch)

def layers(batch):
    for layer in stack:
        all_reduce(layer(batch))
"""


def relation(mine: list[str], theirs: list[str], text: str | None = TRAIN) -> str:
    run = case(
        rank(0, stack=mine),
        rank(1, stack=theirs),
        source={"train.py": text, "model.py": MODEL} if text else {},
    )
    one, other = run.ranks
    there, back = relate(one, other, run.source), relate(other, one, run.source)
    assert {there, back} in ({"left", "is_left"}, {"through", "together"}, {"together"}, {"unknown"})
    return there


MAIN = "train.py:17 main"


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        pytest.param([MAIN, "train.py:7 train"], [MAIN, "train.py:5 train", ALL_REDUCE], "left", id="behind"),
        pytest.param(
            [MAIN, "train.py:5 train", ALL_REDUCE], [MAIN, "train.py:7 train"], "is_left", id="inside"
        ),
        pytest.param([MAIN, "train.py:6 train"], [MAIN, "train.py:5 train"], "through", id="the outer loop"),
        pytest.param([MAIN, "train.py:5 train"], [MAIN, "train.py:6 train"], "together", id="the inner loop"),
        pytest.param([MAIN, "train.py:4 train"], [MAIN, "train.py:5 train"], "together", id="one body"),
        pytest.param(
            [MAIN, "train.py:4 train", "train.py:11 step"],
            [MAIN, "train.py:4 train", "train.py:12 step", ALL_REDUCE],
            "together",
            id="one helper",
        ),
        pytest.param(
            ["train.py:18 main", BARRIER],
            [MAIN, "train.py:4 train", "train.py:12 step", ALL_REDUCE],
            "left",
            id="in the caller, behind the call",
        ),
        pytest.param(["train.py:16 main"], [MAIN, "train.py:5 train"], "together", id="before the call"),
        pytest.param(
            [MAIN, "train.py:7 train", "train.py:12 step"],
            [MAIN, "train.py:4 train", "train.py:12 step", ALL_REDUCE],
            "left",
            id="the same helper, called from behind the loop",
        ),
        pytest.param(
            ["train.py:12 step", ALL_REDUCE],
            ["train.py:11 step", "model.py:2 forward", ALL_REDUCE],
            "together",
            id="behind a call that is in no loop",
        ),
        pytest.param(
            ["train.py:12 step", ALL_REDUCE],
            ["train.py:11 step", "model.py:6 layers", ALL_REDUCE],
            "left",
            id="behind a call that loops",
        ),
    ],
)
def test_how_a_rank_stands_to_another(mine: list[str], theirs: list[str], expected: str) -> None:
    assert relation(mine, theirs) == expected


def test_a_rank_in_another_branch_was_perhaps_never_in_the_loop() -> None:
    text = (
        "def train():\n  while more():\n    if first:\n      for p in ps:\n        reduce(p)\n    barrier()\n"
    )
    assert relation(["train.py:6 train"], ["train.py:5 train"], text) == "together"
    always = text.replace("if first:", "for x in xs:")
    assert relation(["train.py:6 train"], ["train.py:5 train"], always) == "through"


def test_the_else_of_a_loop_is_behind_it() -> None:
    assert relation(["train.py:5 train"], ["train.py:3 train"], WHILE) == "left"
    assert relation(["train.py:6 train"], ["train.py:3 train"], WHILE) == "left"


def test_a_comprehension_of_an_old_python_is_a_function_below_its_line() -> None:
    inside = ["train.py:2 train", "train.py:3 <listcomp>", ALL_REDUCE]
    assert relation(["train.py:6 train", BARRIER], inside, COMPREHENSION) == "left"


def test_without_the_source_a_helper_still_tells() -> None:
    assert relation(["train.py:9 train"], ["train.py:4 train", "train.py:40 step"], None) == "left"
    assert relation(["train.py:9 train"], ["train.py:4 train"], None) == "unknown"


@pytest.mark.parametrize("text", ["def train(:", "\0", "x = " + "(" * 500, "\ufeff", "é = 1\r\n"])
def test_a_source_that_is_no_python_is_none(text: str) -> None:
    assert relation(["train.py:9 train"], ["train.py:4 train"], text) in ("together", "unknown")


def test_different_programs_have_nothing_in_common() -> None:
    assert relation(["train.py:9 train"], ["serve.py:4 serve"]) == "unknown"


LINES = st.lists(st.tuples(st.sampled_from(["train", "step", "main"]), st.integers(-1, 30)), max_size=5)


@given(LINES, LINES, st.sampled_from([TRAIN, WHILE, COMPREHENSION, ""]))
def test_the_relation_is_the_other_one_seen_from_the_other_side(
    mine: list[tuple[str, int]], theirs: list[tuple[str, int]], text: str
) -> None:
    stacks = [[f"train.py:{line} {name}" for name, line in stack] for stack in (mine, theirs)]
    relation(stacks[0], stacks[1], text)
