"""`python -m benchmarks.mounts [--quick] [--venv DIRECTORY] [--json FILE]`: a table, and the same as JSON."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import milkweed
from milkweed.runtime.mounts import in_the_way, probe

from ..harness import BENCHMARKS, Line, machine
from ..run import print_lines
from .lines import main_venv, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.mounts", description="Measures mounts.")
    parser.add_argument("--quick", action="store_true", help="few runs: to see that all of it works")
    parser.add_argument(
        "--venv", type=Path, default=main_venv(), metavar="DIRECTORY", help="with torch in it"
    )
    parser.add_argument("--json", type=Path, default=BENCHMARKS / "results" / "mounts.json", metavar="FILE")
    options = parser.parse_args()
    mends = in_the_way(probe())
    for one in mends:
        print(f"mounts cannot be measured: {one.problem}. {one.mend}")
    if mends:
        return 1
    started = time.time()
    lines: list[Line] = []
    for line in run(quick=options.quick, venv=options.venv.resolve()):
        lines.append(line)
        print(".", end="", flush=True)
    print()
    print_lines(lines)
    report = {
        "milkweed": milkweed.__version__,
        "started_at": started,
        "elapsed_s": time.time() - started,
        "quick": options.quick,
        "machine": machine(),
        "lines": [line.as_json() for line in lines],
    }
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
