"""Stacks of every Python process of a run on this host: by py-spy, or from inside where ptrace is denied."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent import hook_protocol, ptree
from ..agent.context import HostContext
from ..errors import Unavailable
from ..records import ProcessStacks, ThreadStack
from .asking_inside import ask_inside
from .pyspy import explain_failure, parse_faulthandler, parse_pyspy, pyspy_command
from .python_processes import Target, find_targets

__all__ = ["RunProcesses", "Stacks", "find_pyspy", "ptrace_mend", "pyspy_environment"]

# py-spy gets this share of the time, so that some is left to ask the process itself.
_PYSPY_SHARE = 0.6
_MAX_OUTPUT = 16 * 1024 * 1024
_POLL_S = 0.01
_TRIES = 3
_STOPPED = ("T", "t")
_STOPPED_LOOKS = 8
_SETTLED_S = 0.06
_MAX_STACK_BYTES = 1024 * 1024
_NONE: Mapping[int, Any] = MappingProxyType({})


class LivingProc(Protocol):
    """What is needed of a proc."""

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def control(self) -> Path: ...


class RunProcesses(Protocol):
    """What is needed of the Runs service."""

    async def processes(self, run: str, ranks: tuple[int, ...] | None) -> tuple[tuple[int, int], ...]: ...


class HostProcs(Protocol):
    """What is needed of the Procs service."""

    async def find(self, owner: str | None, procs: tuple[str, ...] | None) -> tuple[tuple[int, int], ...]: ...
    def of_run(self, run: str) -> tuple[LivingProc, ...]: ...


class Stacks(Actor):
    """`py_spy` is the path of its binary; by default it is looked for."""

    def __init__(
        self, context: HostContext, runs: RunProcesses, procs: HostProcs, *, py_spy: str | None = None
    ) -> None:
        self._context = context
        self._runs = runs
        self._procs = procs
        self._py_spy = py_spy or find_pyspy()
        self._slots = anyio.CapacityLimiter(2 * (os.cpu_count() or 1))

    @endpoint
    async def dump(
        self,
        run: str,
        ranks: tuple[int, ...] | None,
        native: bool = False,
        locals: bool = False,  # noqa: A002
        timeout_s: float = 10.0,
        controls: Mapping[int, str] = _NONE,
    ) -> tuple[ProcessStacks, ...]:
        """Stacks of the run's live ranks here and of their Python children, in rank order.

        A process that cannot be dumped, or not within `timeout_s`, has `error` set; the others' stacks are
        given all the same.

        Args:
            controls: the control sockets of its controllers, by their pid.

        Raises:
            Unavailable: deadline_exceeded, when not even the processes could be found in time.
        """
        plan = _Plan(
            self._context.run_directory(run), native, locals, time.monotonic() + timeout_s, timeout_s
        )
        sockets = {pid: Path(control) for pid, control in controls.items()}
        return await self._dump(await self._runs.processes(run, ranks), plan, sockets)

    @endpoint
    async def dump_procs(
        self,
        owner: str | None,
        procs: tuple[str, ...] | None,
        native: bool = False,
        locals: bool = False,  # noqa: A002
        timeout_s: float = 10.0,
    ) -> tuple[ProcessStacks, ...]:
        """As `dump`, of an owner's procs (both None: of all procs); `rank` is the place in the order asked.

        Raises:
            Unavailable: deadline_exceeded, when not even the processes could be found in time.
        """
        plan = _Plan(self._context.procs_directory, native, locals, time.monotonic() + timeout_s, timeout_s)
        return await self._dump(await self._procs.find(owner, procs), plan)

    @endpoint
    async def dump_procs_of_run(
        self,
        run: str,
        native: bool = False,
        locals: bool = False,  # noqa: A002
        timeout_s: float = 10.0,
    ) -> tuple[ProcessStacks, ...]:
        """As `dump`, of the procs here that belong to the run, whoever in it spawned them.

        `procs` and `rank` tell which each is, `inside` what it told itself.

        Raises:
            Unavailable: deadline_exceeded, when not even the processes could be found in time.
        """
        plan = _Plan(self._context.procs_directory, native, locals, time.monotonic() + timeout_s, timeout_s)
        procs = self._procs.of_run(run)
        sockets = {proc.pid: proc.control for proc in procs}
        found = await self._dump(tuple((at, proc.pid) for at, proc in enumerate(procs)), plan, sockets)
        return tuple(_named(one, procs[one.rank].name) for one in found)

    async def _dump(
        self, processes: tuple[tuple[int, int], ...], plan: _Plan, controls: Mapping[int, Path] = _NONE
    ) -> tuple[ProcessStacks, ...]:
        targets = await _find_targets(processes, plan.left_s())
        late = "not dumped in time; ask for fewer ranks, or again with a longer time"
        results = [_result(self._context.host, target, error=late) for target in targets]

        async def fill(at: int, target: Target) -> None:
            control = controls.get(target.process.pid)
            inside = None if control is None else await ask_inside(control)
            async with self._slots:
                results[at] = replace(await self._dump_one(target, plan), inside=inside)

        with anyio.move_on_after(plan.left_s()):
            async with anyio.create_task_group() as tasks:
                for at, target in enumerate(targets):
                    tasks.start_soon(fill, at, target)
        return tuple(results)

    async def _dump_one(self, target: Target, plan: _Plan) -> ProcessStacks:
        process = await _read_settled(target.process.pid)
        if process is None or process.start_time != target.process.start_time or not process.alive:
            return _result(self._context.host, target, error="the process has ended")
        target = replace(target, process=process)
        base = _result(self._context.host, target)
        if self._py_spy is None:
            reason = "py-spy is not installed (mend: pip install py-spy)"
        else:
            answer, reason = await self._ask_pyspy(self._py_spy, base, plan)
            if answer is not None:
                return answer
        return await _ask_inside(base, process, plan, reason)

    async def _ask_pyspy(
        self, binary: str, base: ProcessStacks, plan: _Plan
    ) -> tuple[ProcessStacks | None, str]:
        """The dump, or None and why it is worth asking the process itself."""
        stopped = base.os_state in _STOPPED
        command = pyspy_command(binary, base.pid, native=plan.native, locals=plan.locals, stopped=stopped)
        text, problem = "", "other"
        for attempt in range(_TRIES):
            if attempt:
                await anyio.sleep(attempt * _POLL_S)
            try:
                done = await self._context.children.run(
                    command, timeout_s=plan.pyspy_s(), env=pyspy_environment(), max_output=_MAX_OUTPUT
                )
                if done.code == 0:
                    threads = _of_the_user(parse_pyspy(done.stdout, base.pid))
                    note = "stopped, so without native frames" if stopped and plan.native else ""
                    return replace(base, threads=threads, note=_join(base.note, note)), ""
            except Unavailable:
                return None, f"py-spy did not answer within {plan.timeout_s * _PYSPY_SHARE:.1f} s"
            except (OSError, ValueError) as error:
                return None, f"py-spy failed: {error}"
            problem, text = explain_failure(done.stderr.decode("utf-8", "replace"))
            if problem == "gone" or ptree.read_process(base.pid) is None:
                return replace(base, error="the process ended while it was dumped"), ""
            if problem == "not_python":
                if hook_protocol.can_dump(base.pid):  # py-spy says so of a stack of more than 4,096 frames
                    return None, "py-spy cannot read it: is its stack very deep?"
                return replace(base, error=f"not a Python process: {base.command[:80]}"), ""
            # Once more: the stack may have changed meanwhile, or another look at it have been under way.
        if problem == "denied":
            return None, f"ptrace denied; mend: {ptrace_mend(base.pid)}"
        return None, f"py-spy failed: {text}"


@dataclass(frozen=True, slots=True)
class _Plan:
    run_directory: Path
    native: bool
    locals: bool
    deadline: float
    timeout_s: float

    def left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def pyspy_s(self) -> float:
        return max(0.05, self.left_s() - (1 - _PYSPY_SHARE) * self.timeout_s)


async def _read_settled(pid: int) -> ptree.Process | None:
    """Not as it is in the moment that another look stops it for."""
    process = ptree.read_process(pid)
    for _ in range(_STOPPED_LOOKS):
        if process is None or process.state not in _STOPPED:
            break
        await anyio.sleep(_POLL_S)
        process = ptree.read_process(pid)
    if process is not None and process.state in _STOPPED and _is_sampled(pid):
        return replace(process, state="S")
    return process


def _is_sampled(pid: int) -> bool:
    try:
        return ptree.is_sampled(Path(f"/proc/{pid}/status").read_text(errors="replace"))
    except OSError:
        return False


async def _find_targets(processes: tuple[tuple[int, int], ...], timeout_s: float) -> tuple[Target, ...]:
    """Reading /proc can hang on a process that is stuck in the kernel, so it has a thread and a deadline."""
    try:
        with anyio.fail_after(timeout_s):
            return await anyio.to_thread.run_sync(find_targets, processes, abandon_on_cancel=True)
    except TimeoutError:
        raise Unavailable(
            "deadline_exceeded",
            f"/proc told nothing of these processes within {timeout_s:g} s: one may be stuck in the kernel",
            "Ask for single ranks to find it.",
        ) from None


async def _ask_inside(base: ProcessStacks, process: ptree.Process, plan: _Plan, reason: str) -> ProcessStacks:
    """Lets the process dump itself, if it has said that it can; the signal would kill one that cannot."""
    file = hook_protocol.find_stack_file(plan.run_directory, process.pid)
    if file is None or not hook_protocol.can_dump(process.pid):
        return replace(base, error=f"{reason}; and it has no hook to dump itself")
    if process.state in _STOPPED:
        return replace(base, error=f"{reason}; and it is stopped, so it cannot dump itself")
    start = file.stat().st_size
    if not ptree.send_signal(process, hook_protocol.DUMP_SIGNAL):
        return replace(base, error="the process ended while it was dumped")
    text, complete = await _read_dump(file, start, process, plan)
    threads = parse_faulthandler(text)
    if not threads:
        return replace(base, error=f"{reason}; and it did not dump itself in time (state {process.state})")
    if not complete:
        reason = _join(reason, "the dump may be cut short")
    threads = _of_the_user(threads)
    return replace(base, threads=threads, source="in-process", note=_join(base.note, reason))


async def _read_dump(file: Path, start: int, process: ptree.Process, plan: _Plan) -> tuple[str, bool]:
    """What is appended to the file, once it has stopped growing; and whether it had."""
    size, settled_at = start, 0.0
    while plan.left_s() > 2 * _POLL_S and ptree.read_process(process.pid) is not None:
        now, grown = time.monotonic(), file.stat().st_size
        if grown != size:
            size, settled_at = grown, now + _SETTLED_S
        elif size > start and now >= settled_at:
            return _tail(file, start), True
        await anyio.sleep(_POLL_S)
    return _tail(file, start), False


def _tail(file: Path, start: int) -> str:
    with file.open("rb") as stream:
        stream.seek(start)
        return stream.read(_MAX_STACK_BYTES).decode("utf-8", "replace")


def _of_the_user(threads: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
    """Without the one that waits in each rank to be asked for its collectives, and without what the hook put
    between the user's frames and torch's."""
    ours = f"{hook_protocol.HOOK_DIRECTORY}{os.sep}"
    return tuple(
        replace(thread, frames=tuple(frame for frame in thread.frames if not frame.file.startswith(ours)))
        for thread in threads
        if not (thread.frames and thread.frames[-1].file.startswith(ours))
    )


def _named(process: ProcessStacks, proc: str) -> ProcessStacks:
    """With its mesh of procs and its rank there: a proc is called `workers-1f2a3c-7`."""
    procs, _, rank = proc.rpartition("-")
    return replace(process, procs=procs or proc, rank=int(rank) if procs and rank.isdecimal() else 0)


def _result(host: int, target: Target, error: str = "") -> ProcessStacks:
    return ProcessStacks(
        rank=target.rank,
        host=host,
        pid=target.process.pid,
        child_of=target.child_of,
        command=target.command,
        os_state=target.process.state,
        error=error,
        note=target.note,
    )


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def pyspy_environment() -> dict[str, str]:
    """py-spy needs nothing of ours, and its own backtraces help nobody."""
    return {"PATH": os.environ.get("PATH", os.defpath), "RUST_BACKTRACE": "0", "LC_ALL": "C.UTF-8"}


def find_pyspy() -> str | None:
    """The binary beside this interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def ptrace_mend(pid: int, proc: Path = Path("/proc")) -> str:
    """The command that would let this user read the stacks of a process, as far as the machine tells."""
    mends: list[str] = []
    try:
        owner = (proc / str(pid)).stat().st_uid
        if owner not in (0, os.geteuid()):
            mends.append(f"run Milkweed as the same user (uid {owner})")
    except OSError:
        pass
    try:
        scope = int((proc / "sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    if scope >= 3:
        mends.append("boot with kernel.yama.ptrace_scope=0 (3 cannot be changed while running)")
    elif scope >= 1:
        mends.append("sudo sysctl kernel.yama.ptrace_scope=0")
    mends.append("in a container: start it with --cap-add SYS_PTRACE")
    return ", or ".join(mends)
