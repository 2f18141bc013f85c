"""From a forked child of the starter to the process of a run.

Everything that can fail comes before the agent is told of the child, and nothing of the user's runs before
the agent has said so: it then waits for this very process, and a child that cannot become what it should is
replaced by a cold start.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .files import Files, is_importable
from .image import take_image
from .interpreter import reconfigure
from .mending import mend

__all__ = ["Inherited", "Request", "become"]


class Refused(Exception):
    """Why this run cannot start warm."""


class Request:
    """One run that is asked for, by descriptors: what it is, its output, and a channel to the agent.

    The `others` are for the run itself.
    """

    def __init__(self, payload: int, output: int, channel: int, others: Sequence[int]) -> None:
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


class Inherited:
    """What the starter knows and its children need.

    Children look at as little else of its memory as they can: what a Python process looks at is copied.

    Attributes:
        files: where imports came from.
        added: variables that the interpreter or an import has set.
        home: the directory of the runs.
        offset: see `reconfigure`.
        modules: names of our own modules, of which a run is to see nothing.
    """

    def __init__(self, files: Files, added: Mapping[bytes, bytes], home: str, offset: int) -> None:
        self.files = files
        self.added = added
        self.home = home
        self.offset = offset
        package = __name__.partition(".")[0]
        self.modules = [name for name in sys.modules if name.partition(".")[0] == package]


def become(request: Request, inherited: Inherited, enter_run: Callable[[], None]) -> None:
    """Returns as the run; `enter_run` is what the hook does for one."""
    try:
        try:
            _prepare(request, inherited)
            _wait_for_agent(request)
            answer: dict[str, object] = {"pid": os.getpid(), "start_time": _start_time()}
        except Exception as error:
            why = str(error) if isinstance(error, Refused) else repr(error)
            answer = {"refused": why, "stale": False}
        request.answer(answer)
        if "pid" not in answer or not request.channel.recv(16):
            os._exit(0)
    except BaseException:
        os._exit(0)
    request.channel.close()
    for name in inherited.modules:
        del sys.modules[name]
    enter_run()
    gc.enable()


def _prepare(request: Request, inherited: Inherited) -> None:
    plan = _read(request.payload)
    _check(plan, inherited.files, inherited.home)
    os.setsid()
    for fd in (1, 2):
        os.dup2(request.output, fd)
    os.close(request.output)
    request.place(plan["fds"])
    argv = [os.fsencode(word) for word in plan["argv"]]
    env = {os.fsencode(name): os.fsencode(value) for name, value in plan["env"].items()}
    take_image(argv, env, inherited.added)
    reconfigure(plan["argv"], inherited.offset)
    mend()
    # With __main__ frozen to the end, finalizers of globals would not run.
    atexit.register(gc.unfreeze)


def _wait_for_agent(request: Request) -> None:
    """Until the process in the middle has ended, which leaves us to the agent."""
    while os.getppid() == request.middle:
        time.sleep(0.0002)


def _read(payload: int) -> dict[str, Any]:
    with open(payload, "rb") as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
        return request


def _check(plan: Mapping[str, Any], files: Files, home: str) -> None:
    """Enters the run's directory, if a script there is to get what was imported.

    Raises:
        Refused: it is not, or the script is no plain file.
    """
    os.chdir(home)
    script = plan["script"]
    if script is not None and is_importable(script):
        raise Refused(f"{script} is a directory or an archive")
    if not getattr(sys.flags, "safe_path", False):
        first = home if script is None else os.path.dirname(os.path.realpath(script))
        if shadowed := files.shadowed(first):
            raise Refused(f"{shadowed} beside the script has the name of a module that is imported already")


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _start_time() -> int:
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])
