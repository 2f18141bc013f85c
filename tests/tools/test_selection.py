"""Selections and cursors of a run's ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.records import RankView, RunView
from milkweed.tools.selection import CURSOR_MAX, format_cursor, parse_cursor, select_hosts, select_ranks


def run_on(*hosts: int) -> RunView:
    """A run whose rank r is on hosts[r]."""
    ranks = tuple(RankView(rank, host) for rank, host in enumerate(hosts))
    return RunView("run-a", "mesh-a", "running", "spmd", "x", ranks, 0.0)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (None, (0, 1, 2, 3)),
        ("all", (0, 1, 2, 3)),
        ("0-1,3", (0, 1, 3)),
        ("hosts=1", (2, 3)),
        ("gpus=0", (0, 2)),
        ("hosts=1,gpus=1", (3,)),
    ],
)
def test_ranks_are_chosen_by_number_or_place(text: str | None, ranks: tuple[int, ...]) -> None:
    assert select_ranks(text, run_on(0, 0, 1, 1)) == ranks


def test_hosts_of_a_run_on_a_part_of_the_mesh_are_the_meshs_own() -> None:
    assert select_ranks("hosts=3", run_on(1, 3, 3)) == (1, 2)


@pytest.mark.parametrize("text", ["4", "0-9", "x", "hosts=7", "hosts=0,gpus=2", "1-0", "hosts=2"])
def test_ranks_that_are_not_there_are_refused(text: str) -> None:
    with pytest.raises(MilkweedError):
        select_ranks(text, run_on(0, 0, 1, 3))


def test_ranks_with_one_offset_share_it() -> None:
    assert format_cursor({0: 5, 1: 5, 2: 7, 3: 5}) == "0-1,3@5;2@7"


@given(st.dictionaries(st.integers(0, 40), st.integers(0, 10**12), min_size=1, max_size=20))
def test_a_cursor_comes_back(offsets: dict[int, int]) -> None:
    assert parse_cursor(format_cursor(offsets), range(41)) == offsets


def test_a_cursor_of_many_places_is_not_given() -> None:
    assert format_cursor({rank: rank**3 for rank in range(1000)}) == ""
    assert len(format_cursor(dict.fromkeys(range(0, 100, 2), 10**9))) <= CURSOR_MAX


@pytest.mark.parametrize("text", ["", "x", "0-3", "0@-1", "0@1;0@2", "9@1", "0@1;", "3-0@1", "0@" + "9" * 30])
def test_a_cursor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(MilkweedError):
        parse_cursor(text, range(4))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [(None, (0, 1, 2)), ("", (0, 1, 2)), ("all", (0, 1, 2)), ("2,0", (0, 2)), (" hosts=1-2 ", (1, 2))],
)
def test_hosts_are_selected_by_their_numbers(text: str | None, hosts: tuple[int, ...]) -> None:
    assert select_hosts(text, 3) == hosts


@pytest.mark.parametrize("text", ["3", "a", "2-1", "gpus=0"])
def test_a_selection_of_no_hosts_is_refused(text: str) -> None:
    with pytest.raises(MilkweedError):
        select_hosts(text, 3)
