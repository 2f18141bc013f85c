from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.memory.broadcast.pieces import Gathering, Pieces, piece_size

KIB, MIB = 1024, 1024 * 1024


@given(st.integers(0, 10_000), st.integers(1, 3000))
def test_the_pieces_are_all_of_it_in_order_and_none_twice(size: int, piece: int) -> None:
    pieces, end = Pieces(size, piece), 0
    for number in range(pieces.count):
        at, length = pieces.span(number)
        assert (at, 0 < length <= piece) == (end, True)
        end += length
    assert end == size


@pytest.mark.parametrize(
    ("size", "piece"), [(0, 256 * KIB), (1, 256 * KIB), (256 * MIB, MIB), (300 * MIB, 300 * MIB // 256)]
)
def test_pieces_are_small_beside_the_whole(size: int, piece: int) -> None:
    assert piece_size(size) == piece


def test_huge_buffers_have_many_pieces() -> None:
    assert piece_size(1 << 40) == 4 * MIB


@given(st.integers(0, 40), st.data())
def test_each_piece_is_asked_for_once_until_its_owner_is_left_and_the_first_ones_first(
    count: int, data: st.DataObject
) -> None:
    gathering, offered, asked, here = Gathering(count), set[int](), set[int](), set[int]()
    for _ in range(data.draw(st.integers(0, 60))):
        what = data.draw(st.sampled_from(["offer", "take", "arrive", "leave"]))
        if what == "offer" and count:
            numbers = data.draw(st.lists(st.integers(0, count - 1), max_size=5))
            gathering.offer(numbers)
            offered |= set(numbers)
        elif what == "take":
            can = offered - asked - here
            taken = gathering.take()
            assert taken == (min(can) if can else None)
            asked |= {taken} if taken is not None else set()
        elif what == "arrive" and asked:
            number = data.draw(st.sampled_from(sorted(asked)))
            asked.remove(number)
            here.add(number)
            assert gathering.arrived(number) == (len(here) == count)
        elif what == "leave":
            gathering.forget_offers()
            offered, asked = set(), set()
        assert (gathering.have, gathering.is_whole) == (len(here), len(here) == count)


def test_a_piece_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="piece 3 of 3"):
        Gathering(3).offer([0, 3])
