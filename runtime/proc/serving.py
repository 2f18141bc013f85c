"""A process's actors, served: the sockets, and the handlers behind them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path

from ..addresses import ProcAddress
from ..call import Connection, accepted, bind
from ..node import Node
from ..tree.relay import Relay
from ..wire import WireFrame
from .actors import Actors
from .control import Control
from .main_thread import MainThread
from .system import System

__all__ = ["Serving"]


class Serving:
    """One a node. In a proc `main` is run by its main thread; elsewhere, by a thread made for that."""

    def __init__(
        self, here: Node, address: ProcAddress, data: socket.socket, control: socket.socket, main: MainThread
    ) -> None:
        self.address = address
        self.system = System(main)
        self.actors = Actors(here.loop, main, self.system.failed)
        self.system.add_to(self.actors)
        self.relay = Relay(here)
        self.actors.add_raw("relay", self.relay.called)
        self._node = here
        self._listener = data
        data.setblocking(False)
        here.in_child(self._abandon)
        assert here.thread.ident is not None
        self._control = Control(control, here.id, here.loop, here.thread.ident, main, self.actors)
        self._control.start()
        here.loop.call_soon_threadsafe(here.loop.add_reader, data, self._accept)

    @classmethod
    def in_program(cls, here: Node) -> Serving:
        """Of a program that is no proc: its sockets are in a directory that goes with it."""
        directory = Path(tempfile.mkdtemp(prefix="milkweed-proc-"))
        here.at_close(lambda: shutil.rmtree(directory, ignore_errors=True))
        address = ProcAddress(
            f"program-{os.getpid()}", socket.gethostname(), str(directory / "p"), str(directory / "c")
        )
        main = MainThread()
        serving = cls(here, address, bind(directory / "p"), bind(directory / "c"), main)
        here.loop.call_soon_threadsafe(serving.actors.ready)
        threading.Thread(target=main.run_forever, name="milkweed-main", daemon=True).start()
        return serving

    def called(self, connection: Connection, frame: WireFrame) -> None:
        if connection.peer_hello.get("owner"):
            self.system.own(connection)
        self.actors.called(connection, frame)

    def cancelled(self, connection: Connection, call: int) -> None:
        self.actors.cancelled(connection, call)
        self.relay.cancelled(connection, call)

    def ended(self, connection: Connection) -> None:
        self.actors.ended(connection)
        self.relay.ended(connection)

    def close(self) -> None:
        """Ends its threads; what is on the node's loop ends with that."""
        self._control.close()

    def _abandon(self) -> None:
        self._listener.close()
        self._control.abandon()
        self.actors.abandon()
        self.relay.abandon()

    def _accept(self) -> None:
        if (sock := accepted(self._listener)) is not None:
            hello = {"id": self._node.id, "proc": self.address.proc}
            memory = self._node.memory.take
            Connection(sock, self._node.loop, role="proc", handler=self, hello=hello, memory=memory).start()
