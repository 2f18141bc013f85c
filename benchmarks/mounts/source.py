"""`python -m benchmarks.mounts.source DIRECTORY SOCKET`: a source in a process of its own.

A line on standard input asks for a barrier (`barrier FOLLOWER ...`); each answer is a line of JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread

from milkweed.runtime.call import serve
from milkweed.runtime.mounts import FEED, Feed, Followers, open_workspace
from milkweed.runtime.tasks import background_tasks


async def run(directory: Path, socket: Path) -> None:
    started = time.perf_counter()
    async with open_workspace(directory) as workspace, background_tasks() as tasks:
        opened_s = time.perf_counter() - started
        followers = Followers()
        actors = {FEED: Feed(workspace, followers)}
        await tasks.start(lambda task_status: serve(socket, actors, role="keeper", task_status=task_status))
        say(opened_s=opened_s, entries=len(workspace.manifest))
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            words = line.split()
            if words[0] == "barrier":
                started = time.perf_counter()
                revision = await workspace.barrier()
                local_s = time.perf_counter() - started
                behind = await followers.acknowledged(revision, words[1:], within_s=30.0)
                say(local_s=local_s, all_s=time.perf_counter() - started, behind=behind)
            else:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                say(sent=workspace.bytes_read, peak=peak)


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    anyio.run(run, Path(sys.argv[1]), Path(sys.argv[2]))
