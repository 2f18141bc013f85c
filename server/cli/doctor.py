"""`milkweed doctor`: what is missing on this machine, and the exact command that mends it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from .checks import CHECKS, Check
from .printing import print_rows
from .session import add_output_argument

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler", choices=("local", "slurm"), default="local", help="look at what this one needs, too"
    )
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    checks = [check() for check in CHECKS]
    if arguments.scheduler == "slurm":
        from .slurm_checks import check_slurm

        checks += check_slurm()
    if arguments.output == "json":
        print(json.dumps([asdict(check) for check in checks]))
    else:
        print_rows("This machine", ("", "", "", "mend"), [_row(check) for check in checks])
    return 1 if any(check.state == "missing" for check in checks) else 0


def _row(check: Check) -> tuple[str, ...]:
    return (check.name, check.state, check.detail, check.mend if check.state != "ok" else "")
