"""Calls over one stream socket: many at once, in both directions, with deadlines and cancellation.

    async with open_connection(path, role="server") as session:
        files = session.actor("files", Files)
        text = await files.within(5.0).call_one(Files.read, "train.py")

`serve` is the other end: it offers actors by name to every peer of the same user. An exception of ours
(`MilkweedError`) crosses as itself; any other arrives as `RemoteFailure` with its traceback kept for the log.
A caller that leaves or is cancelled cancels the call on the other side.
"""

from .connection import Connection, Handler
from .ref import ActorRef
from .session import Session
from .sockets import accepted, bind, connect, open_connection, peer_uid, serve

__all__ = [
    "ActorRef",
    "Connection",
    "Handler",
    "Session",
    "accepted",
    "bind",
    "connect",
    "open_connection",
    "peer_uid",
    "serve",
]
