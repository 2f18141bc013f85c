"""From a forked child of the starter to the process of a run.

Everything that can fail comes before the agent is told of the child, and nothing of the user's runs before
the agent has said so: it then waits for this very process, and a child that cannot become what it should is
replaced by a cold start.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .files import Files, is_importable
from .image import take_image
from .interpreter import reconfigure
from .mending import mend

__all__ = ["Refused", "become"]

_PACKAGE = __name__.partition(".")[0]


class Refused(Exception):
    """Why this run cannot start warm; `stale` when no run can any more."""

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale


def become(
    payload: int,
    output: int,
    agent: socket.socket,
    files: Files,
    added: Mapping[bytes, bytes],
    home: str,
    offset: int,
    enter_run: Callable[[], None],
) -> None:
    """Returns as the run; `added` are variables that the interpreter or an import has set."""
    try:
        request = _read(payload)
        _check(request, files, home)
        os.setsid()
        for fd in (1, 2):
            os.dup2(output, fd)
        os.close(output)
        argv = [os.fsencode(word) for word in request["argv"]]
        env = {os.fsencode(name): os.fsencode(value) for name, value in request["env"].items()}
        take_image(argv, env, added)
        reconfigure(request["argv"], offset)
        mend()
        answer: dict[str, object] = {"pid": os.getpid(), "start_time": _start_time()}
    except Refused as refusal:
        answer = {"refused": str(refusal), "stale": refusal.stale}
    except BaseException as error:
        answer = {"refused": f"{type(error).__name__}: {error}"}
    try:
        agent.send(json.dumps(answer).encode())
        if "pid" not in answer or not agent.recv(16):
            os._exit(0)
    except BaseException:
        os._exit(0)
    agent.close()
    _forget_ourselves()
    enter_run()
    gc.enable()


def _read(payload: int) -> dict[str, Any]:
    with open(payload, "rb") as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
        return request


def _check(request: Mapping[str, Any], files: Files, home: str) -> None:
    """Enters the run's directory, if what was imported is still what the run would import.

    Raises:
        Refused: it is not, or the script is no plain file.
    """
    if changed := files.changed():
        raise Refused(f"{changed} has changed since it was imported", stale=True)
    os.chdir(home)
    script = request["script"]
    if script is not None and is_importable(script):
        raise Refused(f"{script} is a directory or an archive")
    if not getattr(sys.flags, "safe_path", False):
        first = os.path.dirname(os.path.realpath(script)) if script is not None else home
        if shadowed := files.shadowed(first or home):
            raise Refused(f"{shadowed} beside the script has the name of a module that is imported already")


def _start_time() -> int:
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _forget_ourselves() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]
