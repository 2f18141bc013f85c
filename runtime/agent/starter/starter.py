"""One starter process, from outside."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import anyio

from ..children import Child, Children, OnExit
from ..hook_protocol import HOOK_DIRECTORY
from .command_line import Cold
from .key import Key, WarmRequest

__all__ = ["FORK_S", "Stale", "Starter"]

INSIDE = Path(__file__).resolve().parent / "inside"
FORK_S = 10.0
_ENDED = {"refused": "the starter ended"}
_MESSAGE = 64 * 1024
# Of the process that a starter once served, not of those it will.
_OF_ONE_RANK = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK")


class Stale(Cold):
    """The starter will fork no more: what it has imported has changed since, or it does not answer."""


class Starter:
    """A child of the agent. Closing its channel ends it, as the agent's own end does."""

    def __init__(
        self,
        key: Key,
        child: Child,
        channel: socket.socket,
        encode: Callable[[WarmRequest], bytes] | None = None,
    ) -> None:
        self.key = key
        self.child = child
        self._channel = channel
        self._encode = encode or _encode

    @classmethod
    def spawn(
        cls,
        children: Children,
        request: WarmRequest,
        *,
        modules: tuple[str, ...],
        marks: Mapping[str, str],
        log: Path,
        on_exit: OnExit,
    ) -> Starter:
        """Starts the process; `wait_ready` tells whether it can fork.

        Raises:
            OSError: it cannot be started.
        """
        key = request.key
        script = str(INSIDE / "rank")
        own = {name: value for name, value in request.env.items() if not name.startswith("MILKWEED_")}
        for name in _OF_ONE_RANK:
            own.pop(name, None)
        with ExitStack() as stack:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(closing(theirs))
            ours.setblocking(False)
            # A file as a rank's, so that Python treats it alike; what imports print into it makes runs cold.
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, output)
            try:
                child = children.spawn(
                    [key.python, *key.flags, script],
                    env={
                        **own,
                        **marks,
                        "MILKWEED_STARTER": str(INSIDE),
                        "MILKWEED_STARTER_FD": str(theirs.fileno()),
                        "MILKWEED_STARTER_HOOK": str(HOOK_DIRECTORY / "sitecustomize.py"),
                        "MILKWEED_STARTER_MODULES": ",".join(modules),
                        "MILKWEED_STARTER_SCRIPT": script,
                    },
                    cwd=key.cwd,
                    output=output,
                    on_exit=on_exit,
                    pass_fds=(theirs.fileno(),),
                )
            except OSError:
                ours.close()
                raise
        return cls(key, child, ours)

    async def wait_ready(self, timeout_s: float) -> None:
        """Returns once it can fork.

        Raises:
            Cold: it never will.
        """
        answer = await _receive(self._channel, timeout_s)
        if not answer.get("ready"):
            raise Cold(str(answer.get("unfit") or "the starter ended while it imported"))

    async def fork(
        self,
        children: Children,
        request: WarmRequest,
        output: int,
        on_exit: OnExit,
        wanted: Callable[[], bool],
        *,
        within_s: float = FORK_S,
    ) -> Child | None:
        """A child that runs the request, or None when it was not `wanted` any more by the time it was there.

        Nothing of the run has happened before this returns its child, nor where it raises.

        Raises:
            Cold: it cannot, and Stale when it never will.
        """
        with ExitStack() as stack:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(closing(ours))
            stack.enter_context(closing(theirs))
            ours.setblocking(False)
            payload = os.memfd_create("run", os.MFD_CLOEXEC)
            stack.callback(os.close, payload)
            _write_all(payload, self._encode(request))
            message = json.dumps(dict(request.imported)).encode()
            await self._send(message, [payload, output, theirs.fileno(), *request.fds])
            theirs.close()  # so that the end of the child is the end of the channel
            answer = await _receive(ours, within_s)
            if "pid" not in answer:
                why = str(answer.get("refused", f"the starter did not answer within {within_s:g} s"))
                raise Stale(why) if answer.get("stale", True) else Cold(why)
            if not wanted():
                return None
            try:
                child = children.adopt(answer["pid"], answer["start_time"], on_exit)
            except OSError as error:
                raise Cold(f"the forked process is gone: {error.strerror}") from None
            with suppress(OSError):  # it was killed since, and its end is told
                ours.send(b"go")
            return child

    def close(self) -> None:
        """Lets it end."""
        self._channel.close()

    async def _send(self, message: bytes, fds: list[int]) -> None:
        while True:
            try:
                socket.send_fds(self._channel, [message], fds)
            except BlockingIOError:
                await anyio.wait_writable(self._channel)
            except OSError as error:
                raise Cold(f"the starter is gone: {error.strerror}") from None
            else:
                return


async def _receive(channel: socket.socket, timeout_s: float) -> dict[str, Any]:
    """The next message; a refusal at the end of the channel, an empty one when the time is up."""
    with anyio.move_on_after(timeout_s):
        while True:
            try:
                data = channel.recv(_MESSAGE)
            except BlockingIOError:
                await anyio.wait_readable(channel)
            except OSError:
                return dict(_ENDED)
            else:
                return dict(json.loads(data) if data else _ENDED)
    return {}


def _encode(request: WarmRequest) -> bytes:
    fields = {
        "argv": request.argv,
        "env": dict(request.env),
        "script": request.script,
        "cwd": request.key.cwd,
        "fds": request.fds,
    }
    return json.dumps(fields).encode()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
