from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.tree import Envelope
from milkweed.runtime.tree.order import Order


def numbered(number: int, previous: int = 0) -> Envelope:
    return Envelope(number, previous, 0, 0)


def test_a_message_that_comes_before_the_one_it_follows_is_held_until_that_has_come() -> None:
    order: Order[str] = Order()
    assert order.arrived(numbered(2, 1), "second") == []
    assert order.arrived(numbered(1), "first") == ["first", "second"]
    assert not order


def test_a_direct_message_is_taken_at_its_place_among_those_of_the_tree() -> None:
    order: Order[str] = Order()
    assert order.arrived(numbered(0, 1), "direct, after 1") == []
    assert order.arrived(numbered(2, 1), "2, behind it in its connection") == []
    assert order.arrived(numbered(1), "1") == ["1", "direct, after 1", "2, behind it in its connection"]


def test_a_number_is_known_once_it_has_come_whether_it_was_taken_or_is_held() -> None:
    order: Order[str] = Order()
    order.arrived(numbered(3, 2), "held")
    assert order.knows(3)
    assert not order.knows(2)
    order.arrived(numbered(2), "taken")
    assert order.knows(2)


def test_what_waits_for_a_message_that_will_not_come_is_taken_when_that_is_given_up() -> None:
    order: Order[str] = Order()
    order.arrived(numbered(0, 5), "direct")
    order.arrived(numbered(7, 6), "later")
    assert order.give_up(5) == ["direct"]
    assert order.give_up(6) == ["later"]
    assert order.last == 7


@given(st.data())
def test_messages_are_taken_in_the_order_in_which_they_were_sent_whatever_way_they_take(
    data: st.DataObject,
) -> None:
    """A sender's rule: a message goes over a tree, or directly if the tree's last one may not have arrived.
    Connections keep their order; how they interleave is drawn.
    """
    ways = data.draw(st.lists(st.sampled_from(["relay one", "relay two", "direct"]), max_size=12))
    lines: dict[str, list[tuple[Envelope, int]]] = {}
    last = 0
    direct_is_open = False
    for at, way in enumerate(ways):
        number = at + 1
        if way == "direct":
            lines.setdefault(way, []).append((numbered(0, last), at))
            direct_is_open = True
            continue
        # What follows a direct message that may be on its way goes behind it.
        lines.setdefault("direct" if direct_is_open else way, []).append((numbered(number, last), at))
        last = number
    order: Order[int] = Order()
    taken: list[int] = []
    while any(lines.values()):
        way = data.draw(st.sampled_from(sorted(way for way, line in lines.items() if line)))
        taken += order.arrived(*lines[way].pop(0))
    assert taken == list(range(len(ways)))
    assert not order
