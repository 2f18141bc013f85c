"""Points in lines of JSON: those of `report`, those of a file, and those among a program's output. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .series import MetricPoint
from .words import is_progress, plausible_time, values_of

__all__ = ["find_note", "parse_json_lines", "parse_reported"]

_STEPS = (
    "step",
    "global_step",
    "_step",
    "train_step",
    "iteration",
    "iter",
    "it",
    "num_updates",
    "update",
    "batch",
)
_TIMES = ("time", "timestamp", "_timestamp", "wall_time", "ts", "at")
_LONGEST = 64 * 1024


def parse_reported(data: bytes) -> Iterator[MetricPoint]:
    """The lines of `report`; a first or last one that is cut is left out, as is whatever else is there."""
    for line in data.splitlines():
        if line[:1] != b"[" or line[-1:] != b"]":
            continue
        try:
            at, step, values = json.loads(line)
            point = MetricPoint(step, float(at), {str(k): float(v) for k, v in values.items()})
        except (ValueError, TypeError, AttributeError, RecursionError):
            continue
        if step is None or isinstance(step, int):
            yield point


def find_note(data: bytes) -> str:
    """What `report` says of its own file."""
    for line in data.splitlines():
        if line.startswith(b'{"note": '):
            try:
                return str(json.loads(line)["note"])
            except (ValueError, TypeError, KeyError):
                continue
    return ""


def parse_json_lines(data: bytes) -> Iterator[MetricPoint]:
    """Lines that are objects with a metric in them; a nested object adds its names, `eval/loss`."""
    for line in data.split(b"\n"):
        line = line.strip()  # noqa: PLW2901
        if line[:1] != b"{" or line[-1:] != b"}" or len(line) > _LONGEST:
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and (point := _point(found)) is not None:
            yield point


def _point(found: Mapping[str, Any]) -> MetricPoint | None:
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat.update({f"{name}/{inner}": number for inner, number in value.items()})
        else:
            flat[name] = value
    values = values_of(flat)
    step = next((flat[name] for name in _STEPS if type(flat.get(name)) is int), None)
    if not values or (step is None and not any(map(is_progress, values))):
        return None
    at = next((at for name in _TIMES if (at := plausible_time(flat.get(name))) is not None), None)
    return MetricPoint(step, at, values)
