"""Exceptions of actors, as they cross from one process to another."""

from __future__ import annotations

import os
import pickle
import traceback
from dataclasses import dataclass
from types import TracebackType

from .errors import ActorError, MilkweedError
from .pickling import dumps
from .user_code import innermost_place

__all__ = ["RemoteException"]

_OURS = os.path.dirname(__file__) + os.sep


@dataclass(frozen=True, slots=True)
class RemoteException:
    """What crosses: texts, and the exception itself pickled where it can be. `place` is the innermost in the
    user's code.
    """

    text: str
    type_name: str
    traceback: str
    pickled: bytes | None
    place: str = ""

    @classmethod
    def of(cls, error: BaseException) -> RemoteException:
        """Of an exception as caught here; our own frames above the user's are left out of its traceback."""
        kind = type(error)
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and _is_ours(trace):
            trace = trace.tb_next
        text = "".join(traceback.format_exception(kind, error, trace))
        return cls(_words_of(error), name, text, _pickled(error), _place_of(trace))

    def error(self, where: str) -> ActorError:
        """`where` names the rank and endpoint."""
        exception = None
        if self.pickled is not None:
            try:
                exception = pickle.loads(self.pickled)
            except Exception:
                exception = None
        short = self.type_name.rpartition(".")[2]
        said = f"{short}: {self.text}" if self.text else short
        return ActorError(
            "actor_error",
            f"{where} raised {said}",
            f"It was raised at {self.place}." if self.place else "Its remote_traceback says where.",
            exception_type=self.type_name,
            remote_traceback=self.traceback,
            exception=exception if isinstance(exception, BaseException) else None,
            place=self.place,
        )


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_OURS)


def _place_of(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    return innermost_place((frame.filename, frame.lineno or 0, frame.name) for frame in reversed(frames))


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # its own __str__ raises
        return f"(its __str__ raised {type(second).__name__})"


def _pickled(error: BaseException | None) -> bytes | None:
    if error is None:
        return None
    try:
        body, buffers = dumps(error)
    except MilkweedError:
        return None
    return None if buffers else body
