"""What a peer asks of an owner's regions on one connection, and the answers."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from typing import Protocol

from .. import _native_memory as native
from ..errors import ProtocolError
from ..wire import SAME_VERSION
from .broadcast.sealing import Opener, Sealer
from .device import DeviceFailed
from .grant import Grant
from .granting import Grants, Lanes
from .outcomes import DONE
from .pinned import Pinned
from .protocol import REQUEST_BYTES, Request, Session
from .providers import Unreachable
from .regions import Region, Regions
from .stage import Stage
from .staging import NotReady, filling, reading, wait_until_ready
from .streams import Offering, has_left, receive, receive_into, send
from .ucx import may_pin

__all__ = ["Asked", "Talks"]

logger = logging.getLogger(__name__)

_PROGRESS_S = 10.0


class Talks(Protocol):
    """What is more than reads and writes: it has the connection to itself."""

    def talk(self, sock: socket.socket, sealer: Sealer, opener: Opener, region: Region) -> None:
        """Returns when the talk is over.

        Raises:
            ProtocolError. OSError: the peer has left.
        """

    def end(self) -> None:
        """Whoever waits in a talk is woken: the process ends."""


class Asked:
    """By one that knows a mesh's secret; in a thread of its own."""

    def __init__(
        self, sock: socket.socket, session: Session, regions: Regions, talks: Talks, grants: Grants
    ) -> None:
        self._sock = sock
        self._session = session
        self._regions = regions
        self._talks = talks
        self._grants = grants
        self._offering = Offering(sock)
        self._lanes: Lanes | None = None
        self._stage: Stage | None = None
        self._lock = threading.Lock()
        self._idle_since = time.monotonic()
        self._is_idle = False
        self._is_over = False

    @property
    def idle_since(self) -> float | None:
        """When it was done with its last request; None where it has one, or is in lanes as it pleases."""
        return self._idle_since if self._is_idle and self._lanes is None else None

    def end_if_idle(self) -> bool:
        """Whether it was: then it is asked nothing any more, and the peer sees its end."""
        with self._lock:
            if self.idle_since is None:
                return False
            self._is_over = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        return True

    def answer_all(self) -> None:
        """Returns after a talk.

        Raises:
            OSError: the peer has left.
            ProtocolError: what it says is no request.
        """
        number = 0
        try:
            while True:
                self._rests(True)
                data = receive(self._sock, REQUEST_BYTES)
                self._rests(False)
                number += 1
                if self._answer(data, number):
                    return
        finally:
            if self._lanes is not None:
                self._grants.forget(self._lanes)
            if self._stage is not None:
                self._stage.close()

    def _rests(self, idle: bool) -> None:
        """
        Raises:
            ConnectionError: it was ended meanwhile.
        """
        with self._lock:
            if self._is_over:
                raise ConnectionAbortedError("for want of room")
            self._is_idle, self._idle_since = idle, time.monotonic()

    def _answer(self, data: bytes, number: int) -> bool:
        """Whether nothing follows it."""
        request = self._session.read_request(data, number)
        region = self._regions.enter(request.slot, request.generation)
        if region is None:
            self._refuse(native.DROPPED, number)
            return False
        try:
            status = self._status(data, request, region)
            if status != DONE:
                self._refuse(status, number)
                return False
            if not request.talk:
                self._do(number, request, region)
                return False
        finally:
            self._regions.leave(region)
        self._talk(number, region)
        return True

    def _status(self, data: bytes, request: Request, region: Region) -> int:
        if not self._session.is_signed(data, region.key):
            return native.WRONG_KEY
        if request.talk:
            return DONE
        return region.refusal(region.key, request.offset, request.length, write=request.write)

    def _refuse(self, status: int, number: int, error: int = 0) -> None:
        send(self._sock, self._session.reply(status, number, None, error), idle=_PROGRESS_S)

    def _talk(self, number: int, region: Region) -> None:
        send(self._sock, self._session.reply(DONE, number, region.key), idle=_PROGRESS_S)
        asks, serves = self._session.talk_keys(region.key, number)
        self._talks.talk(self._sock, Sealer(serves), Opener(asks), region)

    def _do(self, number: int, request: Request, region: Region) -> None:
        """What is no talk: refused where the device has a fault, or cannot be waited for any longer."""
        try:
            wait_until_ready(region.memory, is_stopped=lambda: not region.is_live or has_left(self._sock))
            if request.rdma:
                self._grant(number, region, staged=request.staged)
            elif request.staged:
                self._by_stage(number, request, region)
            elif request.write:
                self._fill(number, request, region)
            else:
                self._read(number, request, region)
        except NotReady as error:
            self._refuse(error.status if region.is_live else native.DROPPED, number)
        except DeviceFailed as error:
            logger.warning("a buffer on a device: %s", error)
            self._refuse(native.FAILED, number, errno.EIO)

    def _read(self, number: int, request: Request, region: Region) -> None:
        head = self._session.reply(DONE, number, region.key)
        try:
            with closing(reading(region.memory, request.offset, request.length)) as pieces:
                for piece in pieces:
                    self._offering.send(head, piece.view, idle=_PROGRESS_S)
                    head = b""
        except DeviceFailed as error:
            if head:
                raise
            raise _in_the_middle(error) from None
        if head:
            send(self._sock, head, idle=_PROGRESS_S)

    def _fill(self, number: int, request: Request, region: Region) -> None:
        done = self._session.reply(DONE, number, region.key)
        send(self._sock, done, idle=_PROGRESS_S)
        left = request.length
        try:
            with closing(filling(region.memory, request.offset, request.length)) as pieces:
                for piece in pieces:
                    receive_into(self._sock, piece.view, idle=_PROGRESS_S)
                    left -= piece.size
        except DeviceFailed as error:
            if not left:
                raise
            raise _in_the_middle(error) from None
        send(self._sock, done, idle=_PROGRESS_S)

    def _by_stage(self, number: int, request: Request, region: Region) -> None:
        stage, memory = self._stage, region.memory
        if stage is None or isinstance(memory, Pinned) or not stage.has(request.area, request.length):
            raise ProtocolError("protocol_error", "a request for a stage that is not there", SAME_VERSION)
        move = stage.store if request.write else stage.load
        move(request.area, memory, request.offset, request.length)
        send(self._sock, self._session.reply(DONE, number, region.key), idle=_PROGRESS_S)

    def _grant(self, number: int, region: Region, *, staged: bool) -> None:
        try:
            if self._lanes is None:
                self._lanes = self._grants.lanes()
            grant = self._granted(region, self._lanes, staged=staged)
        except Unreachable:
            self._refuse(native.FAILED, number, errno.ENODEV if may_pin(0) else errno.ENOMEM)
        except _NotReached:
            self._refuse(native.FAILED, number, errno.EOPNOTSUPP)
        except RuntimeError as error:
            logger.warning("a buffer cannot be offered by RDMA: %s", error)
            self._refuse(native.FAILED, number, errno.EIO if may_pin(region.memory.size) else errno.ENOMEM)
        else:
            if grant is None:
                self._refuse(native.DROPPED, number)
                return
            head = self._session.reply(DONE, number, region.key)
            send(self._sock, head + self._session.sealed(grant.pack(), number, region.key), idle=_PROGRESS_S)

    def _granted(self, region: Region, lanes: Lanes, *, staged: bool) -> Grant | None:
        """
        Raises:
            RuntimeError; _NotReached; Unreachable; DeviceFailed.
        """
        memory = region.memory
        if not isinstance(memory, Pinned) and staged:
            if self._stage is None:
                self._stage = Stage(self._regions, memory)
            stage = self._stage.region
            grant = self._grants.grant(stage, lanes)
            return grant and replace(grant, rights=region.rights, size=memory.size, stage=stage.slot)
        if not self._grants.reaches(memory):
            raise _NotReached
        try:
            return self._grants.grant(region, lanes)
        except RuntimeError as error:
            if isinstance(memory, Pinned):
                raise
            logger.warning("buffers on %s go through memory of the host: %s", memory.where, error)
            raise _NotReached from None


class _NotReached(Exception):
    """No network card reaches this device's memory."""


def _in_the_middle(error: DeviceFailed) -> OSError:
    """The bytes that the peer waits for, or sends, are no replies: nothing can be told among them."""
    logger.warning("a buffer on a device: %s", error)
    return ConnectionAbortedError(str(error))
