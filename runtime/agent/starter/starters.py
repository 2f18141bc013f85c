"""The starters of one host: which there are, who gets one, and what happens without."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import anyio
import anyio.abc

from ..children import Child, Children, OnExit
from .command_line import Cold, NotPython
from .key import Key, WarmRequest, read_request
from .starter import Stale, Starter
from .turn import my_turn

__all__ = ["DEFAULT_POLICY", "Policy", "Started", "Starters"]

logger = logging.getLogger(__name__)

_IMPORT_S = 120.0
_MOST = 2
_MOST_TRIES = 3
_LONG_LIFE_S = 300.0
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Started:
    """A child, and how it started: `warm`, `cold`, or `cold: ` and why it did though warm was wanted.

    Empty for what is no Python.
    """

    child: Child
    how: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A new starter holds back for `quiet_s`, not to compete with the run that asked for it. Programs that
    import the standard library alone start warm only with `any_program`: torch takes half a second to end.
    """

    quiet_s: float = 5.0
    any_program: bool = False


DEFAULT_POLICY = Policy()


class Forks(Protocol):
    """A starter that is there already, for some requests only. See `Starter`."""

    def fits(self, request: WarmRequest) -> bool: ...

    async def fork(
        self,
        children: Children,
        request: WarmRequest,
        output: int,
        on_exit: OnExit,
        wanted: Callable[[], bool],
    ) -> Child | None: ...


@dataclass(slots=True)
class _Entry:
    """What is known of a key. `starter` can fork; `unfit` says that none ever will, and why."""

    starter: Starter | None = None
    starting: bool = False
    unfit: str = ""
    tries: int = 0
    used_at: float = field(default_factory=time.monotonic)


class Starters:
    """Its background work lives in `tasks`. What `forks` can fork, if there is one, it does."""

    def __init__(
        self,
        children: Children,
        tasks: anyio.abc.TaskGroup,
        directory: Path,
        marks: Mapping[str, str],
        *,
        modules: Sequence[str] = ("torch",),
        forks: Forks | None = None,
        policy: Policy = DEFAULT_POLICY,
    ) -> None:
        self._children = children
        self._tasks = tasks
        self._directory = directory
        self._marks = dict(marks)
        self._modules = tuple(modules)
        self._policy = policy
        self._forks = forks
        self._entries: dict[Key, _Entry] = {}
        self._importing = anyio.Lock()
        self._changed = anyio.Event()
        self._count = 0

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: int,
        on_exit: OnExit,
        wanted: Callable[[], bool],
        cold: str | None = None,
        pass_fds: Sequence[int] = (),
        imported: Mapping[str, str] = MappingProxyType({}),
    ) -> Started | None:
        """Starts a process as `Children.spawn` does, warm where a starter is ready and nothing forbids it.

        Args:
            wanted: asked when the process is there and before it runs; when it says no, the answer is None.
            cold: why it is not to start warm, empty where that was asked for; None: it may.
            imported: what it would best find imported, with the files of these modules.

        Raises:
            OSError: it cannot be started.
        """
        how = "" if not self._modules else f"cold: {cold}" if cold else "cold"
        if cold is None and self._modules:
            try:
                request = read_request(argv, env, cwd, pass_fds, imported)
                if request.stdlib_alone and not self._policy.any_program:
                    raise Cold("it imports the standard library alone")
                child = await self._fork(request, output, on_exit, wanted)
            except NotPython:
                how = ""
            except Cold as why:
                how = f"cold: {why}"
            else:
                return None if child is None else Started(child, "warm")
        if not wanted():
            return None
        child = self._children.spawn(
            argv, env=env, cwd=cwd, output=output, on_exit=on_exit, pass_fds=pass_fds
        )
        return Started(child, how)

    def prepare(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str) -> None:
        """Has a starter for such a run, soon."""
        if self._modules:
            with suppress(Cold):
                self._ask(read_request(argv, env, cwd))

    async def wait_ready(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str) -> str:
        """Waits until a starter for such a run is ready, or why there will be none."""
        request = read_request(argv, env, cwd)
        while True:
            changed = self._changed
            entry = self._ask(request)
            if entry.starter is not None or entry.unfit:
                return entry.unfit
            await changed.wait()

    async def _fork(
        self, request: WarmRequest, output: int, on_exit: OnExit, wanted: Callable[[], bool]
    ) -> Child | None:
        if self._forks is not None and self._forks.fits(request):
            return await self._forks.fork(self._children, request, output, on_exit, wanted)
        entry = self._ask(request)
        if entry.starter is None:
            raise Cold(entry.unfit or "the starter of such runs is not ready yet")
        starter = entry.starter
        try:
            return await starter.fork(self._children, request, output, on_exit, wanted)
        except Stale:
            self._drop(request.key)
            self._ask(request)
            raise

    def _ask(self, request: WarmRequest) -> _Entry:
        """The entry of a request's key; its starter is started if it can be."""
        if not self._children.subreaper:
            raise Cold("this process cannot adopt what a starter forks")
        entry = self._entries.setdefault(request.key, _Entry())
        entry.used_at = time.monotonic()
        if entry.starter is None and not entry.starting and not entry.unfit:
            entry.starting = True
            self._tasks.start_soon(self._bring_up, request, entry)
        return entry

    async def _bring_up(self, request: WarmRequest, entry: _Entry) -> None:
        await anyio.sleep(self._policy.quiet_s)
        async with self._importing, my_turn(self._directory.parent.parent / "importing"):
            self._make_room(request.key)
            entry.tries += 1
            try:
                starter = self._spawn(request, entry)
                try:
                    await starter.wait_ready(_IMPORT_S)
                except BaseException:
                    await self._end(starter)
                    raise
            except (Cold, OSError) as error:
                entry.unfit = str(error)
                logger.info("no warm starts for %s: %s", request.key.python, error)
            else:
                if self._entries.get(request.key) is entry and starter.child.exit is None:
                    entry.starter = starter
                else:
                    await self._end(starter)
            finally:
                entry.starting = False
                self._note_change()

    def _spawn(self, request: WarmRequest, entry: _Entry) -> Starter:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._count += 1
        log = self._directory / f"starter-{self._count % (_MOST + 1)}.log"
        return Starter.spawn(
            self._children,
            request,
            modules=self._modules,
            marks=self._marks,
            log=log,
            on_exit=lambda child, _: self._ended(request, entry, child),
        )

    def _ended(self, request: WarmRequest, entry: _Entry, child: Child) -> None:
        """A starter that was killed comes again, a few times."""
        starter = entry.starter
        if starter is None or starter.child is not child:
            return
        starter.close()
        entry.starter = None
        logger.info("starter %d ended: %s", child.pid, child.exit)
        if time.time() - child.started_at > _LONG_LIFE_S:
            entry.tries = 1
        if entry.tries >= _MOST_TRIES:
            entry.unfit = "its starter ended again and again"
        elif self._entries.get(request.key) is entry:
            self._ask(request)
        self._note_change()

    def _make_room(self, wanted: Key) -> None:
        oldest = sorted(
            (key for key in self._entries if key != wanted), key=lambda k: self._entries[k].used_at
        )
        alive = [key for key in oldest if self._entries[key].starter is not None]
        for key in (*alive[: max(0, len(alive) - _MOST + 1)], *oldest[: max(0, len(oldest) - _REMEMBERED)]):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.starter is not None:
            starter, entry.starter = entry.starter, None
            self._tasks.start_soon(self._end, starter)

    async def _end(self, starter: Starter) -> None:
        starter.close()
        with anyio.CancelScope(shield=True):
            await self._children.end_tree(starter.child.pid, {}, 0.0)

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
