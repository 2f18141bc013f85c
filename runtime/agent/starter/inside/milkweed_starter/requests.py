"""The starter's side of being asked: requests that arrive together, and children for them."""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

__all__ = ["Refused", "Request", "count_threads", "fork_all", "receive", "refuse_all"]

_BUFFER = 4096
_LEAST_FDS, _MOST_FDS = 3, 11
# What is asked for one by one is to be forked together.
_BATCH = 32
_TOGETHER_S = 0.001


class Refused(Exception):
    """Why this run cannot start warm."""


class Request:
    """One run that is asked for, by descriptors: what it is, its output, and a channel to the agent.

    The `others` are for the run itself, `message` is for the starter.
    """

    def __init__(
        self, message: bytes, payload: int, output: int, channel: int, others: Sequence[int]
    ) -> None:
        self.message = message
        self.payload = payload
        self.output = output
        self.channel = socket.socket(fileno=channel)
        self.others = others
        self.middle = 0

    def answer(self, message: Mapping[str, object]) -> None:
        """Raises OSError when the agent does not listen any more."""
        self.channel.send(json.dumps(message).encode())

    def close(self) -> None:
        for fd in (self.payload, self.output, *self.others):
            os.close(fd)
        self.channel.close()

    def place(self, numbers: Sequence[int]) -> None:
        """Gives the others the numbers that the run knows them by.

        Raises:
            Refused: a number is taken.
        """
        if not numbers:
            return
        above = max(numbers) + 1
        if self.channel.fileno() in numbers:
            here = self.channel.detach()
            self.channel = socket.socket(fileno=fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, above))
            os.close(here)
        lifted = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in self.others]
        for fd in self.others:
            os.close(fd)
        for fd, number in zip(lifted, numbers, strict=True):
            if _is_open(number):
                raise Refused(f"its descriptor {number} is in use")
            os.dup2(fd, number)
            os.close(fd)


def fork_all(requests: list[Request]) -> Request | None:
    """Forks a child for each request; returns one in that child, and None here.

    A process in the middle forks them and ends, which makes them the agent's children.
    """
    if not requests:
        return None
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return None
    for request in requests:
        request.middle = os.getpid()
        if os.fork() == 0:
            return request
    os._exit(0)


def refuse_all(requests: Iterable[Request], why: str, *, stale: bool) -> None:
    """`stale`: none will ever be forked here again."""
    for request in requests:
        with suppress(OSError):
            request.answer({"refused": why, "stale": stale})


def receive(channel: socket.socket) -> list[Request]:
    """What is asked for: at least one, and those that come with it."""
    requests = [_receive_one(channel)]
    while len(requests) < _BATCH and select.select([channel], [], [], _TOGETHER_S)[0]:
        requests.append(_receive_one(channel))
    return requests


def _receive_one(channel: socket.socket) -> Request:
    message, fds, _, _ = socket.recv_fds(channel, _BUFFER, _MOST_FDS)
    if not message or len(fds) < _LEAST_FDS:
        os._exit(0)  # the agent has ended, or wants no more of us
    payload, output, answers, *others = fds
    return Request(message, payload, output, answers, others)


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
