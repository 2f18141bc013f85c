"""A proc's life played through, from its node to an actor's answers, in a process that will fork procs.

What the interpreter makes when code runs for the first times (specialised bytecode, versions of types, its
cache of attributes) lies beside what runs. Made before the fork, it is shared.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress

from ..actor import forget_classes
from ..addresses import SYSTEM, ProcAddress, address_of
from ..extent import Extent, Point
from ..node.node import passing_node
from ..pickling import dumps
from ..proc_place import ProcPlace, decode_place, encode_place
from ..wire import WIRE_VERSION, FrameReader, Kind, encode, encode_json
from .main_thread import MainThread
from .serving import Serving

__all__ = ["rehearse"]

_PATIENCE_S = 10.0
_PLACE = ProcPlace("rehearsed", "host", "", "", ("",), 0, 0)


def rehearse(rounds: int) -> None:
    """For a process of one thread that has no node; it is so again when this returns.

    Raises:
        OSError: no sockets can be had.
        RuntimeError: what serves procs does not work here.
    """
    for _ in range(rounds):
        body = _pickled_class()
        _forget()
        _play(body)
        _forget()
    forget_classes()


def _pickled_class() -> bytes:
    from .rehearsed import Rehearsed

    return dumps((Rehearsed, ("",), {}))[0]


def _forget() -> None:
    """The module of the actor, so that it is imported with it."""
    package = __name__.rpartition(".")[0]
    sys.modules.pop(f"{package}.rehearsed", None)
    vars(sys.modules[package]).pop("rehearsed", None)


def _play(body: bytes) -> None:
    place = decode_place(encode_place(_PLACE))
    main = MainThread()
    with passing_node() as here, closing(_listener()) as data, closing(_listener()) as control:
        address = ProcAddress(place.proc, place.host_name, data.getsockname(), control.getsockname())
        serving = here.part(Serving, lambda here: Serving(here, address, data, control, main))
        owner = _Owner(data, body, lambda: main.put(_End()))
        owner.start()
        with suppress(_Ended):
            main.run_forever()
        owner.join()
        serving.close()
    if not owner.answered:
        raise RuntimeError("a proc that was rehearsed did not answer")


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")  # the kernel names it, in no directory
    listener.listen()
    return listener


class _Ended(Exception):
    pass


class _End:
    """The last job of the main thread."""

    label = ""
    cancelled = False

    def run(self, _main: MainThread) -> None:
        raise _Ended

    def drop_in_turn(self) -> None: ...


class _Owner(threading.Thread):
    """What an owner sends. `answered`: all of it was, with a result."""

    def __init__(self, listener: socket.socket, body: bytes, at_end: Callable[[], None]) -> None:
        super().__init__(name="milkweed-rehearsal", daemon=True)  # no number: those are of procs
        here = Point(0, Extent(), 0)
        self._address = listener.getsockname()
        self._at_end = at_end
        self._calls = (
            (SYSTEM, "create", ("a", "a", here, False, body)),
            (SYSTEM, "create", ("b", "b", here, True, body)),
            (SYSTEM, "ready", ()),
            ("a", "on_main", ()),
            ("b", "on_loop", ()),
        )
        self.answered = False

    def run(self) -> None:
        try:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.settimeout(_PATIENCE_S)
                peer.connect(self._address)
                self.answered = self._call_all(peer)
        finally:
            self._at_end()

    def _call_all(self, peer: socket.socket) -> bool:
        hello = {"wire": WIRE_VERSION, "role": "node", "pid": os.getpid(), "id": "owner", "owner": True}
        peer.sendall(encode_json(Kind.HELLO, hello))
        reader = FrameReader()
        for number, (actor, method, args) in enumerate(self._calls, 1):
            body = address_of(actor, method) + dumps((args, {}))[0]
            peer.sendall(b"".join(encode(Kind.CALL, number, body)))
            if self._answer(peer, reader, number) is not Kind.RESULT:
                return False
        return True

    @staticmethod
    def _answer(peer: socket.socket, reader: FrameReader, number: int) -> Kind | None:
        while count := peer.recv_into(reader.space()):
            for frame in reader.received(count):
                if frame.call == number:
                    return frame.kind
        return None
