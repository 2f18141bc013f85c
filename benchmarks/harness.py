"""What the groups share: a Milkweed of their own, timed calls, and lines with a target and a verdict."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import anyio
import psutil
from mcp import Client, StdioServerParameters

from milkweed.server.demo import leftovers

__all__ = [
    "GIB",
    "MIB",
    "Answer",
    "Lab",
    "Line",
    "Role",
    "empty_server",
    "machine",
    "measure",
    "open_lab",
    "poll",
    "ratio",
    "stopwatch",
    "worst",
]

Verdict = Literal["met", "missed", ""]
Role = Literal["server", "keeper", "guard", "agent"]
BENCHMARKS = Path(__file__).resolve().parent
WORKLOADS = BENCHMARKS / "workloads"
MIB = 1024 * 1024
GIB = 1024 * MIB
_CLEAN_UP_S = 20.0


@dataclass(frozen=True, slots=True)
class Line:
    """One measured quantity. `target` is the most that is allowed; None where there is none.

    `values` are the samples, `measured` is their median unless the line says otherwise.
    """

    group: str
    name: str
    unit: str
    measured: float
    values: tuple[float, ...]
    target: float | None = None
    note: str = ""

    @property
    def spread(self) -> tuple[float, float]:
        """The first and the third quartile, of few samples the least and the most."""
        if len(self.values) < 4:
            return min(self.values), max(self.values)
        low, _, high = statistics.quantiles(self.values, n=4)
        return low, high

    @property
    def verdict(self) -> Verdict:
        if self.target is None:
            return ""
        return "met" if self.measured <= self.target else "missed"

    def as_json(self) -> dict[str, Any]:
        low, high = self.spread
        return {**asdict(self), "spread": [low, high], "runs": len(self.values), "verdict": self.verdict}


def measure(
    group: str, name: str, unit: str, values: Sequence[float], target: float | None = None, note: str = ""
) -> Line:
    """A line with the median of the values."""
    return Line(group, name, unit, statistics.median(values), tuple(values), target, note)


def worst(group: str, name: str, unit: str, values: Sequence[float], target: float, note: str = "") -> Line:
    """A line with the largest of the values: for a limit that must always hold."""
    return Line(group, name, unit, max(values), tuple(values), target, note)


def ratio(
    group: str,
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    target: float | None,
    note: str = "",
) -> Line:
    """The ratio of the medians of paired samples; the spread is that of the pairs' ratios."""
    pairs = tuple(our / their for our, their in zip(ours, theirs, strict=True))
    return Line(group, name, "x", statistics.median(ours) / statistics.median(theirs), pairs, target, note)


@dataclass(frozen=True, slots=True)
class Answer:
    """`text` is what a model is shown: the structured content where there is one."""

    text: str
    fields: Mapping[str, Any]
    elapsed_s: float

    @property
    def kilobytes(self) -> float:
        return len(self.text.encode()) / 1024


