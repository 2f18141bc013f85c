from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.memory.handle import Machine, Owner, span
from milkweed.runtime.memory.here import name
from milkweed.runtime.proc_place import PROC_VARIABLE, ProcPlace, encode_place


def test_without_a_length_a_read_moves_what_follows_and_a_write_what_is_here() -> None:
    assert span(100, 200, 30, None, write=False) == 70
    assert span(100, 20, 30, None, write=True) == 20
    assert span(100, 100, 100, None, write=False) == 0


@pytest.mark.parametrize("write", [False, True])
@given(data=st.data())
def test_what_is_moved_lies_within_both_ends_or_is_refused(write: bool, data: st.DataObject) -> None:
    size, local = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    offset, length = data.draw(st.integers(-5, 25)), data.draw(st.none() | st.integers(-5, 25))
    wanted = length if length is not None else local if write else size - offset
    if offset < 0 or wanted < 0 or offset + wanted > size or wanted > local:
        with pytest.raises(InvalidArgument, match="out_of_range"):
            span(size, local, offset, length, write=write)
    else:
        assert span(size, local, offset, length, write=write) == wanted


OUTSIDE = Machine("boot", 1, 1)
ONE, OTHER = Machine("boot", 1, 2, simulated=True), Machine("boot", 1, 3, simulated=True)


def test_simulated_hosts_are_machines_of_their_own_to_each_other_only() -> None:
    assert not ONE.shares_memory(OTHER)
    assert not ONE.shares_network(OTHER)
    assert ONE.shares_memory(Machine("boot", 1, 2, simulated=True))
    for host in (ONE, OTHER):
        assert host.shares_memory(OUTSIDE)
        assert OUTSIDE.shares_memory(host)
        assert not OUTSIDE.shares_network(host)


def test_no_way_leads_from_outside_into_the_network_of_simulated_hosts() -> None:
    assert OUTSIDE.is_cut_off(ONE)
    assert ONE.is_cut_off(OUTSIDE)
    assert not ONE.is_cut_off(OTHER)
    assert not OUTSIDE.is_cut_off(Machine("boot", 1, 1, simulated=True))


@pytest.mark.parametrize("other", [Machine("other", 1, 1), Machine("boot", 2, 1), Machine("boot", 2, 2)])
def test_another_boot_or_container_is_another_host(other: Machine) -> None:
    assert not OUTSIDE.shares_memory(other)
    assert not OUTSIDE.is_cut_off(other)


RANK = {"MILKWEED_RUN": "run-4xk", "MILKWEED_RANK": "2"}
PROC = {PROC_VARIABLE: encode_place(ProcPlace("trainers-1f-0", "host", "", "", (), 0, 0, "run-4xk"))}


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "process 12"),
        (RANK, "process 12 (rank 2 of run-4xk)"),
        ({"MILKWEED_RUN": "run-4xk"}, "process 12 (run-4xk)"),
        ({**RANK, **PROC}, "process 12 (proc trainers-1f-0)"),
    ],
)
def test_an_owner_is_told_by_what_its_mesh_calls_it(env: dict[str, str], said: str) -> None:
    assert str(Owner(b"token", 12, OUTSIDE, 5, "socket", name=name(env))) == said
