from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from milkweed.runtime.addresses import ProcAddress
from milkweed.runtime.tree import Branch, branches

MOST_OWN = 32


def addresses_of(hosts: Sequence[int]) -> list[ProcAddress]:
    return [ProcAddress(f"p{at}", f"host{host}", f"/s/{at}", f"/c/{at}") for at, host in enumerate(hosts)]


def everywhere(roots: Sequence[Branch]) -> Iterator[Branch]:
    for root in roots:
        yield root
        yield from everywhere(root.below)


def depth(roots: Sequence[Branch]) -> int:
    return 1 + max((depth(root.below) for root in roots), default=-1) if roots else 0


hosts_of_ranks = st.lists(st.integers(0, 60), min_size=1, max_size=300)
fan_outs = st.integers(2, 9)


@given(hosts_of_ranks, fan_outs)
def test_every_rank_is_reached_once_and_by_its_own_socket(hosts: list[int], fan_out: int) -> None:
    addresses = addresses_of(hosts)
    tree = branches(addresses, fan_out=fan_out, most_own=MOST_OWN)
    assert sorted(at for root in tree for at in root.positions()) == list(range(len(hosts)))
    for branch in everywhere(tree):
        assert branch.socket == addresses[branch.relay].socket
        assert all(socket == addresses[at].socket for at, socket in branch.own)


@given(hosts_of_ranks, fan_outs)
def test_a_host_has_one_relay_which_passes_on_to_that_host_alone(hosts: list[int], fan_out: int) -> None:
    relays: Counter[int] = Counter()
    for branch in everywhere(branches(addresses_of(hosts), fan_out=fan_out, most_own=len(hosts))):
        relays[hosts[branch.relay]] += 1
        own = {at for at, _ in branch.own}
        assert branch.relay in own
        assert {hosts[at] for at in own} == {hosts[branch.relay]}
    assert relays == Counter(set(hosts))


@given(st.integers(1, 500), st.integers(1, 40))
def test_a_host_of_very_many_ranks_has_a_relay_for_each_part_of_them(ranks: int, most_own: int) -> None:
    tree = branches(addresses_of([0] * ranks), most_own=most_own)
    assert [len(branch.own) <= most_own for branch in everywhere(tree)].count(True) == math.ceil(
        ranks / most_own
    )


@settings(deadline=None)
@given(st.integers(1, 1500), fan_outs)
def test_the_fan_out_is_bounded_and_the_depth_is_the_logarithm_of_the_hosts(hosts: int, fan_out: int) -> None:
    tree = branches(addresses_of(range(hosts)), fan_out=fan_out)
    assert len(tree) <= fan_out
    assert all(len(branch.below) <= fan_out for branch in everywhere(tree))
    assert depth(tree) <= math.floor(math.log(hosts, fan_out) + 1e-9) + 1


@given(st.integers(1, 40), st.integers(1, 9), fan_outs)
def test_where_ranks_lie_host_by_host_a_branch_holds_ranks_that_follow_each_other(
    hosts: int, each: int, fan_out: int
) -> None:
    for branch in everywhere(
        branches(addresses_of([at // each for at in range(hosts * each)]), fan_out=fan_out)
    ):
        positions = list(branch.positions())
        assert positions == list(range(positions[0], positions[0] + len(positions)))


@given(hosts_of_ranks, st.sets(st.integers(0, 299)))
def test_a_rank_to_avoid_is_a_relay_only_where_its_host_has_no_other(
    hosts: list[int], avoid: set[int]
) -> None:
    for branch in everywhere(branches(addresses_of(hosts), avoid=avoid)):
        if branch.relay in avoid:
            assert {at for at, _ in branch.own} <= avoid


@given(hosts_of_ranks, st.data())
def test_a_part_of_the_ranks_keeps_its_positions(hosts: list[int], data: st.DataObject) -> None:
    among = sorted(data.draw(st.sets(st.sampled_from(range(len(hosts))), min_size=1)))
    tree = branches(addresses_of(hosts), among=among)
    assert sorted(at for root in tree for at in root.positions()) == among
