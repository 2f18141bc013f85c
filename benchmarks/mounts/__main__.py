"""`python -m benchmarks.mounts [--quick] [--venv DIRECTORY] [--json FILE] [LINE ...]`: a table, and JSON.

As `benchmarks.runtime`, of mounts: with torchmonarch and the plain directory (bare) beside them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from milkweed.runtime.mounts import in_the_way, probe

from ..harness import BENCHMARKS
from ..runtime import __main__ as comparison
from ..runtime.plan import MOUNT_LINES
from .lines.environment import VENV_VARIABLE


def main(arguments: list[str]) -> int:
    mends = in_the_way(probe())
    for one in mends:
        print(f"mounts cannot be measured: {one.problem}. {one.mend}")
    if mends:
        return 1
    if "--venv" in arguments:
        at = arguments.index("--venv")
        _, venv = arguments[at : at + 2]
        del arguments[at : at + 2]
        os.environ[VENV_VARIABLE] = str(Path(venv).resolve())
    if "--json" not in arguments:
        arguments = ["--json", str(BENCHMARKS / "results" / "mounts.json"), *arguments]
    chosen = any(argument in MOUNT_LINES for argument in arguments)
    return comparison.main([*arguments, *(() if chosen else MOUNT_LINES)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
