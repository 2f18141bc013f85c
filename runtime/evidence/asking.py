"""Asking the thread inside a rank (`agent/hook/milkweed_flight.py`) for its flight recorder."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from ..agent.door import ask, find_door
from .flight_recorder import parse_flight
from .records import Flight

__all__ = ["ask_flight", "kept_flight"]

_MOST_BYTES = 64 * 1024 * 1024


async def ask_flight(run_directory: Path, pid: int, timeout_s: float) -> Flight:
    """The recorder of a process that lives; without a `problem` and entries where it has no process group."""
    door = find_door(run_directory, pid)
    if door is None:
        return Flight()
    answer = run_directory / f"flight.{pid}.{secrets.token_hex(4)}"
    try:
        if await ask(door, answer.name, answer, timeout_s):
            return await anyio.to_thread.run_sync(_read, answer, False)
        why = f"no answer from its flight recorder within {timeout_s:.1f} s: is the GIL held?"
        return Flight(problem=why)
    except OSError as error:
        return Flight(problem=f"its flight recorder cannot be asked: {error.strerror}")
    finally:
        with suppress(OSError):
            answer.unlink()


def kept_flight(run_directory: Path, label: str) -> Flight:
    """What a rank that failed has left of its recorder."""
    files = sorted(run_directory.glob(f"{label}.flight.*"), key=lambda path: path.name)
    return _read(files[0], True) if files else Flight()


def _read(path: Path, kept: bool) -> Flight:
    try:
        with path.open("rb") as file:
            return parse_flight(file.read(_MOST_BYTES), kept=kept)
    except (OSError, ValueError) as error:
        return Flight(problem=f"its flight recorder's dump cannot be read: {error}")
