"""A proc's life: its threads, from the sockets that it inherits to its end."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys

from ..call import Connection, accepted
from ..node import node
from ..proc_records import PROC_VARIABLE, ProcPlace, decode_place
from ..wire import WireFrame
from .actors import Actors
from .control import Control
from .main_thread import MainThread
from .system import System

__all__ = ["place", "run"]


def place() -> ProcPlace | None:
    """That of this process; None in one that is no proc."""
    text = os.environ.get(PROC_VARIABLE)
    return None if text is None else decode_place(text)


def run(own: ProcPlace) -> None:
    """Serves until the process is ended, or an endpoint raises SystemExit."""
    _take_path(own.sys_path)
    if not faulthandler.is_enabled():
        faulthandler.enable()
    signal.signal(signal.SIGTERM, _leave)
    main = MainThread()
    here = node()
    system = System(main)
    actors = Actors(here.loop, main, system.failed)
    system.add_to(actors)
    listener = socket.socket(fileno=own.data_fd)
    listener.setblocking(False)
    listener.set_inheritable(False)
    control = socket.socket(fileno=own.control_fd)
    control.set_inheritable(False)
    assert here.thread.ident is not None
    Control(control, here.loop, here.thread.ident, main, actors).start()
    handler = _Owned(actors, system)

    def accept() -> None:
        if (sock := accepted(listener)) is not None:
            Connection(
                sock, here.loop, role="proc", handler=handler, hello={"id": here.id, "proc": own.proc}
            ).start()

    here.loop.call_soon_threadsafe(here.loop.add_reader, listener, accept)
    main.run_forever()


class _Owned:
    """The actors' handler, which also learns which peer is the owner."""

    def __init__(self, actors: Actors, system: System) -> None:
        self.cancelled = actors.cancelled
        self.ended = actors.ended
        self._actors = actors
        self._system = system

    def called(self, connection: Connection, frame: WireFrame) -> None:
        if connection.peer_hello.get("owner"):
            self._system.own(connection)
        self._actors.called(connection, frame)


def _take_path(path: tuple[str, ...]) -> None:
    """Modules are found where the owner finds them, behind what is this process's own."""
    known = set(sys.path)
    sys.path += [entry for entry in path if entry not in known]


def _leave(_number: int, _frame: object) -> None:
    sys.exit(128 + signal.SIGTERM)
