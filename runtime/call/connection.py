"""One peer on a stream: the handshake, calls in both directions, their replies and cancels."""

from __future__ import annotations

import logging
import os
import pickle
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

import anyio
import anyio.abc

from ..actor import Actor, endpoints_of
from ..errors import MilkweedError, NotFound, ProtocolError, RemoteFailure, Unavailable
from ..tasks import alone, background_tasks
from ..wire import SAME_VERSION, WIRE_VERSION, FrameReader, Kind, WireFrame, decode_json, encode, encode_json
from .ref import ActorRef

__all__ = ["Connection"]

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Actor)

HANDSHAKE_S = 5.0
DEFAULT_DEADLINE_S = 45.0
_CHUNK = 256 * 1024
_QUEUE = 64
_LOOK_AND_REPEAT = "It may have had its effect: look (mesh_status, list_runs), then call again."
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class _Pending:
    """A call under way from here: its reply, or why there will be none."""

    __slots__ = ("done", "failure", "value")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.value: Any = None
        self.failure: BaseException | None = None

    def settle(self, value: Any = None, failure: BaseException | None = None) -> None:
        if not self.done.is_set():
            self.value, self.failure = value, failure
            self.done.set()


class Connection:
    """One peer. `run` drives it; it ends when either side closes, and every open call then fails."""

    def __init__(
        self,
        stream: anyio.abc.ByteStream,
        *,
        role: str,
        actors: Mapping[str, Actor] | None = None,
        peer: str = "peer",
    ) -> None:
        self._stream = stream
        self._role = role
        self._actors = dict(actors or {})
        self._peer = peer
        self._reader = FrameReader()
        self._early: list[WireFrame] = []
        self._pending: dict[int, _Pending] = {}
        self._serving: dict[int, anyio.CancelScope] = {}
        self._next_call = 1
        self._outbox, self._outbox_end = anyio.create_memory_object_stream[bytes](_QUEUE)
        self._scope = anyio.CancelScope()
        self._flushed = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self.closed = anyio.Event()
        self.reason = ""
        self.peer_hello: dict[str, Any] = {}

    def actor(self, name: str, cls: type[A]) -> ActorRef[A]:
        """A reference to the peer's actor of that name; `cls` gives the endpoints' types."""
        return ActorRef(self, name, cls, DEFAULT_DEADLINE_S)

    def close(self) -> None:
        """Ends `run`; calls under way fail."""
        self._scope.cancel()

    async def drain(self) -> None:
        """Lets the calls under way here end and their replies go out, then closes."""
        await self._idle.wait()
        self._outbox.close()
        await self._flushed.wait()
        self.close()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Shakes hands, reports started, then serves until the connection ends.

        Raises:
            ProtocolError: the peer is not Milkweed, or of another version.
            Unavailable: connection_lost, it ended before the handshake was over. Later ends are no error.
        """
        shaken = False
        try:
            with self._scope:
                async with background_tasks() as tasks:
                    tasks.start_soon(self._write)
                    await self._shake_hands()
                    shaken = True
                    task_status.started()
                    await self._read(tasks)
        except ProtocolError as error:
            self.reason = str(error)
            if not shaken:
                raise
            logger.warning("%s: %s", self._peer, error)
        except BaseException as error:
            if not _is_broken(error):
                raise
            self.reason = self.reason or "it broke"
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish()
        if not shaken:
            raise self._lost()

    def _lost(self) -> Unavailable:
        return Unavailable(
            "connection_lost", f"the connection to {self._peer} ended: {self.reason}", _LOOK_AND_REPEAT
        )

    async def _finish(self) -> None:
        self.reason = self.reason or "it was closed"
        for pending in self._pending.values():
            pending.settle(failure=self._lost())
        self._pending.clear()
        self.closed.set()
        with anyio.move_on_after(0.2):
            if self.reason.startswith(("protocol_error", "version_mismatch")):
                with _ignore_broken():
                    await self._stream.send(encode_json(Kind.GOODBYE, {"reason": self.reason}))
        self._outbox.close()
        self._outbox_end.close()
        with _ignore_broken():
            await self._stream.aclose()

    async def _shake_hands(self) -> None:
        hello = {"wire": WIRE_VERSION, "role": self._role, "pid": os.getpid()}
        await self._outbox.send(encode_json(Kind.HELLO, hello))
        try:
            with anyio.fail_after(HANDSHAKE_S):
                frame = await self._first_frame()
        except TimeoutError:
            raise Unavailable(
                "deadline_exceeded",
                f"{self._peer} did not say hello within {HANDSHAKE_S:.0f} s",
                "It hangs or is stopped: see its state with ps.",
            ) from None
        value = decode_json(frame)
        if frame.kind is Kind.GOODBYE:
            raise ProtocolError(
                "protocol_error",
                f"{self._peer} refused: {value.get('reason', 'no reason given')}",
                SAME_VERSION,
            )
        if frame.kind is not Kind.HELLO or value.get("wire") != WIRE_VERSION:
            raise ProtocolError(
                "version_mismatch",
                f"{self._peer} speaks wire version {value.get('wire')}, this is {WIRE_VERSION}",
                "Release the mesh with the version that allocated it, or install that version.",
            )
        self.peer_hello = value

    async def _first_frame(self) -> WireFrame:
        while True:
            frames = list(self._reader.feed(await self._receive()))
            if frames:
                self._early = frames[1:]
                return frames[0]

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive(_CHUNK)
        except anyio.EndOfStream:
            if self._reader.pending:
                raise ProtocolError(
                    "protocol_error", f"{self._peer} closed in the middle of a frame", _LOOK_AND_REPEAT
                ) from None
            raise anyio.BrokenResourceError from None

    async def _read(self, group: anyio.abc.TaskGroup) -> None:
        for frame in self._early:
            self._dispatch(frame, group)
        while True:
            data = await self._receive()
            for frame in self._reader.feed(data):
                if frame.kind is Kind.GOODBYE:
                    self.reason = f"the peer said: {decode_json(frame).get('reason')}"
                    return
                self._dispatch(frame, group)

    async def _write(self) -> None:
        try:
            async for data in self._outbox_end:
                await self._stream.send(data)
        finally:
            self._flushed.set()

    def _dispatch(self, frame: WireFrame, group: anyio.abc.TaskGroup) -> None:
        if frame.kind is Kind.CALL:
            scope = anyio.CancelScope()
            self._serving[frame.call] = scope
            if self._idle.is_set():
                self._idle = anyio.Event()
            group.start_soon(self._serve_call, frame, scope)
        elif frame.kind is Kind.CANCEL:
            if scope_ := self._serving.get(frame.call):
                scope_.cancel()
        elif pending := self._pending.get(frame.call):
            try:
                value = pickle.loads(frame.body)
            except Exception as error:
                pending.settle(
                    failure=ProtocolError(
                        "protocol_error", f"a reply could not be read: {error!r}", SAME_VERSION
                    )
                )
                return
            if frame.kind is Kind.RESULT:
                pending.settle(value)
            else:
                pending.settle(failure=value)

    async def _serve_call(self, frame: WireFrame, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._outbox.send(await self._reply_to(frame))
        except _BROKEN:
            logger.debug("%s left before its reply", self._peer)
        finally:
            self._serving.pop(frame.call, None)
            if not self._serving:
                self._idle.set()

    async def _reply_to(self, frame: WireFrame) -> bytes:
        try:
            return encode(Kind.RESULT, frame.call, pickle.dumps(await self._invoke(frame.body), protocol=5))
        except Exception as error:
            failure = alone(error)
            if not isinstance(failure, MilkweedError):
                logger.exception("a call failed")
                failure = _as_remote_failure(error)
            return encode(Kind.ERROR, frame.call, pickle.dumps(failure, protocol=5))

    async def _invoke(self, body: bytes) -> Any:
        try:
            name, method, args, kwargs = pickle.loads(body)
        except Exception as error:
            raise ProtocolError(
                "protocol_error", f"a call could not be read: {error!r}", SAME_VERSION
            ) from None
        actor = self._actors.get(name)
        if actor is None or method not in endpoints_of(actor):
            raise NotFound(
                "endpoint_not_found",
                f"no endpoint {name}.{method}; actors here: {', '.join(sorted(self._actors))}",
                SAME_VERSION,
            )
        return await getattr(actor, method)(*args, **kwargs)

    async def request(self, actor: str, method: str, args: Any, kwargs: Any, deadline_s: float | None) -> Any:
        """Sends one call and awaits its reply; `ActorRef` is the typed way to it."""
        if self.closed.is_set():
            raise self._lost()
        call, self._next_call = self._next_call, self._next_call + 1
        pending = self._pending[call] = _Pending()
        try:
            with anyio.fail_after(deadline_s):
                body = pickle.dumps((actor, method, args, kwargs), protocol=5)
                try:
                    await self._outbox.send(encode(Kind.CALL, call, body))
                except _BROKEN:
                    raise self._lost() from None
                await pending.done.wait()
        except TimeoutError:
            raise Unavailable(
                "deadline_exceeded",
                f"{self._peer} did not answer {actor}.{method} within {deadline_s:g} s",
                _LOOK_AND_REPEAT,
            ) from None
        finally:
            self._pending.pop(call, None)
            if not pending.done.is_set():
                self._send_cancel(call)
        if pending.failure is not None:
            raise pending.failure
        return pending.value

    def _send_cancel(self, call: int) -> None:
        # Best effort: with a full outbox the peer learns of it when the connection ends.
        try:
            self._outbox.send_nowait(encode(Kind.CANCEL, call))
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("could not send a cancel to %s", self._peer)


def _as_remote_failure(error: Exception) -> RemoteFailure:
    return RemoteFailure(
        "internal_error",
        f"{type(error).__name__}: {error}",
        "This is a fault in Milkweed; its log has the traceback.",
        "".join(traceback.format_exception(error)),
    )


def _is_broken(error: BaseException) -> bool:
    """Whether nothing happened but that the stream is gone, as reader and writer may both tell."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_broken(one) for one in error.exceptions)
    return isinstance(error, _BROKEN)


def _ignore_broken() -> AbstractContextManager[None]:
    return suppress(*_BROKEN)
