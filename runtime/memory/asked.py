"""What a peer asks of an owner's regions on one connection, and the answers."""

from __future__ import annotations

import errno
import logging
import socket
from typing import Protocol

from .. import _native_memory as native
from .broadcast.sealing import Opener, Sealer
from .granting import Grants, Lanes
from .outcomes import DONE
from .protocol import REQUEST_BYTES, Request, Session
from .providers import Unreachable
from .regions import Region, Regions
from .streams import Offering, receive, receive_into, send
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

    def answer_all(self) -> None:
        """Returns after a talk.

        Raises:
            OSError: the peer has left.
            ProtocolError: what it says is no request.
        """
        number = 0
        try:
            while True:
                data = receive(self._sock, REQUEST_BYTES)
                number += 1
                if self._answer(data, number):
                    return
        finally:
            if self._lanes is not None:
                self._grants.forget(self._lanes)

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
            if request.rdma:
                self._grant(number, region)
                return False
            if not request.talk:
                self._move(number, request, region)
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

    def _move(self, number: int, request: Request, region: Region) -> None:
        done = self._session.reply(DONE, number, region.key)
        view = region.memory.view[request.offset : request.offset + request.length]
        with view:
            if request.write:
                send(self._sock, done, idle=_PROGRESS_S)
                receive_into(self._sock, view, idle=_PROGRESS_S)
                send(self._sock, done, idle=_PROGRESS_S)
            else:
                self._offering.send(done, view, idle=_PROGRESS_S)

    def _grant(self, number: int, region: Region) -> None:
        try:
            if self._lanes is None:
                self._lanes = self._grants.lanes()
            grant = self._grants.grant(region, self._lanes)
        except Unreachable:
            self._refuse(native.FAILED, number, errno.ENODEV if may_pin(0) else errno.ENOMEM)
        except RuntimeError as error:
            logger.warning("a buffer cannot be offered by RDMA: %s", error)
            self._refuse(native.FAILED, number, errno.EIO if may_pin(region.memory.size) else errno.ENOMEM)
        else:
            if grant is None:
                self._refuse(native.DROPPED, number)
                return
            head = self._session.reply(DONE, number, region.key)
            send(self._sock, head + self._session.sealed(grant.pack(), number, region.key), idle=_PROGRESS_S)
