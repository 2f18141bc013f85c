"""`python -m benchmarks.scale [--model] [--hosts N] [--per-host N]`: docs/scale.md, measured and computed."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields

import anyio

from ..harness import BENCHMARKS, machine
from .measure import measure
from .model import KIB, MIB, Constants, Size, costs, holdings, most_ranks_called_within, shape_of

__all__ = ["CONSTANTS", "PAGE", "main", "with_tables"]

CONSTANTS = BENCHMARKS / "scale" / "constants.json"
PAGE = BENCHMARKS.parent / "docs" / "scale.md"
SIZES = (Size(64, 4), Size(1000, 8))
_BEGIN, _END = "<!-- {}: written by benchmarks/scale -->", "<!-- end -->"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.scale", description="Measures and computes docs/scale.md."
    )
    parser.add_argument("--model", action="store_true", help="compute anew, of the constants measured before")
    parser.add_argument("--hosts", type=int, default=16, help="simulated hosts to measure on (8 or more)")
    parser.add_argument("--per-host", type=int, default=4, help="procs on each")
    options = parser.parse_args(argv)
    if not options.model:
        found = anyio.run(measure, options.hosts, options.per_host)
        facts = {**machine(), "hosts": options.hosts, "per_host": options.per_host}
        rounded = {name: float(f"{value:.3g}") for name, value in asdict(found).items()}
        CONSTANTS.write_text(json.dumps({"machine": facts, "constants": rounded}, indent=1) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), CONSTANTS.read_text()))
    return 0


def with_tables(page: str, text: str) -> str:
    """The page with its tables made of the constants."""
    kept = json.loads(text)
    of = Constants(**kept["constants"])
    facts = ", ".join(f"{name} {value}" for name, value in kept["machine"].items())
    tables = {
        "constants": [f"Measured on: {facts}.", "", *_constants(of)],
        **{f"model {size.hosts} x {size.per_host}": list(_model(of, size)) for size in SIZES},
    }
    for name, lines in tables.items():
        begin = _BEGIN.format(name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(_END)
        page = "\n".join([before + begin, "", *lines, "", _END]) + after
    return page


def _constants(of: Constants) -> Iterable[str]:
    yield "| constant | value |"
    yield "|---|---|"
    for field in fields(of):
        value = getattr(of, field.name)
        if field.name.endswith("_us"):
            yield f"| `{field.name}` | {_time(value)} |"
        else:
            yield f"| `{field.name}` | {_bytes(value)} |"


def _model(of: Constants, size: Size) -> Iterable[str]:
    shape = shape_of(size)
    words = (
        f"The tree: {shape.roots} relays below the caller, {shape.depth} levels; the widest relay sends to "
        f"{shape.widest}, the largest branch holds {shape.largest} ranks. Within 50 ms of its own time a "
        f"caller calls {most_ranks_called_within(of, size, 50):,} ranks."
    )
    yield textwrap.fill(words, 118)
    yield ""
    yield "| what | who | messages | bytes | processor time |"
    yield "|---|---|---|---|---|"
    for cost in costs(of, size):
        cells = (cost.what, cost.who, _count(cost.messages), _bytes(cost.bytes), _time(cost.cpu_ms * 1e3))
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "| who | connections | memory for them |"
    yield "|---|---|---|"
    for one in holdings(of, size):
        yield f"| {one.who} | {one.connections:,} | {_bytes(one.memory_bytes)} |"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _bytes(value: float) -> str:
    return _in_units(value, (("B", 1.0), ("KiB", KIB), ("MiB", MIB), ("GiB", 1024 * MIB)))


def _time(microseconds: float) -> str:
    return _in_units(microseconds, (("us", 1.0), ("ms", 1e3), ("s", 1e6)))


def _in_units(value: float, units: Sequence[tuple[str, float]]) -> str:
    """Three digits, in the largest unit of which there is one at least."""
    name, size = next(((name, size) for name, size in reversed(units) if value >= size), units[0])
    value /= size
    return f"{value:,.0f} {name}" if value >= 100 else f"{value:.3g} {name}"


if __name__ == "__main__":
    sys.exit(main())
