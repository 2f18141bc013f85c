"""Serving MCP over streamable HTTP, on this machine's loopback alone."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

from mcp.server.lowlevel import Server

from ..runtime.errors import InvalidArgument, Unavailable

__all__ = ["PATH", "bind", "parse_address", "serve_http"]

PATH = "/mcp"
_DEFAULT_HOST = "127.0.0.1"
_BACKLOG = 128
_GRACE_S = 3


def parse_address(text: str) -> tuple[str, int]:
    """`8765`, `127.0.0.1:8765` or `[::1]:8765`; port 0: any that is free.

    Raises:
        InvalidArgument: no such address, or not one of the loopback: whoever reaches the server runs
            programs as this user, and it asks nobody who they are.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or _DEFAULT_HOST
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidArgument("invalid_argument", f"--http {text!r} has no port", "Give PORT or HOST:PORT.")
    if not _is_loopback(host):
        raise InvalidArgument(
            "not_loopback",
            f"--http {text!r} could be reached from other machines, and there is no authentication",
            f"Serve on {_DEFAULT_HOST}:{port}, and reach it through ssh -L {port}:{_DEFAULT_HOST}:{port}.",
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """
    Raises:
        Unavailable: address_in_use, address_unusable.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        taken = error.errno == 98
        raise Unavailable(
            "address_in_use" if taken else "address_unusable",
            f"{host}:{port} cannot be listened on: {error.strerror}",
            "Give another port, or 0 for any.",
        ) from None
    return listener


async def serve_http(server: Server[Any], listener: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serves until a signal ends it. Requests with a Host or an Origin that is not local are refused: a page
    in a browser of this machine could send them."""
    import uvicorn

    host, port = listener.getsockname()[:2]
    app = server.streamable_http_app(streamable_http_path=PATH, host=_DEFAULT_HOST)
    config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=_GRACE_S)
    shown = f"[{host}]" if ":" in host else host
    on_ready(f"http://{shown}:{port}{PATH}")
    await uvicorn.Server(config).serve(sockets=[listener])
