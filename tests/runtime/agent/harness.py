"""A small agent for tests: the runs and procs of one host behind a unix socket, ended as the real agent ends.

python -m tests.runtime.agent.harness DIRECTORY SOCKET MESH [CAP_BYTES]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio

from milkweed.runtime.agent.capping import CapPolicy, OutputCap
from milkweed.runtime.agent.children import open_children
from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.agent.forked import ForkedStarter, Step, fork_starter, run_steps
from milkweed.runtime.agent.parent import watch_guard
from milkweed.runtime.agent.spool import Spool
from milkweed.runtime.agent.starter import Policy
from milkweed.runtime.agent.warm_modules import modules_of_procs, modules_of_runs, procs_may_bring_modules
from milkweed.runtime.call import serve
from milkweed.runtime.services.procs import Procs
from milkweed.runtime.services.runs import Runs
from milkweed.runtime.services.stacks import Stacks

STAND_IN = ("-m", "tests.runtime.stand_in_proc")


def start(*words: str) -> Step | None:
    forked = fork_starter(
        STAND_IN, modules_of_procs(os.environ), may_import=procs_may_bring_modules(os.environ)
    )
    if not isinstance(forked, ForkedStarter):
        return forked
    directory, socket, mesh, *cap = words
    anyio.run(main, forked, Path(directory), Path(socket), mesh, *map(int, cap))
    return None


async def main(forked: ForkedStarter, directory: Path, socket: Path, mesh: str, cap: int = 64 << 20) -> None:
    spool = Spool(directory / "spool.jsonl")
    async with open_children() as children:
        context = HostContext(mesh, 0, "host-0", "127.0.0.1", directory, str(directory), children, spool)
        async with (
            Runs.open(
                context,
                OutputCap(CapPolicy(cap, cap // 8)),
                warm_modules=modules_of_runs(os.environ),
                policy=Policy(quiet_s=0.2, any_program=True),
            ) as runs,
            Procs.open(
                context, socket, modules=modules_of_procs(os.environ), forked=forked, command=STAND_IN
            ) as procs,
            anyio.create_task_group() as tasks,
        ):
            stop = anyio.Event()

            async def terminated() -> None:
                with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                    async for _ in signals:
                        stop.set()

            async def guard_gone() -> None:
                await watch_guard()
                stop.set()

            tasks.start_soon(terminated)
            tasks.start_soon(guard_gone)
            actors = {"Runs": runs, "Procs": procs, "Stacks": Stacks(context, runs, procs)}
            await serve(socket, actors, role="agent", stop=stop)
            await runs.end_all("released", 1.0)
            await procs.end_all("released", 1.0)
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    run_steps(lambda: start(*sys.argv[1:]))
