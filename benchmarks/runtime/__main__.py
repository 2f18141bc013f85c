"""`python -m benchmarks.runtime [--quick] [--json FILE] [--sides ours,monarch] [LINE ...]`"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import milkweed

from ..harness import BENCHMARKS, machine
from .comparing import measure
from .contestant import Unusable, interpreter
from .figures import Figure
from .plan import EVERY, LINES, MEMORY_LINES, MOUNT_LINES, Side
from .table import brief, show

__all__ = ["main"]

KNOWN = (*LINES, *MEMORY_LINES, *MOUNT_LINES)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.runtime", description="The actor runtime beside torchmonarch and a bare lower bound."
    )
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"some of: {', '.join(KNOWN)}")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that all of it works")
    parser.add_argument(
        "--sides", default=",".join(EVERY), metavar="SIDES", help=f"some of: {','.join(EVERY)}"
    )
    parser.add_argument("--json", type=Path, default=BENCHMARKS / "results" / "runtime.json", metavar="FILE")
    options = parser.parse_args(argv)
    sides: tuple[Side, ...] = tuple(side for side in EVERY if side in options.sides.split(","))
    for name, known, given in (("line", KNOWN, options.lines), ("side", EVERY, options.sides.split(","))):
        if unknown := set(given) - set(known):
            parser.error(f"no {name} {min(unknown)!r}; {name}s: {', '.join(known)}")
    started, load = time.time(), os.getloadavg()[0]
    figures = asyncio.run(_all(options.lines or LINES, options.quick, sides))
    show(figures)
    report = {
        "milkweed": milkweed.__version__,
        "started_at": started,
        "elapsed_s": time.time() - started,
        "quick": options.quick,
        "machine": machine(),
        "load_before": round(load, 2),
        "figures": [figure.as_json() for figure in figures],
    }
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    if load > (os.cpu_count() or 1):
        print(f"The machine was busy with other work (load {load:.1f}): compare ratios, not figures.")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {options.json}", file=sys.stderr)
    return 1 if any("ours" in figure.failed for figure in figures) else 0


async def _all(lines: Sequence[str], quick: bool, sides: tuple[Side, ...]) -> list[Figure]:
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)  # what was started is ended
    usable = []
    for side in sides:
        try:
            interpreter(side)
            usable.append(side)
        except Unusable as why:
            print(f"{side}: {why}", file=sys.stderr)
    figures = []
    for line in lines:
        print(f"{line} ...", file=sys.stderr, flush=True)
        async for figure in measure(line, quick=quick, sides=tuple(usable)):
            figures.append(figure)
            print(f"  {brief(figure)}", file=sys.stderr, flush=True)
    return figures


if __name__ == "__main__":
    sys.exit(main())
