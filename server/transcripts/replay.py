"""Playing a transcript against a live server, in a copy of its workspace, and comparing what comes back."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread

from ...runtime.errors import MilkweedError, NotFound
from .answers import Answer
from .compare import Difference, compare, unmet
from .format import EditStep, ExpectStep, SayStep, ShellStep, Step, ToolStep, Transcript
from .naming import Names
from .workspace import apply_edit

__all__ = ["CallTool", "Played", "Replay", "copy_workspace"]

_SHELL_S = 600.0
_SHELL_OUTPUT = 4000
_MORE_WAITS = 12
_WAIT_S = 44
_GOES_ON = ("queued", "running")


class CallTool(Protocol):
    """Asks the live server."""

    def __call__(self, name: str, arguments: dict[str, Any], /) -> Awaitable[Answer]: ...


@dataclass(frozen=True, slots=True)
class Played:
    """A step that was played: `asked` are the arguments that were sent, `differences` and `problem` what is
    not as it was. `problem` names what could not be done at all, or an expectation that failed; `note` says how
    the replay is other than the session was."""

    number: int
    step: Step
    asked: dict[str, Any] = field(default_factory=dict)
    answer: Answer | None = None
    differences: tuple[Difference, ...] = ()
    problem: str = ""
    note: str = ""
    duration_s: float = 0.0

    @property
    def is_as_recorded(self) -> bool:
        return not self.differences and not self.problem


class Replay:
    """One pass over a transcript. `play` yields each step once it was played; a step that could not be played
    at all, or an expectation that failed, is the last one."""

    def __init__(
        self,
        transcript: Transcript,
        workspace: Path,
        call: CallTool,
        *,
        names: Mapping[str, str] | None = None,
        scheduler: str = "",
        not_isolated: str = "",
        before: Callable[[int, Step], Awaitable[None]] | None = None,
    ) -> None:
        self._transcript = transcript
        self._workspace = workspace
        self._call = call
        self._scheduler = scheduler
        self._not_isolated = not_isolated
        self._before = before
        self._names = Names({"workspace": str(workspace), "python": sys.executable, **(names or {})})
        self._last = Answer()
        self._allocated: list[str] = []

    async def play(self) -> AsyncIterator[Played]:
        for number, step in enumerate(self._transcript.steps, 1):
            if self._before is not None:
                await self._before(number, step)
            started = time.monotonic()
            played = await self._play(number, step)
            yield replace(played, duration_s=round(time.monotonic() - started, 2))
            if played.problem:
                return

    async def clean_up(self) -> list[str]:
        """Releases what was allocated and is still there; the ids."""
        released = []
        for mesh in self._allocated:
            answer = await self._call("release_mesh", {"mesh": mesh})
            plan = Names()
            plan.find(answer.text)
            if token := plan.value("plan1"):  # it would lose files that only this session knows
                answer = await self._call("release_mesh", {"mesh": mesh, "confirm": token})
            if not answer.is_error:
                released.append(mesh)
        return released

    async def _play(self, number: int, step: Step) -> Played:
        if isinstance(step, ToolStep):
            return await self._tool(number, step)
        if isinstance(step, EditStep):
            return await self._edit(number, step)
        if isinstance(step, ShellStep):
            return await self._shell(number, step)
        if isinstance(step, ExpectStep):
            return Played(number, step, problem=unmet(self._concrete(step), self._last))
        assert isinstance(step, SayStep)
        return Played(number, step)

    async def _tool(self, number: int, step: ToolStep) -> Played:
        missing = self._names.unbound(step.arguments)
        if missing:
            words = f"it asks with ${{{missing[0]}}}, which no earlier answer told"
            return Played(number, step, problem=words)
        asked = self._names.concrete(step.arguments)
        note = self._adapt(asked) if step.name == "allocate_mesh" else ""
        try:
            answer = await self._settled(step, asked, await self._call(step.name, asked))
        except MilkweedError as error:
            return Played(number, step, asked, problem=str(error))
        told = answer.text if answer.result is None else answer.result
        self._names.learn(step.text if step.result is None else step.result, told)
        self._note(step, answer)
        self._last = answer
        known = step.model_copy(
            update={"text": self._names.concrete(step.text), "result": self._names.concrete(step.result)}
        )
        return Played(number, step, asked, answer, compare(known, answer), note=note)

    async def _settled(self, step: ToolStep, asked: dict[str, Any], answer: Answer) -> Answer:
        """Where the recorded answer was of a run that is further, a slower machine is given time."""
        recorded = step.result or {}
        for _ in range(_MORE_WAITS):
            result = answer.result or {}
            if str(result.get("state")) not in _GOES_ON or "run" not in result:
                break
            if recorded.get("matched") is True and result.get("matched") is False:
                answer = await self._call(step.name, asked)
            elif recorded.get("health") == "hung" and result.get("health") != "hung":
                answer = await self._wait(str(result["run"]), until="hang")
            elif "state" in recorded and str(recorded["state"]) not in _GOES_ON:
                answer = await self._wait(str(result["run"]), until="end")
            else:
                break
        return answer

    async def _wait(self, run: str, until: str) -> Answer:
        return await self._call("wait_for_run", {"run": run, "until": until, "timeout_s": _WAIT_S})

    def _adapt(self, asked: dict[str, Any]) -> str:
        """A mesh for where the replay is; what is other than was recorded, in words."""
        notes = []
        if self._scheduler and asked.get("scheduler", "local") != self._scheduler:
            asked["scheduler"] = self._scheduler
            notes.append(f"on {self._scheduler}")
        options = dict(asked.get("options") or {})
        if options.pop("isolation", "none") != "none" and (self._not_isolated or self._scheduler):
            asked["options"] = options
            notes.append(f"on plain hosts: {self._not_isolated or 'they are machines of their own'}")
        return "; ".join(notes)

    def _note(self, step: ToolStep, answer: Answer) -> None:
        mesh = str((answer.result or {}).get("mesh", ""))
        if step.name == "allocate_mesh" and mesh and mesh not in self._allocated:
            self._allocated.append(mesh)
        state = str((answer.result or {}).get("state", ""))
        if step.name == "release_mesh" and mesh in self._allocated and state == "released":
            self._allocated.remove(mesh)

    def _concrete(self, step: ExpectStep) -> ExpectStep:
        return ExpectStep.model_validate(self._names.concrete(step.model_dump()))

    async def _edit(self, number: int, step: EditStep) -> Played:
        try:
            await anyio.to_thread.run_sync(apply_edit, self._workspace, step)
        except (OSError, ValueError) as error:
            return Played(number, step, problem=f"{step.file} cannot be edited: {error}")
        return Played(number, step)

    async def _shell(self, number: int, step: ShellStep) -> Played:
        command = self._names.concrete(step.command)
        try:
            with anyio.fail_after(_SHELL_S):
                done = await anyio.run_process(
                    ["sh", "-c", command],
                    cwd=self._workspace,
                    stderr=subprocess.STDOUT,
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
        except TimeoutError:
            return Played(number, step, problem=f"{command!r} has not ended within {_SHELL_S:g} s")
        output = done.stdout.decode("utf-8", "replace")[-_SHELL_OUTPUT:]
        answer = Answer(output, None, done.returncode != 0)
        differences = () if done.returncode == step.exit else (Difference("exit", step.exit, done.returncode),)
        self._last = answer
        return Played(number, step, {"command": command}, answer, differences)


def copy_workspace(file: Path, transcript: Transcript, target: Path) -> None:
    """The workspace as it was at first; an empty one where the transcript has none.

    Raises:
        NotFound: workspace_missing.
    """
    target.mkdir(parents=True, exist_ok=True)
    name = transcript.header.workspace
    if not name:
        return
    source = file.parent / name
    if not source.resolve().is_relative_to(file.parent.resolve()) or not source.is_dir():
        raise NotFound(
            "workspace_missing",
            f"{file.name} names {name!r} as its workspace, and there is no such folder beside it",
            "Copy the folder too, or correct the header.",
        )
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
