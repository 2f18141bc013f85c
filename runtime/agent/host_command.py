"""The command of a host, as engines make it and as a nursery understands it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["agent_command", "agent_config", "guard_command", "unmount_command"]

_GUARD = Path(__file__).with_name("guard.py")
_UNMOUNT = Path(__file__).parents[1] / "mounts" / "unmount_below.py"


def guard_command(*options: str) -> list[str]:
    """A guard, whose agent's command is to follow."""
    return [sys.executable, "-I", "-S", str(_GUARD), *options, "--"]


def agent_command(config: Path) -> list[str]:
    return [sys.executable, "-m", "milkweed.runtime.agent", "--config", str(config)]


def unmount_command(directory: Path) -> list[str]:
    """What cleans up after mounts whose processes were killed; next to nothing where none ever was."""
    unmount = [sys.executable, "-I", "-S", str(_UNMOUNT), str(directory)]
    return ["/bin/sh", "-c", '[ ! -e "$0/mounts" ] || exec "$@"', str(directory), *unmount]


def agent_config(command: Sequence[str]) -> Path | None:
    """The agent's configuration in the command of a host; None where more than guard and agent are in it."""
    words, agent = list(command), agent_command(Path())[:-1]
    if words[:4] != guard_command()[:-1] or "--" not in words:
        return None
    *found, config = words[words.index("--") + 1 :] or [""]
    return Path(config) if found == agent else None
