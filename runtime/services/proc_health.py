"""How a proc is: by what its control socket answers, else by the kernel and py-spy."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import anyio

from ..agent import ptree
from ..agent.children import Children
from ..errors import Unavailable
from ..proc_records import ProcHealth, ProcState
from ..records import Frame, ThreadStack
from .host_proc import HostProc
from .pyspy import parse_pyspy, pyspy_command
from .stacks import find_pyspy, pyspy_environment

__all__ = ["HealthLook", "judge_answer", "judge_threads"]

_ANSWER_S = 0.5
_PYSPY_S = 1.5
_BLOCKED_S = 0.5
_MOST_BYTES = 64 * 1024
_LOOP_THREAD = "milkweed"


def judge_answer(answer: Mapping[str, Any]) -> tuple[ProcState, float, str]:
    """State, for how many seconds, and where, from the answer to a ping."""
    lag = float(answer.get("loop_lag_s") or 0.0)
    if lag >= _BLOCKED_S:
        return "blocked", lag, ""
    main = answer.get("main")
    if isinstance(main, Mapping):
        return "busy", float(main.get("busy_s") or 0.0), str(main.get("endpoint") or "")
    return "ok", 0.0, ""


def judge_threads(threads: tuple[ThreadStack, ...]) -> tuple[ProcState, str]:
    """State and place of a proc that does not answer."""
    for thread in threads:
        if thread.owns_gil:
            return "holds_gil", top_of(thread)
    return "silent", top_of(threads[0]) if threads else ""


def top_of(thread: ThreadStack) -> str:
    """The innermost frame in words."""
    return _words(thread.frames[0]) if thread.frames else ""


def _words(frame: Frame) -> str:
    return f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"


class HealthLook:
    """Looks at several procs at once."""

    def __init__(self, children: Children, *, py_spy: str | None = None) -> None:
        self._children = children
        self._py_spy = py_spy or find_pyspy()
        self._slots = anyio.CapacityLimiter(2 * (os.cpu_count() or 1))

    async def look(self, procs: Mapping[str, HostProc | None]) -> tuple[ProcHealth, ...]:
        """In their order; None is one that has ended."""
        found: dict[str, ProcHealth] = {}

        async def look_at(name: str, proc: HostProc) -> None:
            found[name] = await self._look_at(proc)

        async with anyio.create_task_group() as tasks:
            for name, proc in procs.items():
                if proc is None:
                    found[name] = ProcHealth(name, 0, "gone")
                else:
                    tasks.start_soon(look_at, name, proc)
        return tuple(found[name] for name in procs)

    async def _look_at(self, proc: HostProc) -> ProcHealth:
        if proc.child is None or proc.exit is not None:
            return ProcHealth(proc.name, proc.child.pid if proc.child else 0, "gone")
        pid = proc.child.pid
        answer = await self._ping(proc)
        now = time.time()
        if answer is not None:
            proc.silent_since = 0.0
            state, for_s, where = judge_answer(answer)
            if state == "blocked":
                threads = await self._threads(pid)
                where = next((top_of(one) for one in threads if one.thread == _LOOP_THREAD), "")
            return ProcHealth(proc.name, pid, state, now - for_s if for_s else 0.0, where)
        proc.silent_since = proc.silent_since or now - _ANSWER_S
        process = ptree.read_process(pid)
        if process is None or not process.alive:
            return ProcHealth(proc.name, pid, "gone")
        if process.state in ("T", "t"):
            return ProcHealth(proc.name, pid, "stopped", proc.silent_since)
        state, where = judge_threads(await self._threads(pid))
        return ProcHealth(proc.name, pid, state, proc.silent_since, where)

    async def _ping(self, proc: HostProc) -> Mapping[str, Any] | None:
        """The answer, None where there is none in time."""
        try:
            with anyio.fail_after(_ANSWER_S):
                async with await anyio.connect_unix(proc.control) as stream:
                    await stream.send(b'{"op": "ping"}\n')
                    data = bytearray()
                    while not data.endswith(b"\n") and len(data) < _MOST_BYTES:
                        data += await stream.receive()
            answer = json.loads(data)
        except (OSError, TimeoutError, ValueError, anyio.EndOfStream, anyio.BrokenResourceError):
            return None
        return answer if isinstance(answer, dict) and answer.get("ok") else None

    async def _threads(self, pid: int) -> tuple[ThreadStack, ...]:
        """By py-spy; empty where it cannot tell."""
        if self._py_spy is None:
            return ()
        command = pyspy_command(self._py_spy, pid, native=False, locals=False, stopped=False)
        try:
            async with self._slots:
                done = await self._children.run(command, timeout_s=_PYSPY_S, env=pyspy_environment())
            return parse_pyspy(done.stdout, pid) if done.code == 0 else ()
        except (OSError, ValueError, Unavailable):
            return ()
