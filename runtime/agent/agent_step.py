"""The agent as a step: it forks its starter of procs first, while it has one thread."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import anyio

from .forked import ForkedStarter, Step, fork_starter
from .forked.inherited import Inherited
from .main import run_agent
from .warm_modules import modules_of_procs, procs_may_bring_modules

__all__ = ["PROC_COMMAND", "agent_step"]

PROC_COMMAND = ("-m", "milkweed.runtime.proc")


def agent_step(config_file: Path, inherited: Inherited | None = None) -> Step | None:
    """Serves one host until it ends. In a process that its starter forks: returns at once what that is."""
    # Where hosts share what a nursery imported, each would hold its own of what comes later.
    alone = inherited is None
    forked = fork_starter(
        PROC_COMMAND,
        modules_of_procs(os.environ),
        inherited,
        may_import=alone and procs_may_bring_modules(os.environ),
    )
    if not isinstance(forked, ForkedStarter):
        return forked
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    anyio.run(run_agent, config_file, forked)
    return None
