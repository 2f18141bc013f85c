from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError
from milkweed.runtime.job_records import JobRequest
from milkweed.runtime.keeper.launchers import Placement
from milkweed.runtime.keeper.replica_plans import Slot, place, plan_replica
from milkweed.runtime.mesh import Extent


def wanted(replicas: int, procs: int = 1) -> JobRequest:
    return JobRequest(("python", "train.py"), replicas, procs, env={"X": "y"})


def hosts_of(slots: Iterable[Slot]) -> list[int]:
    return [slot.host for slot in slots]


def test_replicas_are_spread_over_the_hosts() -> None:
    slots = place(wanted(4, 2), Extent(hosts=2, gpus=4), [0, 1], {})
    assert slots == (
        Slot(0, 0, (0, 1)),
        Slot(1, 0, (4, 5)),
        Slot(0, 1, (2, 3)),
        Slot(1, 1, (6, 7)),
    )


def test_a_lost_host_gets_none_and_an_emptier_one_comes_first() -> None:
    assert hosts_of(place(wanted(2), Extent(hosts=3, gpus=2), [0, 2], {})) == [0, 2]
    assert hosts_of(place(wanted(3), Extent(hosts=2, gpus=2), [0, 1], {"job-a": [(0, 0)]})) == [1, 0, 1]


@pytest.mark.parametrize(
    ("request_", "ready", "words"),
    [
        (wanted(1, 5), [0, 1], "unsupported: a replica lies on one host: 5 ranks do not fit the 4 of a host"),
        (
            wanted(3, 3),
            [0, 1],
            "3 replicas of 3 ranks; there is room for 2: 1 on each of 2 hosts with 4 ranks",
        ),
        (wanted(5), [1], "room for 4: 4 on each of 1 host with 4 ranks (hosts 0 cannot be used)"),
        (wanted(1), [], "there is room for 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(
    request_: JobRequest, ready: list[int], words: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        place(request_, Extent(hosts=2, gpus=4), ready, {})
    assert words in str(refused.value)


def test_a_slot_that_any_rank_of_another_job_has_is_taken() -> None:
    with pytest.raises(Conflict) as refused:
        place(wanted(2, 2), Extent(hosts=1, gpus=4), [0], {"job-a": [(0, 3)]})
    assert "slots_in_use: 2 replicas of 2 ranks; 1 fit beside job-a, of 2 in all" in str(refused.value)


def test_ranks_are_numbered_within_their_replica_and_know_the_job() -> None:
    placement = Placement("run-b", Extent(hosts=2, gpus=4), ["10.0.0.1", "10.0.0.2"], "/w", "/py", "/bin")
    plan = plan_replica(wanted(4, 2), "job-a", 3, Slot(1, 1, (6, 7)), placement)
    assert (plan.plan.run, plan.plan.host, plan.replica) == ("run-b", 1, 3)
    assert [one.rank for one in plan.plan.processes] == [0, 1]
    env = plan.plan.processes[1].env
    assert {name: env[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "X")} == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "10.0.0.2",
        "X": "y",
    }
    assert {name: value for name, value in env.items() if name.startswith("MILKWEED_")} == {
        "MILKWEED_HOST": "1",
        "MILKWEED_HOST_ADDRESS": "10.0.0.2",
        "MILKWEED_JOB": "job-a",
        "MILKWEED_REPLICA": "3",
        "MILKWEED_REPLICAS": "4",
        "MILKWEED_LOCAL_SLOT": "3",
    }


@pytest.mark.parametrize(("warm", "cold"), [(True, None), (False, "")])
def test_replicas_that_are_to_start_cold_do(warm: bool, cold: str | None) -> None:
    placement = Placement("run-b", Extent(hosts=1, gpus=2), ["10.0.0.1"], "/w", "/py", "/bin", cold=None)
    request = replace(wanted(1, 2), warm=warm)
    plan = plan_replica(request, "job-a", 0, Slot(0, 0, (0, 1)), placement)
    assert [one.cold for one in plan.plan.processes] == [cold, cold]


@given(st.data())
def test_placed_replicas_never_share_a_place_and_lie_on_ready_hosts(data: st.DataObject) -> None:
    extent = Extent(hosts=data.draw(st.integers(1, 5)), gpus=data.draw(st.integers(1, 5)))
    ready = data.draw(st.sets(st.integers(0, extent.hosts - 1)))
    spots = st.tuples(st.integers(0, extent.hosts - 1), st.integers(0, extent.gpus - 1))
    taken = data.draw(st.lists(spots, max_size=6))
    request = wanted(data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3)))
    try:
        slots = place(request, extent, ready, {"job-a": taken} if taken else {})
    except MilkweedError:
        return
    ranks = [rank for slot in slots for rank in slot.ranks]
    assert len(ranks) == len(set(ranks)) == request.replicas * request.procs_per_replica
    for slot in slots:
        assert slot.host in ready
        assert {extent.host_of(rank) for rank in slot.ranks} == {slot.host}
        assert not {(slot.host, rank % extent.gpus) for rank in slot.ranks}.intersection(taken)
