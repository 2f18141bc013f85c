"""What torch's flight recorder tells, as records. Pure.

The fields are those of torch 2.9 to 2.13; of gloo, `state` stays "scheduled" and `retired` tells that an
operation is over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .records import Collective, Flight

__all__ = ["parse_flight"]

_MOST = 256


def parse_flight(data: bytes, *, kept: bool = False) -> Flight:
    """The latest entries of a dump as JSON.

    Raises:
        ValueError: it is no such dump.
    """
    try:
        value = json.loads(data)
        entries = value.get("entries", ()) if "version" in value else value["entries"]  # before the first one
        done = _completed(value.get("pg_status") or {})
        return Flight(tuple(_entry(entry, done) for entry in entries[-_MOST:]), kept=kept)
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"a flight recorder's dump of another shape: {error!r}") from None


def _completed(status: Mapping[str, Any]) -> dict[str, int]:
    """The last collective that each group has completed."""
    found = {}
    for group, one in status.items():
        number = one.get("last_completed_collective")
        if isinstance(number, int) and number >= 0:
            found[str(group)] = number
    return found


def _entry(entry: Mapping[str, Any], completed: Mapping[str, int]) -> Collective:
    group = str((entry.get("process_group") or [entry.get("pg_id", 0)])[0])
    p2p = bool(entry.get("is_p2p"))
    seq = int(entry["p2p_seq_id"] if p2p else entry["collective_seq_id"])
    over = bool(entry.get("retired")) or entry.get("state") == "completed"
    return Collective(
        seq=seq,
        op=str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"]),
        group=group,
        sizes=tuple(tuple(int(n) for n in size) for size in entry.get("input_sizes") or ()),
        dtypes=tuple(str(one) for one in entry.get("input_dtypes") or ()),
        at=int(entry.get("time_created_ns") or 0) / 1e9,
        done=over or (not p2p and seq <= completed.get(group, -1)),
        p2p=p2p,
    )
