"""This process's place in the runtime: a loop on a thread of its own, and the connections it reads."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from ..call import Connection, Handler
from ..errors import Conflict, Unavailable
from ..receiving import KeptMemory
from .future import Future
from .interrupt import Interrupted

__all__ = ["Node", "node", "on_node_thread"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = TypeVar("P")

_CONNECT_S = 5.0
_JOIN_S = 2.0
_ENDING_S = 1.0


class Node:
    """Made by `node()`, once a process. Its methods may be called from any thread.

    `sent_by_tree` tells, by its socket, the number of the last message that a proc was sent through relays
    (`tree/`), while it is not known that it arrived: what is sent to it directly says so.
    """

    def __init__(self) -> None:
        self.id = f"{os.getpid()}-{token_hex(4)}"
        self.loop = asyncio.new_event_loop()
        self.memory = KeptMemory(self.loop)
        self.sent_by_tree: dict[str, int] = {}
        self._connections: dict[str, Connection] = {}
        self._open: set[Connection] = set()
        self._parts: dict[type, Any] = {}
        self._lock = threading.RLock()  # what `part` makes may ask for other parts
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._before_close: list[Callable[[], object]] = []
        self._at_close: list[Callable[[], object]] = []
        self._in_child: list[Callable[[], object]] = []
        self._when_broken: list[Callable[[BaseException], object]] = []
        self.thread = threading.Thread(target=self._run, name="milkweed", daemon=True)
        self.thread.start()

    def connection(self, address: str, peer: str, handler: Handler | None = None) -> Connection:
        """The connection to the process that listens at `address`, made if there is none.

        With a `handler` we are the peer's owner, and it may call us.

        Raises:
            Unavailable: connection_lost, nobody listens there.
            Conflict: program_ending.
        """
        found = self._connections.get(address)
        if found is not None and not found.is_closed and handler is None:
            return found
        with self._lock:
            self._refuse_at_end()
            found = self._connections.get(address)
            if found is not None and not found.is_closed:
                if handler is not None:
                    found.take_calls(handler, {"owner": True})
                return found
            made = self.line(address, peer, {"id": self.id, "owner": handler is not None}, handler)
            made.on_closed.append(partial(self._forget, address))
            self._connections[address] = made
            return made

    def open_connection(self, address: str) -> Connection | None:
        """That to an address, where there is one."""
        return self._connections.get(address)

    def line(
        self, address: str, peer: str, hello: dict[str, Any], handler: Handler | None = None
    ) -> Connection:
        """A connection of its own, which is the caller's to close.

        Raises:
            Unavailable: connection_lost, nobody listens there.
            Conflict: program_ending.
        """
        self._refuse_at_end()
        made = Connection(
            _connected(address, peer),
            self.loop,
            role="node",
            handler=handler,
            peer=peer,
            hello=hello,
            memory=self.memory.take,
            handshake_s=None,  # it may just be starting; should it never come up, its host says so
        )
        self._open.add(made)
        made.on_closed.append(self._open.discard)
        made.start()
        return made

    def _forget(self, address: str, connection: Connection) -> None:
        with self._lock:
            if self._connections.get(address) is connection:
                del self._connections[address]

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine on the node's loop; a waiter that is cancelled cancels it.

        Raises:
            Conflict: program_ending.
        """
        future = _Work[T](self.loop)

        def begin() -> None:
            task = future.task = self.loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda done: future.settle(done.result))

        try:
            self._refuse_at_end()
            self.loop.call_soon_threadsafe(begin)
        except BaseException:
            work.close()
            raise
        return future

    def _refuse_at_end(self) -> None:
        if self._stopping:
            raise Conflict("program_ending", "this process has given up its place", "Call it earlier.")

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

    def before_close(self, work: Callable[[], object]) -> Callable[[], None]:
        """Has `work` called before the node is closed, while its loop turns; gives what takes that back."""
        self._before_close.append(work)
        return partial(self._before_close.remove, work)

    def in_child(self, work: Callable[[], object]) -> None:
        """Has `work` called in every child that this process forks: it lets go of what is the parent's.

        A child that kept sockets open would hide the death of its parent.
        """
        self._in_child.append(work)

    def when_broken(self, work: Callable[[BaseException], object]) -> None:
        """Has `work` called, on the node's thread, with what ends its loop though nobody closed it."""
        self._when_broken.append(work)

    def at_close(self, work: Callable[[], object]) -> None:
        """Has `work` called when the node is closed, as at the end of the program."""
        self._at_close.append(work)

    def statistics(self) -> dict[str, int]:
        """Counts of what it holds now: `connections`, `tasks`."""
        return {"connections": len(self._open), "tasks": len(self._tasks)}

    def close(self) -> None:
        """Ends its work and its connections, and the thread."""
        for work in tuple(self._before_close):
            with suppress(Exception):
                work()
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._stop)
        if threading.current_thread() is not self.thread:
            self.thread.join(_JOIN_S)
        for work in self._at_close:
            work()

    def abandon(self) -> None:
        """In a forked child, which has no such thread: closes what it inherited."""
        for connection in tuple(self._open):
            connection.abandon()
        self.memory.forget()
        for work in self._in_child:
            with suppress(Exception):
                work()

    def _stop(self) -> None:
        self._stopping = True
        for connection in tuple(self._open):
            connection.close()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()

        async def finish() -> None:
            if tasks:
                await asyncio.wait(tasks, timeout=_ENDING_S)
            self.loop.stop()

        self._tasks.add(self.loop.create_task(finish(), name="milkweed-end"))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopping:
            try:
                self.loop.run_forever()
            except Interrupted:  # one that came when its endpoint had just ended
                continue
            except (SystemExit, KeyboardInterrupt) as error:  # of a task that an endpoint left behind
                self._broken(error)
            except BaseException as error:
                logger.exception("the node's loop broke")
                self._broken(error)
                self._stopping = True
                for connection in tuple(self._open):
                    with suppress(OSError, ValueError):
                        connection.close("this process's loop broke")
                return

    def _broken(self, error: BaseException) -> None:
        for work in self._when_broken:
            work(error)


