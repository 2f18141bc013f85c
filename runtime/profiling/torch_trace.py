"""What torch's profiler recorded, by operation: a Chrome trace, read. Pure."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TorchOp", "read_trace"]

_ON_CPU = ("cpu_op", "user_annotation")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True, slots=True)
class TorchOp:
    """An operation, or on a device (`device`) a kernel, with its own time: without those inside it."""

    name: str
    count: int
    self_s: float
    device: bool = False


def read_trace(compressed: bytes) -> tuple[TorchOp, ...]:
    """The operations of a trace, those with the most time first; of all threads together.

    Raises:
        ValueError: it is no such trace.
    """
    try:
        events = json.loads(gzip.decompress(compressed))["traceEvents"]
        spans = [one for one in events if one.get("ph") == "X"]
        found = _own_times([one for one in spans if one.get("cat") in _ON_CPU])
        on_device: dict[str, list[float]] = defaultdict(list)
        for one in spans:
            if one.get("cat") in _ON_DEVICE:
                on_device[str(one["name"])].append(float(one["dur"]))
    except (OSError, EOFError, zlib.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a trace of another shape: {error!r}") from None
    ops = [*_ops(found.items(), device=False), *_ops(on_device.items(), device=True)]
    return tuple(sorted(ops, key=lambda op: -op.self_s))


def _ops(times: Iterable[tuple[str, Sequence[float]]], *, device: bool) -> list[TorchOp]:
    return [TorchOp(name, len(each), sum(each) / 1e6, device) for name, each in times]


def _own_times(spans: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Microseconds of each span without the spans inside it, by name."""
    threads: dict[object, list[tuple[float, float, str]]] = defaultdict(list)
    for one in spans:
        threads[one.get("tid")].append((float(one["ts"]), float(one["dur"]), str(one["name"])))
    found: dict[str, list[float]] = defaultdict(list)
    for each in threads.values():
        open_: list[list[Any]] = []  # end, time inside, own duration, name

        def close(until: float, open_: list[list[Any]] = open_) -> None:
            while open_ and open_[-1][0] <= until:
                _, inside, duration, name = open_.pop()
                found[name].append(max(0.0, duration - inside))

        for begin, duration, name in sorted(each, key=lambda span: (span[0], -span[1])):
            close(begin)
            if open_:
                open_[-1][1] += duration
            open_.append([begin + duration, 0.0, duration, name])
        close(float("inf"))
    return found
