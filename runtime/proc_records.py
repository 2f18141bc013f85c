"""What owners, host agents and procs tell each other of procs: plain frozen records.

A proc finds its place in the variable MILKWEED_PROC (`proc_place`). Its control socket speaks lines of JSON,
one request a line, answered in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .records import Exit

__all__ = [
    "LARGE_MODULES",
    "ProcEvent",
    "ProcHealth",
    "ProcOfRun",
    "ProcOutput",
    "ProcSpec",
    "ProcStarted",
    "ProcState",
    "SpawnProcs",
]

# Modules whose import takes so long that procs are to find them imported, where their owner has them.
LARGE_MODULES = ("torch",)

ProcState = Literal["ok", "busy", "blocked", "holds_gil", "stopped", "silent", "gone"]


@dataclass(frozen=True, slots=True)
class ProcSpec:
    """One proc to be. `proc` is unique on its host; `env` is laid over the host's environment of ranks."""

    proc: str
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpawnProcs:
    """Procs that one owner asks of one host.

    `python` is the owner's interpreter, `sys_path` what its modules are found by. With `warm` false they are
    executed, never forked. `run` is the run that the owner belongs to, if it does. `imported` are the
    `LARGE_MODULES` that the owner has imported, with their files.
    """

    owner: str
    procs: tuple[ProcSpec, ...]
    python: str
    cwd: str
    sys_path: tuple[str, ...] = ()
    warm: bool = True
    run: str = ""
    imported: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcStarted:
    """A proc that runs; its sockets listen already. `start` is `warm`, `cold`, or `cold: ` and why.

    `start_time` is in clock ticks since boot: with the pid it names the process for ever.
    """

    proc: str
    pid: int
    start_time: int
    socket: str
    control: str
    start: str


@dataclass(frozen=True, slots=True)
class ProcEvent:
    """The end of a proc, told to its owner; `seq` starts at 1 for each owner and has no gaps.

    `exit.ended_by` says that it was asked for. `tail` is its last output lines, `stacks` a dump that
    faulthandler left there.
    """

    seq: int
    proc: str
    pid: int
    exit: Exit
    at: float
    tail: tuple[str, ...] = ()
    stacks: str = ""


@dataclass(frozen=True, slots=True)
class ProcOutput:
    """What a proc wrote from an offset on; `next` is where to go on, for this `pid`."""

    proc: str
    pid: int
    data: bytes
    next: int


@dataclass(frozen=True, slots=True)
class ProcHealth:
    """How a proc is, as far as its host can see.

    `busy`: its main thread runs an endpoint; `blocked`: its loop has not turned; `holds_gil`: a thread keeps
    all others from running Python; `stopped`: by a signal; `silent`: it does not answer, and nothing tells
    why; `gone`: it has ended. `since` is wall clock, 0 where unknown; `where` an endpoint or the top frame.
    """

    proc: str
    pid: int
    state: ProcState
    since: float = 0.0
    where: str = ""


@dataclass(frozen=True, slots=True)
class ProcOfRun:
    """A proc, and the run that it belongs to; empty where its owner is of none."""

    run: str
    health: ProcHealth
