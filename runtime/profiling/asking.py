"""Asking the thread inside a rank (`agent/hook/milkweed_flight.py`) to let torch's profiler record."""

from __future__ import annotations

import gzip
import secrets
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from ..agent.door import ask, find_door
from .records import TorchProfile

__all__ = ["ask_torch"]

_MOST_BYTES = 96 * 1024 * 1024
_COMPRESSION = 3


async def ask_torch(run_directory: Path, pid: int, seconds: float, timeout_s: float) -> TorchProfile:
    """A trace of the process over the next `seconds`, if it comes within `timeout_s`."""
    door = find_door(run_directory, pid)
    if door is None:
        return TorchProfile(problem=await anyio.to_thread.run_sync(_why_not, pid, abandon_on_cancel=True))
    answer = run_directory / f"torch.{pid}.{secrets.token_hex(4)}"
    trace = answer.with_name(f"{answer.name}.trace.json")
    try:
        if await ask(door, f"profile/{seconds:.3f}/{answer.name}", answer, timeout_s):
            return await anyio.to_thread.run_sync(_read, answer, trace)
        return TorchProfile(problem=f"no trace within {timeout_s:.1f} s: is the GIL held, or has it ended?")
    except OSError as error:
        return TorchProfile(problem=f"it cannot be asked: {error.strerror}")
    finally:
        for path in (answer, trace):
            with suppress(OSError):
                path.unlink()


def _read(answer: Path, trace: Path) -> TorchProfile:
    """The answer is empty, or tells why there is no trace."""
    try:
        if problem := answer.read_text(errors="replace"):
            return TorchProfile(problem=problem[:200])
        if (size := trace.stat().st_size) > _MOST_BYTES:
            return TorchProfile(problem=f"its trace of {size >> 20} MiB is too large: ask for fewer seconds")
        return TorchProfile(gzip.compress(trace.read_bytes(), _COMPRESSION))
    except OSError as error:
        return TorchProfile(problem=f"its trace cannot be read: {error.strerror}")


def _why_not(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            loaded = any(b"/libtorch" in line for line in maps)
    except OSError:
        return "the process has ended"
    if loaded:
        return "it has made no process group: torch is reached from outside only in a rank that has one"
    return "it has not imported torch"
