"""Where the time of the ranks on this host goes: sampled by py-spy, which stops them for moments only."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from ..actor import Actor, endpoint
from ..agent import ptree
from ..agent.context import HostContext
from ..errors import Unavailable
from ..profiling.asking import ask_torch
from ..profiling.records import ProfileRequest, RankProfile, TorchProfile
from .pyspy import explain_failure, pyspy_command, record_command
from .python_processes import Target, find_targets
from .stacks import RunProcesses, find_pyspy, ptrace_mend, pyspy_environment

__all__ = ["PROFILE_SPARE_S", "Profiling"]

# What a call may take beyond the seconds that it samples for: to find the processes, to read their symbols.
PROFILE_SPARE_S = 8.0
_PYSPY_SPARE_S = 7.0
_FIND_S = 2.0
_MOST_BYTES = 8 * 1024 * 1024
_UNCLEAR = "No python processes found"
_ENDED = "the process has ended"
_ENDED_MEANWHILE = "it ended while it was sampled"


class Profiling(Actor):
    """`py_spy` is the path of its binary; by default it is looked for."""

    def __init__(self, context: HostContext, runs: RunProcesses, *, py_spy: str | None = None) -> None:
        self._context = context
        self._runs = runs
        self._py_spy = py_spy or find_pyspy()

    @endpoint
    async def record(
        self, run: str, ranks: tuple[int, ...], request: ProfileRequest
    ) -> tuple[RankProfile, ...]:
        """Profiles of these ranks of the run, and of the Python processes below them, all at once.

        It ends within `request.seconds` and `PROFILE_SPARE_S`. A rank that cannot be sampled has `error` set.

        Raises:
            NotFound: run_not_found.
        """
        deadline = time.monotonic() + request.seconds + PROFILE_SPARE_S
        found = {rank: RankProfile(rank, self._context.host, 0, error=_ENDED) for rank in ranks}

        async def fill(target: Target) -> None:
            found[target.rank] = await self._profile(target, run, request)

        processes = await self._runs.processes(run, ranks)
        for rank, pid in processes:
            late = "it was not sampled in time: its host is too busy, or /proc does not answer"
            found[rank] = RankProfile(rank, self._context.host, pid, error=late)
        with anyio.move_on_after(deadline - time.monotonic()):
            targets: tuple[Target, ...] = ()
            with anyio.move_on_after(_FIND_S):
                targets = await anyio.to_thread.run_sync(find_targets, processes, abandon_on_cancel=True)
            async with anyio.create_task_group() as tasks:
                for target in targets:
                    if target.child_of is None:
                        tasks.start_soon(fill, target)
        return tuple(found.values())

    async def _profile(self, target: Target, run: str, request: ProfileRequest) -> RankProfile:
        base = RankProfile(
            target.rank,
            self._context.host,
            target.process.pid,
            seconds=request.seconds,
            rate=request.rate,
            note=target.note,
        )
        state = _state_of(target)
        if state is None:
            return replace(base, error=_ENDED)
        if state in ("T", "t"):
            return replace(base, error="it is stopped (SIGSTOP), so it spends no time")
        started = time.monotonic()
        sampled, traced = [base], list[TorchProfile]()

        async def sample() -> None:
            sampled.append(await self._sample(base, request))
            if not sampled[-1].error and _state_of(target) is None:
                lived = min(request.seconds, time.monotonic() - started)
                sampled[-1] = replace(
                    sampled[-1], seconds=lived, note=_join(_ENDED_MEANWHILE, sampled[-1].note)
                )

        async def trace() -> None:
            directory = self._context.run_directory(run)
            timeout_s = request.seconds + _PYSPY_SPARE_S
            traced.append(await ask_torch(directory, base.pid, request.seconds, timeout_s))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sample)
            if request.torch:
                tasks.start_soon(trace)
        return replace(sampled[-1], torch=traced[0] if traced else None)

    async def _sample(self, base: RankProfile, request: ProfileRequest) -> RankProfile:
        if self._py_spy is None:
            return replace(base, error="py-spy is not installed (mend: pip install py-spy)")
        file = self._context.temporary / f"profile.{base.pid}.{time.monotonic_ns()}"
        try:
            done = await self._context.children.run(
                record_command(self._py_spy, base.pid, str(file), request),
                timeout_s=request.seconds + _PYSPY_SPARE_S,
                env=pyspy_environment(),
            )
            words = done.stderr.decode("utf-8", "replace")
            if done.code != 0:
                if _UNCLEAR in words:
                    words = await self._why(self._py_spy, base.pid)
                return replace(base, error=_explain(words, base.pid))
            folded = await anyio.to_thread.run_sync(_read, file)
            return replace(base, folded=folded, note=_join(base.note, _note(words, len(folded))))
        except Unavailable:
            return replace(base, error=f"py-spy did not end within {_PYSPY_SPARE_S:g} s after its time")
        except OSError as error:
            return replace(base, error=f"py-spy failed: {error}")
        finally:
            file.unlink(missing_ok=True)

    async def _why(self, binary: str, pid: int) -> str:
        """A record says of a process that may not be read what it says of one that is no Python."""
        command = pyspy_command(binary, pid, native=False, locals=False, stopped=False)
        done = await self._context.children.run(command, timeout_s=_FIND_S, env=pyspy_environment())
        return done.stderr.decode("utf-8", "replace")


def _state_of(target: Target) -> str | None:
    process = ptree.read_process(target.process.pid)
    if process is None or process.start_time != target.process.start_time or not process.alive:
        return None
    return process.state


def _explain(words: str, pid: int) -> str:
    problem, text = explain_failure(words)
    if problem == "denied":
        return f"ptrace denied; mend: {ptrace_mend(pid)}"
    if problem == "gone" or (process := ptree.read_process(pid)) is None or not process.alive:
        return "the process ended before it was sampled"
    if problem == "not_python":
        return "not a Python process"
    return f"py-spy failed: {text}"


def _read(file: Path) -> str:
    """As much as fits, in whole lines."""
    with file.open("rb") as stream:
        data = stream.read(_MOST_BYTES)
    return data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")


def _note(words: str, size: int) -> str:
    said = ["py-spy could not keep up, so shares are rough"] if "behind in sampling" in words else []
    said += ["only its first stacks were kept"] if size > _MOST_BYTES - 4096 else []
    return _join(*said)


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))
