"""A proc's life: its threads, from the sockets that it inherits to its end."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading

from ..addresses import ProcAddress
from ..node import node
from ..proc_place import PROC_VARIABLE, ProcPlace, decode_place
from .main_thread import WAKE, MainThread
from .serving import Serving

__all__ = ["place", "run"]


def place() -> ProcPlace | None:
    """That of this process; None in one that is no proc."""
    text = os.environ.get(PROC_VARIABLE)
    return None if text is None else decode_place(text)


def run(own: ProcPlace) -> None:
    """Serves until the process is ended, or an endpoint raises SystemExit."""
    _take_path(own.sys_path)
    if not faulthandler.is_enabled():
        faulthandler.enable()
    main = MainThread(of_process=True)
    signal.signal(WAKE, lambda _number, _frame: None)
    _end_by_sigterm(main)
    data, control = _inherited(own.data_fd), _inherited(own.control_fd)
    address = ProcAddress(own.proc, own.host_name, data.getsockname(), control.getsockname())
    node().when_broken(main.leave)
    node().part(Serving, lambda here: Serving(here, address, data, control, main))
    main.run_forever()


def _inherited(fd: int) -> socket.socket:
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    return sock


def _take_path(path: tuple[str, ...]) -> None:
    """Modules are found where the owner finds them, behind what is this process's own."""
    known = set(sys.path)
    sys.path += [entry for entry in path if entry not in known]


def _end_by_sigterm(main: MainThread) -> None:
    def leave(_number: int, _frame: object) -> None:
        # On another thread: this one may hold the lock that is asked for.
        threading.Thread(target=main.leave, args=(SystemExit(128 + signal.SIGTERM),), daemon=True).start()

    def hold_back() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def let_in() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def in_child() -> None:
        if signal.getsignal(signal.SIGTERM) is leave:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        let_in()

    # A forked child has no such threads and is ended as any other process. One that is told to end before it
    # has run must not take that for its parent's: the interpreter forgets what came for a handler there.
    before = threading.local()
    signal.signal(signal.SIGTERM, leave)
    os.register_at_fork(before=hold_back, after_in_parent=let_in, after_in_child=in_child)
