"""What runs in two hosts to be measured between them: `python -m ... SIDE holder|user SIZE`.

A holder prints where it is; a user reads that, then a number of transfers, and prints the seconds of each.
"""

from __future__ import annotations

import base64
import json
import pickle
import socket
import sys
import time
from collections.abc import Callable

import numpy as np

__all__ = ["main"]


def main(side: str, role: str, size: int) -> None:
    (_hold if role == "holder" else _use)(side, size)


def _hold(side: str, size: int) -> None:
    memory = np.full(size, 7, np.uint8)
    if side == "ours":
        from milkweed.runtime import RDMABuffer

        print(base64.b64encode(pickle.dumps(RDMABuffer(memory))).decode(), flush=True)
        sys.stdin.read()
        return
    with socket.create_server(("", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        sock, _ = listener.accept()
        while order := sock.recv(1):
            if order == b"r":
                sock.sendall(memory)
            else:
                _fill(sock, memory)
                sock.sendall(b".")


def _use(side: str, size: int) -> None:
    mine = np.full(size, 9, np.uint8)
    work = (_ours if side == "ours" else _bare)(mine)
    for name in ("read", "write"):
        work(name)
    print("ready", flush=True)
    for line in sys.stdin:
        what, times = line.split()
        seconds = []
        for _ in range(int(times)):
            started = time.perf_counter()
            work(what)
            seconds.append(time.perf_counter() - started)
        if mine[0] != 7 or mine[-1] != 7:
            raise RuntimeError("other bytes were read")
        print(json.dumps(seconds), flush=True)


def _ours(mine: np.ndarray) -> Callable[[str], object]:
    buffer = pickle.loads(base64.b64decode(sys.stdin.readline()))
    if buffer.transport.name != "tcp":
        raise RuntimeError(repr(buffer.transport))
    return lambda what: (buffer.read_into if what == "read" else buffer.write_from)(mine).get()


def _bare(mine: np.ndarray) -> Callable[[str], object]:
    address, port = sys.stdin.readline().split()
    sock = socket.create_connection((address, int(port)))

    def work(what: str) -> None:
        if what == "read":
            sock.sendall(b"r")
            _fill(sock, mine)
        else:
            sock.sendall(b"w")
            sock.sendall(mine)
            sock.recv(1)

    return work


def _fill(sock: socket.socket, memory: np.ndarray) -> None:
    view, at = memoryview(memory), 0
    while at < len(view):
        count = sock.recv_into(view[at:])
        if not count:
            raise EOFError
        at += count


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
