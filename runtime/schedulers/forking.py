"""Starting many hosts at once: by one process that forks them all, where their commands allow it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from .. import _native
from ..agent.host_command import agent_config

__all__ = ["HostOrder", "fork_hosts"]

logger = logging.getLogger(__name__)

_NURSERY = "milkweed.runtime.agent.forked.nursery"


@dataclass(frozen=True, slots=True)
class HostOrder:
    """What to start, as `daemon.spawn_daemon` would."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path


async def fork_hosts(orders: Sequence[HostOrder]) -> list[tuple[int, int]] | None:
    """Pid and start time of each, all of them children of this process; None where they cannot be forked.

    Raises:
        OSError: one cannot be started; others may have been.
    """
    if not all(agent_config(order.argv) for order in orders):
        return None
    lines = [json.dumps({"argv": o.argv, "env": dict(o.env), "log": str(o.log)}) for o in orders]
    was = _native.is_child_subreaper()
    _native.set_child_subreaper(True)  # what the nursery leaves becomes ours
    try:
        done = await anyio.run_process(
            [sys.executable, "-m", _NURSERY], input="\n".join(lines).encode(), check=False
        )
    finally:
        _native.set_child_subreaper(was)
    if done.returncode != 0:
        logger.warning("hosts are executed, not forked: %s", done.stderr.decode(errors="replace")[-500:])
        return None
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        if "error" in answer:
            raise OSError(answer["error"])
    return [(answer["pid"], answer["start_time"]) for answer in answers]
