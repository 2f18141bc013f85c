"""How patient the watch is. Of a mesh, `MILKWEED_WATCH` says it where the mesh is allocated."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

__all__ = ["VARIABLE", "WatchPolicy", "parse_policy"]

VARIABLE = "MILKWEED_WATCH"


@dataclass(frozen=True, slots=True)
class WatchPolicy:
    """Times in seconds, CPU in cores.

    A run is looked at after `quiet_s` without output or steps, and again when it has been quiet for twice as
    long, at least every `longest_s`. It is still after two equal looks that are `apart_s` apart. Whose CPU
    uses more than `busy`, or who wakes more than `wakes` times a second, needs `busy_s` of quiet and
    `busy_looks` equal looks, `hurry_s` apart at the end; what is no Python needs `busy_s` without CPU. Who
    went on after a pause before is given `patience` times that, up to `patience_s`. To read or write
    `io_bytes` in each of `io_samples` samples is a movement. `look_s` and `flight_s` are what stacks and the
    flight recorder are waited for. Every `pace_s` the step that a run is at is looked at; it is slow when its
    steps take `slower` times as long as they did, in spans of `span_looks` looks at least.
    """

    on: bool = True
    sample_s: float = 2.0
    quiet_s: float = 15.0
    apart_s: float = 10.0
    busy_s: float = 60.0
    busy: float = 0.03
    wakes: float = 2.0
    busy_looks: int = 7
    hurry_s: float = 1.5
    longest_s: float = 120.0
    patience: float = 2.0
    patience_s: float = 300.0
    io_bytes: int = 64 * 1024
    io_samples: int = 3
    look_s: float = 5.0
    flight_s: float = 1.0
    pace_s: float = 10.0
    span_looks: int = 2
    slower: float = 3.0


def parse_policy(text: str, default: WatchPolicy | None = None) -> WatchPolicy:
    """`off`, or changes to the default: `quiet_s=1,apart_s=0.5`. What is no such setting is ignored."""
    policy = default or WatchPolicy()
    if text.strip().lower() in ("off", "0", "no", "false"):
        return replace(policy, on=False)
    types = {one.name: type(getattr(policy, one.name)) for one in fields(policy)}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in types or name == "on":
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        if 0 < number < 1e9:
            policy = replace(policy, **{name: types[name](number)})
    return policy
