"""Chrome traces of torch's profiler, by operation."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from milkweed.runtime.profiling import TorchOp, read_trace


def span(name: str, ts: float, dur: float, *, tid: int = 1, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur}


def packed(*events: dict[str, Any]) -> bytes:
    return gzip.compress(json.dumps({"traceEvents": events}).encode())


def test_an_operation_has_the_time_that_those_inside_it_leave() -> None:
    trace = packed(
        span("linear", 0, 100),
        span("mm", 10, 60),
        span("add", 75, 20),
        span("mm", 200, 40),
        span("mm", 0, 30, tid=2),
    )
    ops = {op.name: op for op in read_trace(trace)}
    assert ops["linear"] == TorchOp("linear", 1, pytest.approx(20e-6))
    assert ops["mm"] == TorchOp("mm", 3, pytest.approx(130e-6))
    assert next(iter(ops)) == "mm"


def test_kernels_are_told_apart_and_the_rest_is_left_out() -> None:
    trace = packed(
        span("launch", 0, 10),
        span("sgemm", 5, 50, cat="kernel", tid=7),
        {"ph": "M", "name": "process_name"},
        {"ph": "s", "cat": "fwdbwd", "name": "x", "ts": 1},
    )
    assert [(op.name, op.device) for op in read_trace(trace)] == [("sgemm", True), ("launch", False)]


@pytest.mark.parametrize(
    "junk", [b"", b"junk", gzip.compress(b"{}"), gzip.compress(b"[]"), packed({"ph": "X", "cat": "cpu_op"})]
)
def test_what_is_no_trace_is_said_to_be_none(junk: bytes) -> None:
    with pytest.raises(ValueError, match=r"trace|JSON|Expecting|shape"):
        read_trace(junk)
