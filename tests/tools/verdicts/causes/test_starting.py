"""Ranks that do not find each other."""

from __future__ import annotations

from typing import Any

import pytest

from milkweed.runtime.evidence import HostEvidence, Listener
from milkweed.runtime.records import Frame

from .building import RENDEZVOUS, case, cause, frame, raised, rank, told

ENV = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def joining(number: int, *, env: dict[str, str] | None = None, **values: str) -> Any:
    inner: Frame = frame(RENDEZVOUS[-1], **values)
    return rank(number, stack=["train.py:3 main", *RENDEZVOUS[:-1], inner], env={**ENV, **(env or {})})


def test_a_rank_that_was_never_started() -> None:
    found = told(*(joining(n) for n in range(3))).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("missing_rank", (3,))


def test_a_size_that_the_program_made_up() -> None:
    ranks = [joining(n, env={"WORLD_SIZE": "2"}, world_size="8") for n in range(2)]
    found = told(*ranks).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("world_size_mismatch", (0, 1))
    assert "8 ranks" in found.summary


def test_ranks_that_have_different_sizes() -> None:
    ranks = [joining(n, world_size="4" if n else "2") for n in range(4)]
    assert cause(*ranks) == ("world_size_mismatch", (0,))


def test_a_rank_that_does_something_else_than_to_join() -> None:
    elsewhere = rank(3, stack=["train.py:9 main", "data.py:4 download"], env=ENV, cpu=0.3)
    found = told(*(joining(n) for n in range(3)), elsewhere).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("missing_rank", (3,))
    assert "data.py:4 download" in found.summary


def test_a_rank_that_ended_before_it_joined() -> None:
    assert cause(*(joining(n) for n in range(3)), rank(3, code=0)) == ("missing_rank", (3,))


def test_ranks_that_look_elsewhere() -> None:
    ranks = [joining(n, port="29500" if n < 3 else "29501") for n in range(4)]
    found = told(*ranks).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("wrong_master", (3,))
    assert "29501" in found.summary


@pytest.mark.parametrize(
    "words",
    [
        "The client socket has failed to connect to [10.0.0.9]:29500 (errno: 110 - Connection timed out).",
        "The addresses of (10.0.0.9, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
    ],
)
def test_an_address_where_nobody_is(words: str) -> None:
    text = raised(
        f"torch.distributed.DistNetworkError: {words}", "torch/distributed/rendezvous.py:5 TCPStore"
    )
    ranks = [
        rank(n, code=1, text="in init_process_group\n" + text, env={**ENV, "MASTER_ADDR": "10.0.0.9"})
        for n in range(4)
    ]
    kind, _ = cause(*ranks)
    assert kind == "wrong_master"


def test_that_somebody_listens_makes_a_wrong_address_less_likely() -> None:
    words = "rendezvous TCPStore: the client socket has timed out, failed to connect to [127.0.0.1]:29500"
    ranks = [rank(n, code=1, text=raised(f"DistNetworkError: {words}"), env=ENV) for n in range(4)]
    there = [HostEvidence(0, listeners=(Listener(29500, "*", 7),))]
    for hosts, told_so in ((there, False), ([], True)):
        found = [one.cause for one in (told(*ranks, hosts=hosts),) if one.cause is not None]
        assert any("nobody listens there" in one.summary for one in found) is told_so


def test_ranks_that_train_are_not_starting() -> None:
    assert cause(*(rank(n, stack=["train.py:9 main"], env=ENV) for n in range(3)), state="running")[
        0
    ] not in (
        "missing_rank",
        "world_size_mismatch",
        "wrong_master",
    )
    assert case().world_size == 0
