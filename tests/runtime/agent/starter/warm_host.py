"""A host whose runs start warm, and the same run warm and cold."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent import ptree
from milkweed.runtime.agent.spool import decode_event
from milkweed.runtime.records import Exit, HostEvent, HostPlan
from milkweed.runtime.services.runs import Runs
from tests.runtime.hosts import GuardedHost, open_guarded, plan_of, unique, until

__all__ = ["Outcome", "WarmHost", "differences", "open_warm", "without_numbers"]

READY_S = 90.0
# One that was killed may be asked before its agent has seen its end.
_NOT_YET = ("not ready yet", "changed since", "the starter ended", "the starter is gone")


@dataclass(frozen=True)
class Outcome:
    """What one rank did. In `output`, the run's own id reads RUN."""

    how: str
    exit: Exit
    output: str


@dataclass(frozen=True)
class WarmHost:
    host: GuardedHost
    directory: Path

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def plan(
        self, *commands: Sequence[str], env: Mapping[str, str] | None = None, warm: bool = True
    ) -> HostPlan:
        """One rank a command of Python's arguments."""
        words = [(sys.executable, *command) for command in commands]
        plan = plan_of(self.directory, *words, run=unique("run"), env=dict(env or {}))
        cold = None if warm else ""
        return replace(plan, processes=tuple(replace(one, cold=cold) for one in plan.processes))

    async def start(self, plan: HostPlan) -> str:
        await self.host.runs.call_one(Runs.start, plan)
        return plan.run

    async def run(self, plan: HostPlan) -> tuple[Outcome, ...]:
        """Runs to the end; one outcome a rank."""
        await self.start(plan)
        return await self.finish(plan)

    async def finish(self, plan: HostPlan) -> tuple[Outcome, ...]:
        await until(lambda: self.events(plan.run, "run_ended"), READY_S)
        started = {event.rank: event.detail for event in self.events(plan.run, "rank_started")}
        ended = {event.rank: event.exit for event in self.events(plan.run, "rank_")}
        found = []
        for proc in plan.processes:
            path = self.directory / "runs" / plan.run / f"{proc.label}.out"
            text = path.read_bytes().decode(errors="replace").replace(plan.run, "RUN")
            found.append(Outcome(started.get(proc.rank, ""), ended[proc.rank] or Exit(), text))
        return tuple(found)

    async def pair(self, *command: str, env: Mapping[str, str] | None = None) -> tuple[Outcome, Outcome]:
        """The same command warm and cold."""
        (warm,) = await self.run(self.plan(command, env=env))
        if warm.how != "warm":
            await self.ready(env=env)
            (warm,) = await self.run(self.plan(command, env=env))
        (cold,) = await self.run(self.plan(command, env=env, warm=False))
        assert (warm.how, cold.how) == ("warm", "cold")
        return warm, cold

    async def ready(self, *flags: str, env: Mapping[str, str] | None = None) -> None:
        """Returns once runs with these flags and variables start warm."""
        with anyio.fail_after(READY_S):
            while True:
                (outcome,) = await self.run(self.plan((*flags, "-c", "pass"), env=env))
                if outcome.how == "warm":
                    return
                assert any(why in outcome.how for why in _NOT_YET), outcome
                await anyio.sleep(0.1)

    def events(self, run: str, kind: str) -> list[HostEvent]:
        lines = (self.directory / "spool.jsonl").read_bytes().split(b"\n")[:-1]
        events = [decode_event(line) for line in lines if run.encode() in line]
        return [event for event in events if event.run == run and event.kind.startswith(kind)]

    def starters(self) -> list[int]:
        """Pids of starters that serve."""
        table = ptree.snapshot()
        return [
            pid
            for pid, process in table.items()
            if process.parent == self.host.agent
            and process.alive
            and "MILKWEED_STARTER" in ptree.read_environ(pid)
        ]


@asynccontextmanager
async def open_warm(
    directory: Path, modules: str = "torch", files: Mapping[str, str] | None = None
) -> AsyncIterator[WarmHost]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILKWEED_WARM_MODULES", modules)
        async with open_guarded(directory) as host:
            warm = WarmHost(host, directory)
            warm.write(files or {})
            yield warm


def differences(warm: Outcome, cold: Outcome) -> list[tuple[str, str]]:
    """The lines in which two outputs differ."""
    pairs = zip_longest(warm.output.splitlines(), cold.output.splitlines(), fillvalue="")
    return [(one, other) for one, other in pairs if one != other]


def without_numbers(text: str) -> str:
    """The text with pids, addresses and times made alike."""
    return re.sub(r"0x[0-9a-f]+|\d{3,}", "N", text)