@dataclass(frozen=True, slots=True)
class Lab:
    """A client of a `milkweed serve` with state, sockets and workspace of its own below `root`."""

    root: Path
    client: Client

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        """
        Raises:
            RuntimeError: the tool answered an error.
        """
        started = time.perf_counter()
        result = await self.client.call_tool(tool, arguments)
        elapsed_s = time.perf_counter() - started
        fields = result.structured_content or {}
        texts = "\n".join(getattr(part, "text", "") for part in result.content)
        if result.is_error:
            raise RuntimeError(f"{tool}: {texts}")
        return Answer(json.dumps(fields, ensure_ascii=False) if fields else texts, fields, elapsed_s)

    @asynccontextmanager
    async def mesh(self, name: str, hosts: int, procs: int) -> AsyncIterator[str]:
        """A mesh for the length of a block."""
        answer = await self.call(
            "allocate_mesh", name=name, hosts=hosts, procs_per_host=procs, workspace=str(self.workspace)
        )
        mesh = answer.fields["mesh"]
        try:
            yield mesh
        finally:
            await self.call("release_mesh", mesh=mesh)

    async def start(self, mesh: str, command: Sequence[str], **arguments: Any) -> str:
        """Starts a run and does not wait for it; returns its id."""
        answer = await self.call("run_on_mesh", mesh=mesh, command=list(command), wait_s=0, **arguments)
        return str(answer.fields["run"])

    async def printed(self, run: str, pattern: str, timeout_s: float) -> None:
        """Returns when a line of the run's output matches.

        Raises:
            TimeoutError: none did in time, or the run ended before.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            left = min(40.0, deadline - time.monotonic())
            answer = await self.call("wait_for_run", run=run, pattern=pattern, timeout_s=max(0.0, left))
            if answer.fields.get("matched"):
                return
            if answer.fields["state"] != "running":
                break
        raise TimeoutError(f"{run} did not print {pattern!r}: {answer.text}")

    def processes(self) -> dict[Role, list[psutil.Process]]:
        """Our own processes (not the ranks), by what they are."""
        found: dict[Role, list[psutil.Process]] = {"server": [], "keeper": [], "guard": [], "agent": []}
        for pid in leftovers.find(self.root):
            try:
                process = psutil.Process(pid)
                role = _role(process.cmdline(), process.environ())
            except psutil.Error:
                continue
            if role is not None:
                found[role].append(process)
        return found

    def workload(self, name: str) -> str:
        """Copies a script of the benchmarks into the workspace; returns its name there."""
        shutil.copy(WORKLOADS / name, self.workspace)
        return name


def _role(command: Sequence[str], environ: Mapping[str, str]) -> Role | None:
    line = " ".join(command)
    if "MILKWEED_RUN" in environ:
        return None
    marks: tuple[tuple[str, Role], ...] = (
        ("agent/guard.py", "guard"),
        ("milkweed.runtime.agent", "agent"),
        ("milkweed.runtime.keeper", "keeper"),
        (" serve", "server"),
    )
    return next((role for mark, role in marks if mark in line), None)


@asynccontextmanager
async def open_lab(**env: str) -> AsyncIterator[Lab]:
    """Nothing of it is left at the end of the block, whatever happens in it; `env` is the server's own."""
    root = Path(tempfile.mkdtemp(prefix="milkweed-bench-"))
    (root / "workspace").mkdir()
    try:
        async with Client(serve_parameters(root, env)) as client:
            yield Lab(root, client)
    finally:
        with anyio.CancelScope(shield=True):
            await leftovers.end(root, _CLEAN_UP_S)
        shutil.rmtree(root, ignore_errors=True)


def serve_parameters(root: Path, env: Mapping[str, str] = MappingProxyType({})) -> StdioServerParameters:
    """`milkweed serve` of this installation, with everything it keeps below `root`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MILKWEED_")}
    places = {"MILKWEED_STATE_DIR": str(root / "state"), "MILKWEED_RUNTIME_DIR": str(root / "run")}
    command = str(Path(sys.executable).with_name("milkweed"))
    quiet = {"MILKWEED_WARM_MODULES": ""}  # starters would import torch beside whatever is measured
    words = {**ours, **quiet, **places, **env}
    return StdioServerParameters(command=command, args=["serve"], env=words, cwd=root)


def empty_server() -> StdioServerParameters:
    """The SDK with one empty tool, under the same interpreter."""
    return StdioServerParameters(
        command=sys.executable, args=[str(BENCHMARKS / "empty_server.py")], env=dict(os.environ)
    )


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpus": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_1_min": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


async def stopwatch(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds that the work took."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def poll(
    holds: Callable[[], bool] | Callable[[], Awaitable[bool]], *, timeout_s: float, every_s: float = 0.005
) -> float:
    """Seconds until the condition holds.

    Raises:
        TimeoutError: it did not in time.
    """
    started = time.perf_counter()
    with anyio.fail_after(timeout_s):
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return time.perf_counter() - started
            await anyio.sleep(every_s)
