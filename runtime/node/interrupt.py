"""An exception put into a thread that runs somebody's code, at its next bytecode."""

from __future__ import annotations

import ctypes

__all__ = ["Interrupted", "interrupt_thread"]


class Interrupted(BaseException):
    """The call that this thread runs was cancelled; no `Exception`: `except Exception` is to let it pass."""


def interrupt_thread(ident: int) -> None:
    """Raises `Interrupted` in the thread; in blocking C code not before that returns."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Interrupted))
