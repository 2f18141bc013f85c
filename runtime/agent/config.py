"""What a host agent is told at its start; written by the engine as `config.json` in the host's directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..watching.policy import WatchPolicy

__all__ = ["AgentConfig"]


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Without a `name` the scheduler tells it in the environment (`main.told_place`)."""

    mesh: str
    host: int
    name: str
    address: str
    directory: str
    socket: str
    workspace: str
    lease_s: float
    secret_file: str = ""
    """What the processes of its mesh show each other that they know (`memory/here.py`); empty: nothing."""
    life_fd: int | None = None
    """A descriptor whose end is the host's end: its other side is held by whom the host is for."""
    watch: WatchPolicy = field(default_factory=WatchPolicy)
