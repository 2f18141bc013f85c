"""How the agent and the hook inside a rank agree: the signal that asks for stacks, the file that gets them.

The hook (`hook/sitecustomize.py`) stands first on a rank's PYTHONPATH and runs in whatever Python the user
has; all that it must know comes in variables. The signal kills a process that has not registered for it: ask
`can_dump` first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = [
    "DUMP_SIGNAL",
    "HOOK_DIRECTORY",
    "bytecode_environment",
    "can_dump",
    "clear_stack_files",
    "find_stack_file",
    "hook_environment",
    "stack_file",
]

# A real-time signal that neither libc, NCCL, MPI launchers nor batch systems use.
DUMP_SIGNAL = signal.SIGRTMIN + 10
HOOK_DIRECTORY = Path(__file__).resolve().parent / "hook"


def hook_environment(run_directory: Path, label: str, python_path: str) -> dict[str, str]:
    """Variables of a rank or launcher by which every Python in it registers; `python_path` is the user's."""
    return {
        "MILKWEED_RUN_DIR": str(run_directory),
        "MILKWEED_LABEL": label,
        "MILKWEED_DUMP_SIGNAL": str(int(DUMP_SIGNAL)),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOK_DIRECTORY), python_path))),
    }


def bytecode_environment(directory: Path, of: Iterable[str]) -> dict[str, str]:
    """Variables by which every Python has the bytecode of what is below the paths `of` in `directory`."""
    paths = list(dict.fromkeys(of))
    if any("\n" in path for path in paths):
        return {}
    return {"MILKWEED_BYTECODE": str(directory), "MILKWEED_BYTECODE_OF": "\n".join(paths)}


def stack_file(run_directory: Path, label: str, pid: int) -> Path:
    """Where the process of this label (`rank-3`) and pid dumps; made by the hook, each dump is appended."""
    return run_directory / f"{label}.stack.{pid}"


def find_stack_file(run_directory: Path, pid: int) -> Path | None:
    """The stack file of a pid, whatever its label; None when that process has not registered."""
    return next(iter(sorted(run_directory.glob(f"*.stack.{pid}"))), None)


def can_dump(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether the process has a handler for the signal, so that sending it is safe."""
    try:
        status = (proc / str(pid) / "status").read_text()
    except OSError:
        return False
    return catches(status, DUMP_SIGNAL)


def catches(status: str, number: int) -> bool:
    """Whether the text of /proc/PID/status says that signal `number` is caught."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            return bool(int(value, 16) >> (number - 1) & 1)
    return False


def clear_stack_files(run_directory: Path) -> None:
    """Removes files that nothing was dumped into, and what a rank was asked by, after the end of a run."""
    for pattern in ("*.stack.*", "*.fault.*", "*.ask.*"):
        for path in run_directory.glob(pattern):
            with suppress(OSError):
                if path.stat().st_size == 0:
                    path.unlink()
