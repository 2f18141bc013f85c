from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.checking import LinkCheck, Measured, median, slow_links
from milkweed.runtime.checking.planning import (
    Visit,
    apart,
    rounds_of,
    share_s,
    size_for,
    tell_apart,
    visits_of,
)


def link(reader: int, source: int, gb_per_s: float, transport: str = "tcp") -> LinkCheck:
    return LinkCheck(reader, source, Measured(transport, gb_per_s, 1))


def test_each_host_reads_within_itself_and_from_the_next_one() -> None:
    pairs = {(reader, visit.source) for visit in visits_of(range(8)) for reader in visit.readers}
    assert pairs == {(host, host) for host in range(8)} | {(host, (host + 1) % 8) for host in range(8)}


def test_of_few_hosts_the_first_reads_from_all_others() -> None:
    assert visits_of((0, 1, 2, 3))[2] == Visit(2, (2, 1, 0))
    assert visits_of((4, 7)) == (Visit(4, (4, 7)), Visit(7, (7, 4)))
    assert visits_of((5,)) == (Visit(5, (5,)),)
    assert visits_of(()) == ()


@given(st.dictionaries(st.integers(0, 30), st.sampled_from("abcde"), max_size=12))
def test_no_machine_takes_part_in_two_visits_of_a_round_and_every_visit_has_its_turn(
    machines: dict[int, str],
) -> None:
    visits = visits_of(sorted(machines))
    rounds = rounds_of(visits, machines)
    assert sorted(visit.source for one in rounds for visit in one) == sorted(machines)
    for one in rounds:
        taken = [{machines[host] for host in (visit.source, *visit.readers)} for visit in one]
        assert sum(map(len, taken)) == len(set().union(*taken))


def test_hosts_of_their_own_take_few_rounds_and_those_of_one_machine_one_each() -> None:
    hosts = range(64)
    assert len(rounds_of(visits_of(hosts), {host: str(host) for host in hosts})) <= 3
    assert len(rounds_of(visits_of(hosts), dict.fromkeys(hosts, "one"))) == 64


def test_the_time_is_shared_among_all_that_follow_one_another() -> None:
    rounds = rounds_of(visits_of(range(64)), dict.fromkeys(range(64), "one"))
    assert share_s(rounds, 19.2) == pytest.approx(0.15)
    assert share_s(rounds, -5) == share_s(rounds, 0) > 0
    assert share_s(rounds[:1], 100) == 0.5
    assert share_s((), 10) == 0.5
    assert size_for(0.5) > size_for(0.1)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_half_of_the_numbers_are_on_either_side_of_the_median(numbers: list[float]) -> None:
    middle = median(numbers)
    assert 2 * sum(number < middle for number in numbers) <= len(numbers)
    assert 2 * sum(number > middle for number in numbers) <= len(numbers)


MACHINES = {host: str(host) for host in range(9)}


def test_a_link_below_half_of_the_median_is_slow() -> None:
    links = [link(0, 1, 1.0), link(1, 2, 0.49), link(2, 3, 0.51), link(3, 0, 1.2), link(4, 5, 1.0)]
    assert slow_links(links, MACHINES) == {(1, 2): 1.0}


def test_links_are_compared_with_those_of_their_transport_only() -> None:
    links = [link(0, 1, 1.0), link(1, 2, 1.0), link(2, 3, 20.0, "rdma"), link(3, 4, 20.0, "rdma")]
    assert slow_links(links, MACHINES) == {}


def test_one_of_two_may_be_slow_and_one_alone_is_not() -> None:
    assert slow_links([link(0, 1, 1.0), link(1, 0, 0.1)], MACHINES) == {(1, 0): 0.55}
    assert slow_links([link(0, 1, 0.001)], MACHINES) == {}
    assert slow_links([LinkCheck(0, 1, error="no")], MACHINES) == {}


def test_within_one_machine_no_host_is_slower_than_another() -> None:
    links = [link(host, host, speed, "process_vm") for host, speed in enumerate((5.0, 0.1, 5.0, 5.0))]
    assert slow_links(links, dict.fromkeys(range(4), "one")) == {}
    assert slow_links(links, MACHINES) == {(1, 1): 5.0}
    # Its best counts: what else went on there is no fault of it.
    assert slow_links([*links, link(2, 1, 4.0, "process_vm")], MACHINES) == {}


def test_a_network_that_one_machine_simulates_has_slow_links_where_they_are_shaped() -> None:
    links = [link(0, 1, 1.0), link(1, 2, 0.3), link(2, 3, 0.1), link(3, 0, 1.0), link(4, 0, 1.0)]
    assert slow_links(links, dict.fromkeys(range(5), "one")) == {(2, 3): 1.0}
    assert slow_links(links, MACHINES) == {(1, 2): 1.0, (2, 3): 1.0}


def test_a_third_host_tells_which_end_of_a_slow_link_is_at_fault() -> None:
    ring = {(0, 1), (1, 2), (2, 0), (0, 2)}
    assert tell_apart([(0, 1)], ring, range(3)) == (Visit(1, (2,)),)  # 0<-2 is known
    assert tell_apart([(1, 2)], ring, range(3)) == (Visit(0, (1,)),)
    assert tell_apart([(5, 6)], {(5, 6)}, range(9)) == (Visit(6, (0,)), Visit(0, (5,)))
    # The third is none that may be at fault itself, where there is another.
    assert tell_apart([(0, 1), (2, 3)], (), range(5)) == (Visit(1, (4,)), Visit(4, (0, 2)), Visit(3, (4,)))


def test_no_more_is_read_where_slow_links_have_a_host_in_common_or_no_third_one_is_there() -> None:
    assert tell_apart([(0, 1), (1, 2)], (), range(5)) == ()
    assert tell_apart([(1, 0)], {(1, 0), (0, 1)}, range(2)) == ()
    assert tell_apart([(1, 1)], (), range(5)) == ()


def test_one_host_of_each_place_stands_for_it() -> None:
    assert apart({0: ("a",), 1: ("a",), 2: ("b",), 3: ("b",), 4: ("c",)}, 8) == (0, 2, 4)
    assert apart({0: ("a",), 1: ("a",)}, 8) == apart({}, 8) == ()
    assert apart({host: (host,) for host in range(64)}, 8) == (0, 8, 16, 24, 32, 40, 48, 56)