class _Work(Future[T]):
    """Of a coroutine that runs on the loop."""

    __slots__ = ("_loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.task: asyncio.Task[T] | None = None

    def _on_cancel(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self.task.cancel() if self.task is not None else None)


def _connected(address: str, peer: str) -> socket.socket:
    sock = None
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_CONNECT_S)
        sock.connect(address)  # of a unix socket: at once, or when the listener's backlog has room
    except OSError as error:
        if sock is not None:
            sock.close()
        raise Unavailable(
            "connection_lost",
            f"{peer} cannot be reached ({error.strerror or error})",
            "See whether it has ended.",
        ) from None
    return sock


class _Current:
    """The process's node. A forked child has none until it asks for one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.node: Node | None = None
        self.of_parent: Node | None = None

    def forked(self) -> None:
        parents = self.node or self.of_parent
        self.__init__()  # type: ignore[misc]
        self.of_parent = parents  # its destructors are not for this process to run
        if parents is not None:
            parents.abandon()

    def close(self) -> None:
        if self.node is not None:
            self.node.close()


_current = _Current()


def node() -> Node:
    """The node of this process, started if it is not."""
    if (found := _current.node) is not None:
        return found
    with _current.lock:
        if _current.node is None:
            _current.node = Node()
        return _current.node


@contextmanager
def passing_node() -> Iterator[Node]:
    """A node of this process that is gone behind the block, as if it had never been: see `proc/rehearsal.py`.

    To be used where there is none, and no other thread that might ask for it.
    """
    here = node()
    try:
        yield here
    finally:
        here.close()
        here.loop.close()
        _current.node = None


def on_node_thread() -> bool:
    found = _current.node
    return found is not None and threading.get_ident() == found.thread.ident


os.register_at_fork(after_in_child=_current.forked)
atexit.register(_current.close)
