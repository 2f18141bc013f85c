"""`python -m benchmarks.diagnosis [--quick] [--json FILE] [GROUP ...]`: a table, and the same as JSON."""

from __future__ import annotations

import sys

from ..harness import BENCHMARKS
from ..run import main

GROUPS = ("cases", "speed", "pause", "watching")

if __name__ == "__main__":
    sys.exit(
        main(package="benchmarks.diagnosis", groups=GROUPS, results=BENCHMARKS / "results" / "diagnosis.json")
    )
