"""What a program tells of itself to those who look at its mesh: where its tasks are, what they await."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from ..call import bind
from ..codec import to_json
from ..control_socket import ControlSocket
from ..node import Node
from ..node.looking import find_loops, thread_waits, user_tasks
from ..records import Inside

__all__ = ["Telling"]


class Telling:
    """One a node: a control socket in `directory` that answers the op `inside`, and goes with the program."""

    def __init__(self, here: Node, directory: Path) -> None:
        self.path = directory / f"c{os.getpid()}"
        self._node = here
        self._socket = ControlSocket(bind(self.path), self._answer)
        self._socket.start()
        here.at_close(lambda: self.path.unlink(missing_ok=True))
        here.in_child(self._socket.abandon)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] != "inside":
            return {"error": f"unknown op {request['op']!r}"}
        main = threading.main_thread().ident or 0
        loops = find_loops()
        first = {main: loops[main]} if main in loops else {}  # its tasks come first
        tasks = [task for loop in (first | loops).values() for task in user_tasks(loop)]
        return {"inside": to_json(Inside(self._node.id, thread_waits(main), tasks=tuple(tasks)))}
