from __future__ import annotations

import json
from typing import Any

import pytest

from milkweed.runtime.codec import from_json, to_json
from milkweed.runtime.records import (
    Exit,
    HostEvent,
    HostPlan,
    HostView,
    MeshSpec,
    MeshView,
    ProcessPlan,
    RankView,
    RunView,
)


@pytest.mark.parametrize(
    "record",
    [
        MeshView(
            "mesh-a-b",
            MeshSpec("a", 2, 2, options={"isolation": "none"}),
            "ready",
            (HostView(0, "a-0", "x", "lost"),),
        ),
        RunView(
            "run-a", "mesh-a-b", "failed", "spmd", "x", (RankView(0, 0, "failed", 7, Exit(code=0)),), 1.5
        ),
        HostPlan(
            "run-a", 0, (ProcessPlan(-1, "torchrun-0", ("a", "b"), {"A": ""}, "/"),), (0, 1), "echo", 0.5
        ),
        HostEvent(3, 1.0, "rank_exited", "run-a", 0, 9, Exit(signal=9, oom_kills=1, ended_by="timeout")),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_survives_json(record: Any) -> None:
    assert from_json(type(record), json.loads(json.dumps(to_json(record)))) == record


def test_fields_of_another_version_are_ignored_and_missing_ones_take_their_default() -> None:
    assert from_json(Exit, {"code": 1, "invented_later": [1]}) == Exit(code=1)
