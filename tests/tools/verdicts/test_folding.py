"""Output of many ranks is shown once where it is alike, and nothing that matters is hidden."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import InvalidArgument
from milkweed.tools.verdicts import fold, format_gap, grep

HINT = "read_run_output(cursor=1)"
LARGE = 1_000_000


def shown(outputs: dict[int, str], max_bytes: int = LARGE) -> str:
    return fold(outputs, max_bytes=max_bytes, hint=HINT)


def test_one_rank_has_no_header() -> None:
    assert shown({0: "a\nb\n"}) == "a\nb"
    assert shown({3: ""}) == ""


def test_equal_output_is_one_copy_under_all_its_ranks() -> None:
    assert shown(dict.fromkeys(range(4), "a\nb\n")) == "ranks 0-3:\na\nb"


def test_a_header_stands_only_where_the_ranks_change() -> None:
    outputs = dict.fromkeys(range(3), "start\nsame\nend\n")
    outputs[3] = "start\nother\nend\n"
    assert shown(outputs) == "ranks 0-3:\nstart\nranks 0-2:\nsame\nrank 3:\nother\nranks 0-3:\nend"


def test_ranks_without_output_are_named() -> None:
    assert shown({0: "a", 1: "", 2: "\n"}) == "rank 0:\na\nranks 1-2: no output"
    assert shown({0: "", 1: ""}) == ""


def test_numbers_that_differ_are_shown_as_their_range() -> None:
    outputs = {0: "step 1 loss 2.5 at 0x7f1", 1: "step 1 loss -0.5 at 0x7f2", 2: "step 1 loss 1e3 at 0x7f1"}
    assert shown(outputs) == "ranks 0-2 (a|b: by rank):\nstep 1 loss 2.5|-0.5|1e3 at 0x.."
    outputs |= {rank: f"step 1 loss {rank} at 0x7f3" for rank in (3, 4)}
    assert shown(outputs) == "ranks 0-4 (a..b: lowest to highest):\nstep 1 loss -0.5..1e3 at 0x.."


def test_of_few_ranks_it_is_seen_which_has_which_number() -> None:
    outputs = {rank: f"rank {rank} bad records: {3 * (rank == 2)}\nend" for rank in range(4)}
    assert shown(outputs) == ("ranks 0-3 (a|b: by rank):\nrank 0|1|2|3 bad records: 0|0|3|0\nend")


def test_equal_steps_are_laid_side_by_side_when_some_ranks_started_earlier() -> None:
    late = "\n".join(f"step {step} loss {step}.25" for step in range(3, 6))
    early = "\n".join(f"step {step} loss {step}.75" for step in range(1, 6))
    text = shown({0: late, 1: early})
    assert text.startswith("rank 1:\nstep 1 loss 1.75\nstep 2 loss 2.75\nranks 0-1 ")
    assert "step 5 loss 5.25|5.75" in text


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "NaN"])
def test_a_number_that_is_none_is_never_folded_away(value: str) -> None:
    outputs = {rank: f"step 1 loss {rank}.5" for rank in range(8)}
    outputs[5] = f"step 1 loss {value}"
    assert f"rank 5:\nstep 1 loss {value}" in shown(outputs)


def test_errors_that_differ_in_numbers_alone_are_all_shown() -> None:
    outputs = {rank: f"IndexError: index {rank} is out of bounds" for rank in range(3)}
    assert all(line in shown(outputs) for line in outputs.values())


def test_torchs_prefix_of_the_own_rank_does_not_keep_tracebacks_apart() -> None:
    outputs = {rank: f"[rank{rank}]: Traceback\n[rank{rank}]: ValueError: bad" for rank in range(4)}
    assert shown(outputs) == "ranks 0-3:\nTraceback\nValueError: bad"


def test_of_a_long_text_head_and_tail_stay_and_the_middle_is_said() -> None:
    lines = [f"line {number}" for number in range(1000)]
    lines[500] = "RuntimeError: in the middle"
    text = shown({0: "\n".join(lines)}, max_bytes=1000)
    kept = [line for line in text.split("\n") if not line.startswith("[...")]
    assert kept[0] == "line 0"
    assert kept[-1] == "line 999"
    gap = f"[... {1000 - len(kept)} lines left out, 1 of them with an error or warning; {HINT} ...]"
    assert gap in text.split("\n")


def test_a_line_too_long_is_cut_in_its_middle() -> None:
    text = shown({0: f"start {'x' * 100_000} end"}, max_bytes=2000)
    assert text.startswith("start x")
    assert text.endswith("x end")
    assert "bytes ...]" in text


def test_ranks_that_have_nothing_in_common_each_get_their_share() -> None:
    random.seed(1)
    words = ["".join(random.choices("abcdefgh", k=8)) for _ in range(5000)]
    outputs = {rank: "\n".join(random.choices(words, k=1500)) for rank in range(64)}
    text = shown(outputs, max_bytes=16_000)
    assert all(f"rank {rank}:" in text for rank in range(64))


KINDS: dict[str, Callable[[int, int], str]] = {
    "numbers": lambda step, rank: f"step {step} loss {random.random():.6f} time {random.random():.3f}",
    "errors": lambda step, rank: f"error {step} on {rank}",
    "nothing alike": lambda step, rank: "".join(random.choices("abcdefgh ", k=60)),
    "empty lines": lambda step, rank: "",
    "rank numbers": lambda step, rank: f"a line of {rank}",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
def test_64_ranks_of_64_kilobytes_are_folded_fast(kind: str) -> None:
    random.seed(2)
    make = KINDS[kind]
    count = 65536 // (len(make(1000, 10)) + 1)
    outputs = {rank: "\n".join(make(step, rank) for step in range(count)) for rank in range(64)}
    outputs[1] += "\nlast"
    text = shown(outputs, max_bytes=8000)
    assert len(text.encode()) <= 8000


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["step 1 loss 2.5", "step 1 loss 2.75", "step 2 loss 1", "ready", "", "é" * 40, "nan 3"]
        ),
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30),
    ),
    max_size=12,
)
OUTPUTS = st.dictionaries(st.integers(0, 9), LINES.map("\n".join), min_size=1, max_size=5)


@given(OUTPUTS, st.integers(0, 400))
def test_the_text_never_exceeds_its_bytes(outputs: dict[int, str], max_bytes: int) -> None:
    assert len(shown(outputs, max_bytes).encode()) <= max_bytes


@given(OUTPUTS, st.integers(0, 9), st.sampled_from(["ValueError: 17", "loss nan at 3", "Traceback 4", "inf"]))
def test_every_line_that_matters_is_seen_under_its_rank(
    outputs: dict[int, str], rank: int, line: str
) -> None:
    outputs = {**outputs, rank: f"{outputs.get(rank, '')}\n{line}"}
    text = shown(outputs)
    assert line in text.split("\n")


@given(OUTPUTS)
def test_every_line_without_numbers_is_seen(outputs: dict[int, str]) -> None:
    lines = shown(outputs).split("\n")
    for text in outputs.values():
        for line in text.removesuffix("\n").split("\n"):
            assert any(char.isdecimal() for char in line) or not line or line in lines


def test_the_gap_of_a_capped_file_is_said() -> None:
    assert format_gap(10, 1_000_010, 1234) == (
        "[... 1,000,000 bytes, 1,234 lines fell out of the capped file here (offsets 10-1000010) ...]"
    )


def test_grep_gives_lines_and_their_numbers() -> None:
    text = "one\ntwo\nthree\n"
    assert grep(text, "^t") == "two\nthree\n"
    assert grep(text, "e$", numbered=True) == "1:one\n3:three\n"
    assert grep(text, "four") == ""


@pytest.mark.parametrize("pattern", ["[", r"(a)\1"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument):
        grep("a", pattern)
