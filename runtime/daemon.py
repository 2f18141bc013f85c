"""Starting a process that outlives its starter, without threads and without a shell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["spawn_daemon"]


def spawn_daemon(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> int:
    """Starts `argv` in a session of its own, standard output and error appended to `log`; returns its pid.

    It stays our child until we end: whoever starts it reaps it (`processes.wait_gone`).

    Raises:
        OSError: it cannot be started, or the log cannot be written.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    actions = [
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    try:
        return os.posix_spawn(argv[0], list(argv), dict(env), file_actions=actions, setsid=True)
    finally:
        os.close(output)
        os.close(null)
