from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.mesh import Extent, format_ranks, parse_ranges, parse_selection

EXTENT = Extent(hosts=2, gpus=4)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (None, tuple(range(8))),
        ("", tuple(range(8))),
        ("all", tuple(range(8))),
        ("0-2,7", (0, 1, 2, 7)),
        ("7,0", (0, 7)),
        ("hosts=1", (4, 5, 6, 7)),
        ("0" * 5001, (0,)),
        ("gpus=0", (0, 4)),
        ("hosts=1,gpus=0-1", (4, 5)),
        ("hosts=0-1,gpus=0,2", (0, 2, 4, 6)),
    ],
)
def test_a_selection_names_ranks(text: str | None, ranks: tuple[int, ...]) -> None:
    assert parse_selection(text, EXTENT) == ranks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("8", "rank_not_found: no rank 8; ranks are 0-7"),
        ("hosts=2", "host_not_found: no host 2; hosts are 0-1"),
        ("3-1", "runs backwards"),
        ("a", "cannot read 'a'"),
        ("-1", "cannot read '-1'"),
        ("cores=1", "dimensions are hosts, gpus"),
        ("0,hosts=1", "cannot read"),
        ("hosts=", "cannot read"),
        ("hosts=0,hosts=1", "the dimension hosts is named twice"),
        ("9" * 5001, "rank_not_found: no rank 999999999999999999..."),
    ],
)
def test_a_wrong_selection_says_what_there_is(text: str, says: str) -> None:
    with pytest.raises(MilkweedError) as caught:
        parse_selection(text, EXTENT)
    assert says in str(caught.value)


def test_dimensions_of_any_name_and_number_are_selected_by() -> None:
    extent = Extent(zone_1=2, dp=2, tp=3)
    assert parse_selection("tp=0,2,zone_1=1", extent) == (6, 8, 9, 11)
    assert parse_selection("dp=1", Extent(dp=2)) == (1,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dp=2", "rank_not_found: no dp 2; dp is 0-1"),
        ("tp=x", 'cannot read \'x\' as tp. Write ranks as "0-3,7" or by dimension as "dp=0,tp=0".'),
        ("gpus=0", "no dimension 'gpus'; dimensions are dp, tp"),
        ("dp=0tp=1", "cannot read '0tp=1' as dp"),
    ],
)
def test_a_wrong_selection_is_told_in_the_names_of_its_mesh(text: str, says: str) -> None:
    with pytest.raises(MilkweedError) as caught:
        parse_selection(text, Extent(dp=2, tp=3))
    assert says in str(caught.value)


@given(st.sets(st.integers(0, 200)))
def test_formatted_ranks_read_back_as_the_same_set(ranks: set[int]) -> None:
    text = format_ranks(ranks)
    assert (set(parse_ranges(text, 201)) if text else set()) == ranks
