"""Actors that tests spawn: light to import, since every proc does."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from milkweed.runtime import Actor, ActorMesh, Failure, current_rank, current_size, endpoint, this_host
from milkweed.runtime import this_proc as own_proc

__all__ = ["Counter", "Dying", "Failing", "Owner", "Picky", "Stuck", "Worker"]


class Counter(Actor):
    """Says in which order what it was told began."""

    def __init__(self, start: int = 0) -> None:
        self.total = start
        self.seen: list[Any] = []
        self.opened = threading.Event()

    @endpoint
    async def add(self, by: int = 1, *, times: int = 1) -> int:
        self.total += by * times
        return self.total

    @endpoint
    def add_in_turn(self, by: int = 1) -> int:
        self.total += by
        return self.total

    @endpoint
    async def note(self, what: Any) -> None:
        self.seen.append(what)

    @endpoint
    def note_in_turn(self, what: Any) -> None:
        self.seen.append(what)

    @endpoint
    async def noted(self) -> list[Any]:
        return self.seen

    @endpoint
    async def noted_in_turn(self) -> list[Any]:
        return self.seen

    @endpoint
    def wait_until_opened(self) -> str:
        self.seen.append("waits")
        self.opened.wait()
        return "opened"

    @endpoint
    async def open(self) -> None:
        self.opened.set()

    @endpoint
    def take(self, _data: bytes) -> None:
        self.total += 1


class Worker(Actor):
    """Tells of itself, and computes."""

    def __init__(self, *peers: ActorMesh) -> None:
        self.peers = peers
        self.init_thread = threading.current_thread().name

    @endpoint
    async def rank(self) -> int:
        return current_rank().rank

    @endpoint
    def rank_in_turn(self) -> tuple[int, dict[str, int], dict[str, int]]:
        return current_rank().rank, dict(current_rank()), current_size()

    @endpoint
    def threads(self) -> tuple[str, str]:
        return self.init_thread, threading.current_thread().name

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def echo_in_turn(self, value: Any) -> Any:
        return value

    @endpoint
    async def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    @endpoint
    async def rss(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @endpoint
    async def call_on(self, handle: ActorMesh, name: str, *args: Any) -> Any:
        return (await getattr(handle, name).call(*args)).values()

    @endpoint
    def call_on_in_turn(self, handle: ActorMesh, name: str, *args: Any) -> Any:
        return getattr(handle, name).call(*args).get().values()

    @endpoint
    async def get_on_loop(self, handle: ActorMesh) -> Any:
        return handle.rank.call_one().get()

    @endpoint
    def apply(self, function: Any, *args: Any) -> Any:
        return function(*args)

    @endpoint
    def blob(self, size: int) -> bytes:
        return b"x" * size

    @endpoint
    def in_a_pool(self, method: str) -> list[int]:
        with multiprocessing.get_context(method).Pool(2) as pool:
            return pool.map(abs, [-1, -2, -3])

    @endpoint
    async def spawn_here(self) -> int:
        other = await own_proc().spawn("other", Counter, 40)
        result: int = await other.add.call_one(2)
        return result

    @endpoint
    def chatter(self, words: str) -> None:
        print(words, flush=True)


class Picky(Actor):
    """Refuses to be made on some ranks."""

    def __init__(self, refused: tuple[int, ...]) -> None:
        if current_rank().rank in refused:
            raise ValueError(f"rank {current_rank().rank} is refused")

    @endpoint
    async def here(self) -> bool:
        return True


class Odd(Exception):
    """Cannot be made again from what it says: it wants two arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Failing(Actor):
    @endpoint
    async def value_error(self, words: str) -> None:
        raise ValueError(words)

    @endpoint
    def value_error_in_turn(self, words: str) -> None:
        raise ValueError(words)

    @endpoint
    def chained(self) -> None:
        try:
            {}["missing"]  # type: ignore[index]
        except KeyError as error:
            raise RuntimeError("outer") from error

    @endpoint
    def odd(self) -> None:
        raise Odd("a", "b")

    @endpoint
    def mute(self) -> None:
        raise Mute

    @endpoint
    def local_class(self) -> None:
        class Local(Exception):
            pass

        raise Local("from within")

    @endpoint
    async def cancelled_itself(self) -> None:
        raise asyncio.CancelledError

    @endpoint
    def generator_exit(self) -> None:
        raise GeneratorExit

    @endpoint
    async def stop_iteration(self) -> None:
        raise StopIteration("over")

    @endpoint
    def unpicklable(self) -> Any:
        return threading.Lock()

    @endpoint
    async def unpicklable_async(self) -> Any:
        return threading.Lock()

    @endpoint
    def unreadable(self) -> Any:
        return Unreadable()

    @endpoint
    async def well(self) -> bool:
        return True


