"""The command line: one module a command, imported only when it is the one.

A command's module has `add_arguments(parser)` and `run(arguments) -> int`. Exit codes: 0 it worked, 1 it
failed, 2 it was called wrongly.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from ... import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "serve": "serve MCP over standard input and output",
    "run": "run a command on a mesh and follow its output",
    "controller": "run a Python program that controls a mesh, and follow its output",
    "status": "meshes and their runs",
    "check": "whether the hosts of a mesh are fit, and how fast memory moves between them",
    "logs": "output of a run",
    "diagnose": "why a run failed, hangs or is slow",
    "stacks": "stacks of a run's ranks, grouped",
    "profile": "where the time of a run's ranks goes",
    "release": "give a mesh back",
    "port": "translate a CUDA program to AMD's HIP, and tell what that leaves",
    "call": "call any tool by name",
    "doctor": "what is missing on this machine, and the command that mends it",
    "replay": "play a recorded session against a live server, and tell what is not as it was",
    "transcribe": "make a transcript of a session log of Claude Code",
    "demo": "find and mend a hang, through a real MCP client",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the entry point `milkweed`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="milkweed", description="Hands a supercomputer to an AI agent.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"milkweed {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, words in COMMANDS.items():
        command = commands.add_parser(
            name, help=words, description=words[0].upper() + words[1:] + ".", allow_abbrev=False
        )
        if name == chosen:
            module = importlib.import_module(f"{__name__}.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
