"""This process's place in the runtime: a loop on a thread of its own, and the connections it reads."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from ..call import Connection, Handler
from ..errors import Unavailable
from .future import Future
from .interrupt import Interrupted

__all__ = ["Node", "node", "on_node_thread"]

T = TypeVar("T")
P = TypeVar("P")

_CONNECT_S = 5.0
_JOIN_S = 2.0


class Node:
    """Made by `node()`, once a process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self.id = f"{os.getpid()}-{token_hex(4)}"
        self.loop = asyncio.new_event_loop()
        self._connections: dict[str, Connection] = {}
        self._parts: dict[type, Any] = {}
        self._lock = threading.RLock()  # what `part` makes may ask for other parts
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._before_close: list[Callable[[], object]] = []
        self._at_close: list[Callable[[], object]] = []
        self.thread = threading.Thread(target=self._run, name="milkweed", daemon=True)
        self.thread.start()

    def connection(self, address: str, peer: str, handler: Handler | None = None) -> Connection:
        """The connection to the process that listens at `address`, made if there is none.

        With a `handler` we are the peer's owner, and it may call us.

        Raises:
            Unavailable: connection_lost, nobody listens there.
        """
        found = self._connections.get(address)
        if found is not None and not found.is_closed:
            return found
        with self._lock:
            found = self._connections.get(address)
            if found is not None and not found.is_closed:
                return found
            made = Connection(
                _connected(address, peer),
                self.loop,
                role="node",
                handler=handler,
                peer=peer,
                hello={"id": self.id, "owner": handler is not None},
            )
            made.start()
            made.on_closed.append(partial(self._forget, address))
            self._connections[address] = made
            return made

    def _forget(self, address: str, connection: Connection) -> None:
        with self._lock:
            if self._connections.get(address) is connection:
                del self._connections[address]

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine on the node's loop; a waiter that is cancelled cancels it."""
        future = _Work[T](self.loop)

        def begin() -> None:
            task = future.task = self.loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda done: future.settle(done.result))

        self.loop.call_soon_threadsafe(begin)
        return future

    def part(self, kind: type[P], make: Callable[[Node], P]) -> P:
        """What of a kind belongs to this node, one of each; made when it is first asked for. Any thread."""
        with self._lock:
            found = self._parts.get(kind)
            if found is None:
                found = self._parts[kind] = make(self)
            return found

    def replace_part(self, kind: type[P], make: Callable[[Node], P]) -> P:
        """`part`, made anew."""
        with self._lock:
            self._parts.pop(kind, None)
            return self.part(kind, make)

    def before_close(self, work: Callable[[], object]) -> None:
        """Has `work` called before the node is closed, while its loop still turns."""
        self._before_close.append(work)

    def at_close(self, work: Callable[[], object]) -> None:
        """Has `work` called when the node is closed, as at the end of the program."""
        self._at_close.append(work)

    def statistics(self) -> dict[str, int]:
        """Counts of what it holds now: `connections`, `tasks`."""
        alive = [one for one in self._connections.values() if not one.is_closed]
        return {"connections": len(alive), "tasks": len(self._tasks)}

    def close(self) -> None:
        """Ends its work and its connections, and the thread."""
        for work in self._before_close:
            with suppress(Exception):
                work()
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._stop)
        if threading.current_thread() is not self.thread:
            self.thread.join(_JOIN_S)
        for work in self._at_close:
            work()

    def _stop(self) -> None:
        self._stopping = True
        for connection in tuple(self._connections.values()):
            connection.close()
        for task in self._tasks:
            task.cancel()
        self.loop.call_soon(self.loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopping:
            with suppress(Interrupted):  # one that came when its endpoint had just ended
                self.loop.run_forever()


class _Work(Future[T]):
    """Of a coroutine that runs on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.task: asyncio.Task[T] | None = None

    def _on_cancel(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self.task.cancel() if self.task is not None else None)


def _connected(address: str, peer: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(_CONNECT_S)
    try:
        sock.connect(address)  # of a unix socket: at once, or when the listener's backlog has room
    except OSError as error:
        sock.close()
        raise Unavailable(
            "connection_lost",
            f"{peer} does not listen ({error.strerror or error})",
            "See whether it has ended.",
        ) from None
    return sock


class _Current:
    """The process's node. A forked child has none until it asks for one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.node: Node | None = None


_current = _Current()


def node() -> Node:
    """The node of this process, started if it is not."""
    if (found := _current.node) is not None:
        return found
    with _current.lock:
        if _current.node is None:
            _current.node = Node()
            atexit.register(_current.node.close)
        return _current.node


def on_node_thread() -> bool:
    found = _current.node
    return found is not None and threading.get_ident() == found.thread.ident


os.register_at_fork(after_in_child=_current.__init__)  # type: ignore[misc]
