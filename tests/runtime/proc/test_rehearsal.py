"""A rehearsal leaves a process as it was: no thread, no node, no descriptor, no class, no number taken."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)

CODE = """
import asyncio, gc, os, sys, threading, time
from milkweed.runtime import Actor
from milkweed.runtime.node import node, on_node_thread
from milkweed.runtime.proc.rehearsal import rehearse
def state():
    gc.collect()
    return [sorted(os.listdir("/proc/self/fd")), os.listdir("/proc/self/task"),
            [one.__name__ for one in Actor.__subclasses__()], threading.enumerate()]
before = state()
rehearse(3)
end = time.monotonic() + 20
while (left := state()) != before:  # a thread that was joined leaves the kernel's list a moment later
    assert time.monotonic() < end, (left, before)
assert "milkweed.runtime.proc.rehearsed" not in sys.modules
assert not on_node_thread()
async def name():
    return asyncio.current_task().get_name()
print(threading.Thread().name, asyncio.run(name()))
print(node().statistics())
"""


def test_it_leaves_nothing_and_a_node_can_be_had_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "Thread-1 Task-1\n{'connections': 0, 'tasks': 0}\n"


def test_what_does_not_answer_is_an_error() -> None:
    code = (
        "from milkweed.runtime.proc import rehearsal\n"
        "rehearsal._Owner._answer = lambda *_: None\n"
        "rehearsal.rehearse(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "RuntimeError: a proc that was rehearsed did not answer" in done.stderr
