"""A child that says lines on its standard output, and lives while we hold its standard input open."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import anyio

from ..agent.children import Child, Children

__all__ = ["TalkingChild", "start"]

_AT_ONCE = 64 * 1024


class TalkingChild:
    """Made by `start`, for the length of its block; the process itself is not ended by the block's end."""

    def __init__(self, child: Child, life: int, said: int, errors: int) -> None:
        self.child = child
        self._life = life
        self._said = said
        self._errors = errors
        self._is_told = False
        self._pidfd = os.pidfd_open(child.pid)  # not reaped yet: this loop does that

    def close(self) -> None:
        self.tell_to_end()
        os.close(self._pidfd)

    @property
    def pipe(self) -> int:
        """What it says is in there until it is read."""
        return self._said

    def said(self) -> AsyncIterator[bytes]:
        return _read(self._said)

    def errors(self) -> AsyncIterator[bytes]:
        return _read(self._errors)

    def last_errors(self) -> bytes:
        """What it has said of errors that was not read yet; at its end."""
        with suppress(BlockingIOError):
            return os.read(self._errors, _AT_ONCE)
        return b""

    def tell(self, line: bytes) -> None:
        """
        Raises:
            OSError: it has ended, or was told to.
        """
        if self._is_told:
            raise BrokenPipeError(32, "it is ending")
        os.write(self._life, line + b"\n")

    def tell_to_end(self) -> None:
        """Ends its standard input."""
        if not self._is_told:
            self._is_told = True
            os.close(self._life)

    def kill(self) -> None:
        """From any thread."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


@contextmanager
def start(children: Children, argv: Sequence[str], env: Mapping[str, str]) -> Iterator[TalkingChild]:
    """A child of ours that is known as such: what else is reparented to an agent ends with its runs.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as ours:
        with ExitStack() as theirs:
            ends = [os.pipe() for _ in range(3)]
            (stdin, life), (said, stdout), (errors, stderr) = ends
            for descriptor in (stdin, stdout, stderr):
                theirs.callback(os.close, descriptor)
            for descriptor in (said, errors):
                ours.callback(os.close, descriptor)
                os.set_blocking(descriptor, False)
            try:
                child = children.spawn(
                    argv,
                    env=env,
                    cwd="/",
                    stdin=stdin,
                    output=stdout,
                    errors=stderr,
                    on_exit=lambda _child, _exit: None,
                )
            except BaseException:
                os.close(life)
                raise
        talking = TalkingChild(child, life, said, errors)
        ours.callback(talking.close)
        yield talking


async def _read(descriptor: int) -> AsyncIterator[bytes]:
    """What is written to it, until all who may write have closed it."""
    while True:
        await anyio.wait_readable(descriptor)
        with suppress(BlockingIOError):
            if not (data := os.read(descriptor, _AT_ONCE)):
                return
            yield data
