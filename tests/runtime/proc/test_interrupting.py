"""What interrupting a thread leaves behind in the interpreter: nothing."""

from __future__ import annotations

import subprocess
import sys

# CPython 3.11 never enters a signal handler under a trace function while it looks for an exception that was
# put into a thread and taken back.
PROGRAM = """
import os, signal, sys
from milkweed.runtime import Actor, endpoint, this_proc

class Simple(Actor):
    @endpoint
    def answer(self):
        return 1

def traced():
    os.kill(os.getpid(), signal.SIGUSR1)
    return len(handled)

print(this_proc().spawn("simple", Simple).get().answer.call_one().get())
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
sys.settrace(lambda *_: None)
count = traced()
sys.settrace(None)
print(count)
"""


def test_a_call_of_a_sync_endpoint_leaves_the_interpreter_as_it_was() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["1", "1"]
