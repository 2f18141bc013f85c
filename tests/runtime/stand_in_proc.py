"""A proc as far as its host can see: it answers pings on its control socket and runs code that is sent to it.

    python -m tests.runtime.stand_in_proc

Each connection to its data socket carries one line of Python, which the main thread runs; `answer` goes back.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Any

from milkweed.runtime.proc_place import PROC_VARIABLE, decode_place

BUSY: dict[str, Any] = {}


def serve_control(listener: socket.socket) -> None:
    while True:
        peer, _ = listener.accept()
        with peer, peer.makefile("rw") as lines:
            for _ in lines:
                since = BUSY.get("since")
                main = None if since is None else {"busy_s": time.time() - since, "endpoint": "Stand.work"}
                lag = BUSY.get("lag", 0.0)
                lines.write(json.dumps({"ok": True, "main": main, "loop_lag_s": lag, "calls": 0}) + "\n")
                lines.flush()


def main() -> None:
    place = decode_place(os.environ[PROC_VARIABLE])
    listeners = [socket.socket(fileno=fd) for fd in (place.data_fd, place.control_fd)]
    for listener in listeners:
        listener.set_inheritable(False)
    threading.Thread(target=serve_control, args=listeners[1:], daemon=True).start()
    while True:
        peer, _ = listeners[0].accept()
        with peer, peer.makefile("rw") as lines:
            names: dict[str, Any] = {"busy": BUSY, "answer": ""}
            exec(lines.readline(), names)
            lines.write(f"{names['answer']}\n")


if __name__ == "__main__":
    main()
