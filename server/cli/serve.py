"""`milkweed serve`: the MCP server on standard input and output, until its input ends, or over HTTP."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from ...runtime.client import Meshes
    from ..transcripts.record import Recorder

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--toolsets", default="default", metavar="NAMES", help='comma-separated toolsets, "default" or "all"'
    )
    parser.add_argument(
        "--http",
        nargs="?",
        const="8765",
        metavar="[HOST:]PORT",
        help="streamable HTTP on the loopback (default port 8765) instead, for every user of this machine",
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="record the session to a new file; secrets are left out"
    )
    parser.add_argument("--read-only", action="store_true", help="offer only tools that change nothing")


def run(arguments: argparse.Namespace) -> int:
    # Start-up is mostly making classes that live for ever: nothing for the collector to find.
    gc.disable()
    import anyio

    from ...runtime.errors import MilkweedError
    from ...tools.registry import Registry

    try:
        registry = Registry.load(arguments.toolsets, read_only=arguments.read_only)
        listener = _listener(arguments.http)
    except MilkweedError as error:
        print(error, file=sys.stderr)
        return 2
    # Nothing is to be saved on an interrupt: hosts and runs go on without this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _log_to_file()

    async def serve() -> None:
        from ..app import create_server
        from ..transcripts.library import Library

        library = Library(recording=arguments.record and arguments.record.absolute(), beside=Path.cwd())
        async with _recorder(arguments) as recorder:
            server = create_server(_open_meshes, registry, recorder=recorder, library=library)
            gc.freeze()
            gc.enable()
            if listener is not None:
                from ..http import serve_http

                await serve_http(server, listener, _say_where)
                return
            from mcp.server.stdio import stdio_server

            async with stdio_server() as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())

    try:
        anyio.run(serve)
    except MilkweedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _listener(address: str | None) -> socket.socket | None:
    """What to listen on for HTTP."""
    if address is None:
        return None
    from ..http import bind, parse_address

    return bind(*parse_address(address))


def _say_where(url: str) -> None:
    print(f"MCP over HTTP at {url}; every user of this machine can reach it", file=sys.stderr, flush=True)


def _recorder(arguments: argparse.Namespace) -> AbstractAsyncContextManager[Recorder | None]:
    if arguments.record is None:
        return nullcontext()
    from ..transcripts.record import open_recorder

    return open_recorder(arguments.record, arguments.toolsets)


def _open_meshes() -> AbstractAsyncContextManager[Meshes]:
    from ...runtime.client import open_meshes

    return open_meshes()


class _LogFile(logging.FileHandler):
    """A log whose disk is full or gone loses lines, and never the call that wanted to write them."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        pass


def _log_to_file() -> None:
    """Warnings and errors go to the server's log: standard error is the client's to show or to lose."""
    from ...runtime.errors import MilkweedError
    from ...runtime.paths import Places

    try:
        log = Places.from_environment().server_log
        handler: logging.Handler = _LogFile(log, delay=True)
    except (MilkweedError, OSError) as error:
        print(f"milkweed: no log file: {error}", file=sys.stderr)
        handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {os.getpid()} %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
