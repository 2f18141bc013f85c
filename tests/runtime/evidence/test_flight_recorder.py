"""Dumps of torch's flight recorder as records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.evidence import Collective, Flight
from milkweed.runtime.evidence.flight_recorder import parse_flight


def entry(seq: int, op: str = "gloo:all_reduce", **more: Any) -> dict[str, Any]:
    """As torch 2.11 writes one of gloo."""
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": op,
        "time_created_ns": seq * 1_000_000_000,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 1800000,
        "is_p2p": False,
        **more,
    }


def parsed(*entries: Any, **more: Any) -> tuple[Collective, ...]:
    return parse_flight(json.dumps({"version": "2.10", "entries": entries, **more}).encode()).entries


def test_an_entry_is_told_with_its_shape_and_time() -> None:
    assert parsed(entry(3)) == (
        Collective(3, "all_reduce", "0", ((4, 2),), ("Float",), at=3.0, done=True, p2p=False),
    )


@pytest.mark.parametrize(
    ("fields", "done"),
    [
        ({"retired": True}, True),
        ({"retired": False}, False),
        ({"retired": False, "state": "completed"}, True),
        ({"retired": False, "state": "started"}, False),
    ],
)
def test_an_operation_is_over_when_it_is_retired_or_completed(fields: dict[str, Any], done: bool) -> None:
    assert [one.done for one in parsed(entry(1, **fields))] == [done]


def test_the_status_of_a_group_tells_of_operations_that_are_not_retired() -> None:
    status = {"0": {"last_completed_collective": 2, "last_enqueued_collective": 3}, "1": {}}
    found = parsed(*(entry(seq, retired=False) for seq in (1, 2, 3)), pg_status=status)
    assert [one.done for one in found] == [True, True, False]
    assert not parsed(entry(1, retired=False), pg_status={"0": {"last_completed_collective": -1}})[0].done


def test_point_to_point_operations_have_their_own_numbers() -> None:
    (found,) = parsed(entry(0, "nccl:send 0->1", is_p2p=True, p2p_seq_id=7, collective_seq_id=2))
    assert (found.seq, found.p2p, found.op) == (7, True, "send 0->1")


def test_only_the_latest_entries_are_kept() -> None:
    found = parsed(*(entry(seq) for seq in range(1, 1001)))
    assert len(found) == 256
    assert found[-1].seq == 1000


def test_what_older_versions_leave_out_is_not_needed() -> None:
    bare = {"pg_id": 2, "collective_seq_id": 5, "profiling_name": "all_gather"}
    assert parsed(bare) == (Collective(5, "all_gather", "2"),)
    assert parse_flight(b'{"entries": []}', kept=True) == Flight(kept=True)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\0\xff\xfe",
        b"{",
        b"null",
        b"[]",
        b"3",
        b"{}",
        b'{"entries": 3}',
        b'{"entries": {"a": 1}}',
        b'{"entries": [3]}',
        b'{"entries": [{}]}',
        b'{"entries": [{"collective_seq_id": "x"}]}',
        b'{"entries": [{"collective_seq_id": Infinity, "profiling_name": ""}]}',
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_anything_else_is_refused(junk: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own, or ours
        parse_flight(junk)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from(list(entry(1))), JSON, max_size=4)


@given(st.lists(FIELDS, max_size=3), JSON)
def test_a_dump_of_another_shape_is_refused_and_nothing_worse(
    changes: list[dict[str, Any]], status: Any
) -> None:
    try:
        found = parsed(*(entry(at, **change) for at, change in enumerate(changes)), pg_status=status)
    except ValueError:
        return
    assert len(found) == len(changes)
