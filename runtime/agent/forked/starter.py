"""The starter of procs that an agent forks from itself, before it has a thread or a loop."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import anyio

from ..children import Child, Children, OnExit
from ..ptree import read_process
from ..starter.command_line import Cold
from ..starter.early import early_variables
from ..starter.inside.milkweed_starter.requests import Request, count_threads, fork_all, receive, refuse_all
from ..starter.interpreters import find_interpreter
from ..starter.key import Key, WarmRequest
from ..starter.starter import FORK_S, Stale, Starter
from .inherited import Inherited, import_later, inherit, other_file, settle
from .plan import encode_plan
from .proc import become_proc
from .steps import Step

__all__ = ["ForkedStarter", "Forks", "fork_starter"]

logger = logging.getLogger(__name__)

_READY_S = 20.0
_IMPORT_S = 120.0
# A child of ours takes these by itself.
_TAKEN = frozenset(("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"))
# What an interpreter reads; the rest is read by what it may import.
_OF_PYTHON = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "GLIBC_TUNABLES", "HOME")


@dataclass(frozen=True, slots=True)
class ForkedStarter:
    """As the agent has it. `command` is what it forks, behind the interpreter; `modules` are imported.

    With `may_import` it also imports, once, what the owners of procs have imported.
    """

    pid: int
    start_time: int
    channel: socket.socket
    command: tuple[str, ...]
    modules: tuple[str, ...]
    may_import: bool

    def open(self, children: Children) -> Forks | None:
        """None where it has ended. Its channel is the block's of `children`, and ends with it."""
        self.channel.setblocking(False)
        forks = Forks(self)
        try:
            child = children.adopt(self.pid, self.start_time, lambda _child, _exit: forks.close())
            key = Key(sys.executable, find_interpreter(sys.executable, {}, "/"), (), "/", ())
        except (OSError, Cold) as error:
            logger.warning("procs will not be forked by our own starter: %s", error)
            self.channel.close()
            return None
        forks.starter = Starter(key, child, self.channel, encode_plan)
        return forks


class Forks:
    """Forks procs, once it has imported and for as long as it lives."""

    def __init__(self, forked: ForkedStarter) -> None:
        self.starter: Starter | None = None
        self._forked = forked
        self._asked: set[tuple[str, str]] = set()  # modules that it may have imported, or be importing
        self._answered: set[tuple[str, str]] = set()  # those of them that it imports no more
        self._importing = 0
        self._ready = False
        self._getting_ready = anyio.Lock()

    def fits(self, request: WarmRequest) -> bool:
        """Whether such a process can be forked: our interpreter, and nothing that it had to read earlier."""
        key = request.key
        return (
            self.starter is not None
            and request.argv[1:] == self._forked.command
            and not key.flags
            and _place(key.interpreter.path) == _place(sys.executable)
            and self._early(request) == self._early(replace(request, env=os.environ))
        )

    def _early(self, request: WarmRequest) -> tuple[tuple[str, str], ...]:
        early = (pair for pair in early_variables(request.env) if pair[0] not in _TAKEN)
        modules = self._forked.modules or self._asked or self._to_import(request)
        return tuple(pair for pair in early if modules or pair[0].startswith(_OF_PYTHON))

    def _to_import(self, request: WarmRequest) -> set[tuple[str, str]]:
        return set(request.imported.items()) - self._answered if self._forked.may_import else set()

    async def fork(
        self,
        children: Children,
        request: WarmRequest,
        output: int,
        on_exit: OnExit,
        wanted: Callable[[], bool],
    ) -> Child | None:
        """As `Starter.fork`, whose errors it has; waits until it can."""
        async with self._getting_ready:
            starter = self.starter
            if starter is None:
                raise Cold("the starter has ended")
            if not self._ready:
                await starter.wait_ready(_READY_S)
                self._ready = True
        fresh = self._to_import(request)
        self._asked |= fresh
        self._importing += bool(fresh)
        try:
            # Whatever is asked for while it imports waits for that.
            within_s = _IMPORT_S if self._importing else FORK_S
            child = await starter.fork(children, request, output, on_exit, wanted, within_s=within_s)
        except Stale:
            self.close()
            raise
        finally:
            self._importing -= bool(fresh)
        self._answered |= fresh
        return child

    def close(self) -> None:
        """It ends, once nobody waits for it."""
        if self.starter is not None:
            self.starter.close()
            self.starter = None


def fork_starter(
    command: tuple[str, ...],
    modules: Sequence[str],
    inherited: Inherited | None = None,
    *,
    may_import: bool = False,
) -> ForkedStarter | Step:
    """Forks it; returns a step in each process that it forks in its turn.

    To be called while this process has one thread and no event loop.

    Args:
        command: `-m` and a module.
        modules: what procs find imported.
        inherited: where that has been imported already.
        may_import: whether it may import more, once procs are wanted whose owner has that.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _keep_open(0, 1, 2, theirs.fileno())
            if inherited is None:
                inherited = inherit(command[1], modules)
                settle(inherited)
            request = _serve(theirs, inherited, may_import)
        except BaseException as error:
            _say(theirs, {"unfit": f"{type(error).__name__}: {error}"})
            os._exit(1)
        return partial(become_proc, request, inherited)
    theirs.close()
    process = read_process(pid)
    return ForkedStarter(pid, process.start_time if process else 0, ours, command, tuple(modules), may_import)


def _serve(channel: socket.socket, inherited: Inherited, may_import: bool) -> Request:
    """Returns in each child, with what it is to be."""
    _say(channel, {"ready": True})
    while True:
        requests = receive(channel)
        if count_threads() != 1:
            os._exit(1)
        mine = _answer(requests, inherited, may_import)
        if mine is not None:
            break
        for request in requests:
            request.close()
    channel.close()
    for request in requests:
        if request is not mine:
            request.close()
    return mine


def _answer(requests: list[Request], inherited: Inherited, may_import: bool) -> Request | None:
    """Forks what is asked for; returns in each child, as `fork_all` does.

    Raises:
        Exception: an import raised.
    """
    changed = inherited.files.changed()
    if changed:
        refuse_all(requests, changed, stale=True)
        return None
    ready, waiting, fresh = [], [], set()
    for request in requests:
        imported = json.loads(request.message)
        others = {name: other for name, file in imported.items() if (other := other_file(name, file))}
        wrong = next((name for name in others if name in sys.modules), None)
        missing = {name for name in imported if name not in sys.modules and name not in others}
        if wrong is not None:
            refuse_all([request], f"the owner has another {wrong} than {others[wrong]}", stale=False)
        elif missing and may_import:
            waiting.append(request)
            fresh |= missing
        else:
            ready.append(request)
    mine = fork_all(ready)
    if mine is None and fresh:
        import_later(inherited, sorted(fresh))
        mine = fork_all(waiting)
    return mine


def _keep_open(*fds: int) -> None:
    """Closes what else this process has: it is the agent's, and no proc's."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in fds:
            with suppress(OSError):  # that of the listing itself is closed by now
                os.close(int(name))


def _say(channel: socket.socket, message: Mapping[str, object]) -> None:
    try:
        channel.send(json.dumps(message).encode())
    except OSError:
        os._exit(0)


def _place(python: str) -> tuple[str, str]:
    """Which installation it is, and which environment."""
    return os.path.realpath(python), os.path.realpath(os.path.dirname(python))
