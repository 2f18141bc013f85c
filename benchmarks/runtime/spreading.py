"""What runs in each host of a broadcast to be measured: `python -m ... source|receiver SIZE`.

Both print their buffer. The source reads the buffers of the receivers, then orders, and prints seconds; a
receiver reads the source's buffer, then orders.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
import time
import zlib
from typing import Any

import numpy as np

from milkweed.runtime import RDMABuffer, broadcast_buffer

__all__ = ["main"]

TIMEOUT_S = 600.0


def main(role: str, size: int) -> None:
    seed = 1 if role == "source" else 2
    memory = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    print(base64.b64encode(pickle.dumps(RDMABuffer(memory))).decode(), flush=True)
    given: list[RDMABuffer] = pickle.loads(base64.b64decode(sys.stdin.readline()))
    for line in sys.stdin:
        print(json.dumps(_done(line.strip(), memory, given)), flush=True)


def _done(order: str, memory: np.ndarray[Any, Any], given: list[RDMABuffer]) -> Any:
    started = time.perf_counter()
    if order == "sum":
        return zlib.crc32(memory)
    if order == "clear":
        memory[:] = 0
    elif order == "read":
        given[0].read_into(memory, timeout=TIMEOUT_S).get()
    else:
        received = broadcast_buffer(RDMABuffer(memory), given, timeout=TIMEOUT_S).get().values()
        if {one.transport for one in received} != {"tcp"}:
            raise RuntimeError(str(received))
    return time.perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
