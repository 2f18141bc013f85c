"""Frames on one connected socket: read on one loop, sent from any thread without waiting."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..errors import ProtocolError
from ..receiving import fresh_memory
from ..wire import FrameReader, Kind, Part, WireFrame, encode_json

__all__ = ["HIGH_WATER", "Channel"]

logger = logging.getLogger(__name__)

HIGH_WATER = 4 * 1024 * 1024
_LOW_WATER = 1024 * 1024
_MOST_PARTS = 64
_READS_A_TURN = 16
_SEND_BUFFER = 1024 * 1024  # else a large frame takes five times as many turns of both loops


class Channel:
    """A socket that is read on `loop`, whose thread alone may call what is not `send`.

    `on_frame` gets every frame in order, a large one in what `memory` gives for its size. `on_end` is called
    once: with None at a clean end of the stream, else with what went wrong. Then nothing is read or sent.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[WireFrame], None],
        on_end: Callable[[BaseException | None], None],
        memory: Callable[[int], memoryview] = fresh_memory,
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.reader = FrameReader(memory=memory)
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._on_frame = on_frame
        self._on_end = on_end
        self._lock = threading.Lock()
        self._backlog: deque[Part] = deque()
        self._kept = 0  # bytes that ever went into the backlog
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._thread = 0
        self._reading = False
        self._closed = False
        self.backlog = 0

    def start(self) -> None:
        self._thread = threading.get_ident()
        self.resume()

    def resume(self) -> None:
        """Reads, as it does from the start, until `pause`."""
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def pause(self) -> None:
        """Reads no more: the peer's sending comes to a stop once the socket is full."""
        if self._reading and not self._closed:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def send(self, parts: Sequence[Part]) -> None:
        """Sends what the socket takes now and leaves the rest to the loop; nothing once closed."""
        with self._lock:
            if self._closed:
                return
            if self.backlog:
                self._keep(parts)
                return
            try:
                sent = (
                    self._sock.send(parts[0]) if len(parts) == 1 else self._sock.sendmsg(parts[:_MOST_PARTS])
                )
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # the reader sees the end too, and tells
            if len(parts) == 1 and sent == len(parts[0]):
                return
            if not self._keep(_after(parts, sent)):
                return
        if threading.get_ident() == self._thread:
            self._want_write()
        else:
            self._loop.call_soon_threadsafe(self._want_write)

    def when_sent(self, done: Callable[[], None]) -> None:
        """Calls `done` when the kernel has all that was sent until now, or the peer is gone: at once, or on
        the loop's thread. Any thread.
        """
        with self._lock:
            if self.backlog:
                self._marks.append((self._kept, done))
                return
        done()

    async def drained(self) -> None:
        """Returns when the peer has taken most of what was sent, or is gone."""
        while self.backlog > _LOW_WATER and not self._closed:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    async def flushed(self) -> None:
        """Returns when the kernel has all that was sent, or the peer is gone."""
        while self.backlog and not self._closed:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def abandon(self) -> None:
        """In a forked child: lets go of the socket, which is the parent's."""
        self._closed = True
        self._sock.close()

    def close(self, why: BaseException | None = None) -> None:
        """Ends it; `on_end` hears of it at once. The peer of a protocol error is told of it, if it can be."""
        if self._closed:
            return
        if isinstance(why, ProtocolError):
            self.send([encode_json(Kind.GOODBYE, {"reason": str(why)})])
        self.pause()
        if self.backlog:
            self._loop.remove_writer(self._fd)
        with self._lock:
            self._closed = True
            self._backlog.clear()
            self.backlog = 0
            self._sock.close()
        self._tell_sent()
        self._wake()
        self._on_end(why)

    def _keep(self, parts: Sequence[Part]) -> int:
        for part in parts:
            self._backlog.append(part)
            self.backlog += len(part)
            self._kept += len(part)
        return self.backlog

    def _want_write(self) -> None:
        if not self._closed and self.backlog:
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        try:
            with self._lock:
                self._write_backlog()
        except OSError as error:
            self.close(error)
            return
        if not self.backlog:
            self._loop.remove_writer(self._fd)
        self._tell_sent()
        if self._waiting and self.backlog <= _LOW_WATER:
            self._wake()

    def _write_backlog(self) -> None:
        while self._backlog:
            parts = list(itertools.islice(self._backlog, _MOST_PARTS))
            try:
                sent = self._sock.sendmsg(parts)
            except BlockingIOError:
                return
            self.backlog -= sent
            for _ in parts:
                self._backlog.popleft()
            self._backlog.extendleft(reversed(_after(parts, sent)))

    def _tell_sent(self) -> None:
        while self._marks and self._marks[0][0] <= self._kept - self.backlog:
            self._marks.popleft()[1]()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _readable(self) -> None:
        for _ in range(_READS_A_TURN):
            space = self.reader.space()
            try:
                count = self._sock.recv_into(space)
            except BlockingIOError:
                return
            except OSError as error:
                self.close(error)
                return
            if count == 0:
                self._ended()
                return
            self._received(count)
            if count < len(space) or not self._reading or self._closed:
                return

    def _received(self, count: int) -> None:
        """When it returns, nothing here holds the memory of a frame: the next one may want it."""
        try:
            for frame in self.reader.received(count):
                self._on_frame(frame)
                if self._closed:
                    return
        except ProtocolError as error:
            self.close(error)
        except Exception:  # of what heeds the frames: the rest of them cannot be given to it
            logger.exception("a frame could not be handled")
            self.close(ProtocolError("protocol_error", "a frame could not be handled", "See its log."))

    def _ended(self) -> None:
        if self.reader.pending:
            self.close(
                ProtocolError(
                    "protocol_error",
                    "the peer closed in the middle of a frame",
                    "It was killed: look at its log.",
                )
            )
        else:
            self.close(None)


def _after(parts: Sequence[Part], sent: int) -> list[Part]:
    """What is left of `parts` after their first `sent` bytes."""
    for at, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:] if sent else part, *parts[at + 1 :]]
        sent -= len(part)
    return []
