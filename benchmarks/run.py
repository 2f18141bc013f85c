"""`python -m benchmarks.run [--quick] [--json FILE] [GROUP ...]`: a table, and the same as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import anyio

import milkweed

from .harness import BENCHMARKS, Line, machine

GROUPS = ("startup", "meshes", "stacks", "output", "faults", "warm", "watching")


def main(
    argv: Sequence[str] | None = None,
    *,
    package: str = "benchmarks",
    groups: Sequence[str] = GROUPS,
    results: Path = BENCHMARKS / "results" / "latest.json",
) -> int:
    """Each group is a module of the package."""
    parser = argparse.ArgumentParser(prog=package, description="Measures speed and size.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"some of: {', '.join(groups)}")
    parser.add_argument("--quick", action="store_true", help="few runs: to see that all of it works")
    parser.add_argument("--json", type=Path, default=results, metavar="FILE")
    options = parser.parse_args(argv)
    unknown = [name for name in options.groups if name not in groups]
    if unknown:
        parser.error(f"no group {unknown[0]!r}; groups: {', '.join(groups)}")
    lines: list[Line] = []
    broken: list[str] = []
    started = time.time()
    for name in options.groups or groups:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            anyio.run(_collect, f"{package}.{name}", options.quick, lines)
        except Exception as error:
            broken.append(name)
            traceback.print_exception(error)
    print_lines(lines)
    facts = machine()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    report = {
        "milkweed": milkweed.__version__,
        "started_at": started,
        "elapsed_s": time.time() - started,
        "quick": options.quick,
        "machine": facts,
        "lines": [line.as_json() for line in lines],
        "broken": broken,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {options.json}", file=sys.stderr)
    if broken:
        print(f"could not be measured: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


async def _collect(module: str, quick: bool, lines: list[Line]) -> None:
    async for line in importlib.import_module(module).run(quick=quick):
        lines.append(line)  # noqa: PERF401 - what was measured before a failure counts


COLUMNS = ("group", "measured", "median", "spread", "runs", "target", "verdict", "note")


def print_lines(lines: Sequence[Line]) -> None:
    rows = [_cells(line) for line in lines]
    if not sys.stdout.isatty():
        for row in (COLUMNS, *rows):
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold", box=None, pad_edge=False)
    for at, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if 1 < at < 6 else "left")
    for row in rows:
        style = {"met": "green", "missed": "red"}.get(row[6], "")
        table.add_row(*row[:6], f"[{style}]{row[6]}[/]" if style else row[6], row[7])
    Console().print(table)


def _cells(line: Line) -> tuple[str, ...]:
    low, high = line.spread
    target = "" if line.target is None else f"<= {_number(line.target)} {line.unit}"
    spread = f"{_number(low)}..{_number(high)}"
    measured = f"{_number(line.measured)} {line.unit}"
    return (line.group, line.name, measured, spread, str(len(line.values)), target, line.verdict, line.note)


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
