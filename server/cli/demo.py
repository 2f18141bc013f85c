"""`milkweed demo`: a hang found and mended through a real MCP client, every answer checked."""

from __future__ import annotations

import argparse
import sys

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plain", action="store_true", help="plain lines, on a terminal too")
    parser.add_argument("--keep", action="store_true", help="keep its directory: workspace, logs and output")


def run(arguments: argparse.Namespace) -> int:
    import anyio

    from ..demo import DemoFailed, open_screen, play

    screen = open_screen(plain=arguments.plain)
    try:
        anyio.run(lambda: play(screen, keep=arguments.keep))
    except DemoFailed as error:
        print(f"milkweed demo: {error}", file=sys.stderr)
        return 1
    return 0
