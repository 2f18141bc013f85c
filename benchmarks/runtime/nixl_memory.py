"""NIXL's reads and writes by its UCX backend. `python -m ... SIZE` is the target."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from statistics import median
from typing import Any

import numpy as np

__all__ = ["NixlMemory"]

SMALL = 8


def _agent(name: str) -> Any:
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    return nixl_agent(name, nixl_agent_config(backends=["UCX"]))


class NixlMemory:
    def __init__(self, size: int) -> None:
        self._size = size
        self._target = subprocess.Popen(
            [sys.executable, "-m", __name__, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._target.stdout is not None
        words = b""
        while not words.startswith(b"target "):  # the library talks too
            words = self._target.stdout.readline()
            if not words:
                raise RuntimeError("NIXL's target ended")
        metadata, *descriptors = (base64.b64decode(word) for word in words.split()[1:])
        self._agent = _agent("user")
        self._mine = np.full(size, 9, np.uint8)
        self._agent.register_memory([(self._mine.ctypes.data, size, 0, "")], "DRAM")
        name = self._agent.add_remote_agent(metadata)
        self._handles = {
            (what, length): self._agent.initialize_xfer(
                what,
                self._agent.get_xfer_descs([(self._mine.ctypes.data, length, 0)], "DRAM"),
                self._agent.deserialize_descs(there),
                name,
                b"",
            )
            for length, there in zip((size, SMALL), descriptors, strict=True)
            for what in ("READ", "WRITE")
        }

    def sample(self, times: int, calls: int) -> dict[str, float]:
        size = self._size
        return {
            "read": size / self._median("READ", size, times) / 1e9,
            "write": size / self._median("WRITE", size, times) / 1e9,
            "small": self._median("READ", SMALL, calls) * 1e6,
        }

    def _median(self, what: str, size: int, times: int) -> float:
        handle, agent = self._handles[what, size], self._agent
        seconds = []
        for _ in range(times + 1):
            started = time.perf_counter()
            agent.transfer(handle)
            while (state := agent.check_xfer_state(handle)) != "DONE":
                if state == "ERR":
                    raise RuntimeError("NIXL failed")
            seconds.append(time.perf_counter() - started)
        if self._mine[0] != 7 or self._mine[size - 1] != 7:
            raise RuntimeError("other bytes were read")
        return median(seconds[1:])

    def close(self) -> None:
        self._target.communicate()


def _serve(size: int) -> None:
    agent = _agent("holder")
    memory = np.full(size, 7, np.uint8)
    agent.register_memory([(memory.ctypes.data, size, 0, "")], "DRAM")
    descriptors = [
        agent.get_serialized_descs(agent.get_xfer_descs([(memory.ctypes.data, length, 0)], "DRAM"))
        for length in (size, SMALL)
    ]
    words = [base64.b64encode(data).decode() for data in (agent.get_agent_metadata(), *descriptors)]
    print("target", *words, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