class Unreadable:
    """Goes out, and does not come in."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    if "MILKWEED_PROC" not in os.environ:
        raise ImportError("not on this side")


class Stuck(Actor):
    """Endpoints that do not end by themselves."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @endpoint
    async def wait(self) -> None:
        self.log.append("wait")
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("wait ended")

    @endpoint
    async def wait_stubbornly(self) -> str:
        self.log.append("stubborn")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "answered all the same"
        return ""

    @endpoint
    def spin(self) -> None:
        self.log.append("spin")
        try:
            while True:
                pass
        finally:
            self.log.append("spin ended")

    @endpoint
    def sleep(self) -> None:
        self.log.append("sleep")
        time.sleep(3600)

    @endpoint
    def wait_for_another(self, other: ActorMesh) -> None:
        self.log.append("waits for another")
        other.wait.call_one().get()

    @endpoint
    async def block_the_loop(self) -> None:
        self.log.append("block")
        try:
            while True:
                pass
        finally:
            self.log.append("block ended")

    @endpoint
    def compute_in_c(self) -> None:
        self.log.append("compute")
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 200_000_000)

    @endpoint
    def hold_the_gil(self, opened: str) -> None:
        """Until somebody writes to that pipe: a call of C that keeps the lock of the interpreter."""
        descriptor = os.open(opened, os.O_RDWR)
        self.log.append("hold")
        time.sleep(0.05)  # lets others have it once more, so that they see this
        ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(1), 1)
        os.close(descriptor)

    @endpoint
    def logged_in_turn(self) -> list[str]:
        return self.log

    @endpoint
    async def logged(self) -> list[str]:
        return self.log

    @endpoint
    async def begun(self, what: str) -> None:
        """Returns once that has begun."""
        while what not in self.log:
            await asyncio.sleep(0.001)

    @endpoint
    def mark(self) -> None:
        self.log.append("mark")


class Dying(Actor):
    def __init__(self, at_start: str = "") -> None:
        self.at_start = at_start

    @endpoint
    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(os.getpid(), number)
        time.sleep(60)

    @endpoint
    async def kill_async(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @endpoint
    def leave(self, code: int) -> None:
        os._exit(code)

    @endpoint
    def sys_exit(self, code: Any) -> None:
        sys.exit(code)

    @endpoint
    async def sys_exit_async(self, code: Any) -> None:
        sys.exit(code)

    @endpoint
    def interrupt(self) -> None:
        raise KeyboardInterrupt

    @endpoint
    def segfault(self) -> None:
        ctypes.string_at(0)

    @endpoint
    async def close_descriptors(self) -> None:
        os.closerange(3, 1024)

    @endpoint
    def fork_and_die(self) -> None:
        """Leaves a child that keeps what it has inherited."""
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)

    @endpoint
    async def answer_to_a_stopped_caller(self, caller: int, size: int) -> bytes:
        os.kill(caller, signal.SIGSTOP)
        return bytes(size)

    @endpoint
    def last_words(self, words: str) -> None:
        print(words, flush=True)
        os._exit(5)

    @endpoint
    async def wait(self) -> None:
        await asyncio.Event().wait()

    @endpoint
    async def pid(self) -> int:
        return os.getpid()


class Owner(Actor):
    """Spawns procs of its own, and hears of their failures."""

    def __init__(self, answer: bool | str = True) -> None:
        self.answer = answer
        self.heard: list[Failure] = []
        self.told = asyncio.Event()

    @endpoint
    async def spawn(self) -> list[int]:
        self.procs = await this_host().spawn_procs(per_host={"inner": 1}, output="keep")
        self.inner = await self.procs.spawn("inner", Dying)
        return list(self.procs.pids.values())

    @endpoint
    async def inner_handle(self) -> ActorMesh:
        return self.inner

    @endpoint
    async def kill_inner(self) -> None:
        self.inner.kill.broadcast()

    @endpoint
    async def heard_first(self) -> tuple[str, str]:
        while not self.heard:
            await asyncio.sleep(0.001)
        return self.heard[0].what, self.heard[0].how

    def __supervise__(self, failure: Failure) -> Any:
        self.heard.append(failure)
        if self.answer == "raise":
            raise RuntimeError("cannot decide")
        if self.answer == "async":
            return self._decide()
        return self.answer

    async def _decide(self) -> bool:
        await asyncio.sleep(0)
        return True
