"""From a forked child of a starter to `python -m milkweed.runtime.proc`."""

from __future__ import annotations

import builtins
import faulthandler
import gc
import io
import os
import sys
import types
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..hook_protocol import HOOK_DIRECTORY, stack_file
from ..starter.inside.milkweed_starter.becoming import introduce, read_plan, take_over
from ..starter.inside.milkweed_starter.mending import mend
from ..starter.inside.milkweed_starter.requests import Request
from .inherited import Inherited

__all__ = ["become_proc"]


def become_proc(request: Request, inherited: Inherited) -> None:
    """Runs as the proc that is asked for, to its end."""
    introduce(request, lambda: _prepare(request, inherited))
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __spec__=inherited.spec,
        __file__=inherited.spec.origin,
        __loader__=inherited.spec.loader,
        __package__=inherited.spec.parent,
        __builtins__=builtins,
    )
    sys.modules["__main__"] = main
    _register_dumps()
    os.register_at_fork(after_in_child=_register_dumps)
    gc.enable()
    exec(inherited.code, main.__dict__)


def _prepare(request: Request, inherited: Inherited) -> None:
    plan = read_plan(request)
    os.chdir(plan["cwd"])
    take_over(request, plan, {})
    sys.argv = [inherited.spec.origin or inherited.module]
    sys.orig_argv = list(plan["argv"])
    sys.path[:] = _path(plan, inherited)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = _unbuffered(fd, name)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if plan["env"].get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    mend()


def _path(plan: Mapping[str, Any], inherited: Inherited) -> list[str]:
    entries = [entry for entry in plan["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = [os.path.abspath(entry) for entry in entries if entry != str(HOOK_DIRECTORY)]
    return [plan["cwd"], *own, *inherited.path]


def _unbuffered(fd: int, name: str) -> io.TextIOWrapper:
    """A standard stream as PYTHONUNBUFFERED makes it: without a buffer below the text."""
    raw = io.FileIO(fd, "w", closefd=False)
    raw.name = f"<{name}>"
    known = getattr(sys, name)
    return io.TextIOWrapper(
        raw,
        encoding=known.encoding,
        errors=known.errors,
        newline="\n",
        write_through=True,
    )


def _register_dumps() -> None:
    """As the hook does in a process that was executed."""
    with suppress(Exception):
        directory, number = os.environ["MILKWEED_RUN_DIR"], int(os.environ["MILKWEED_DUMP_SIGNAL"])
        from pathlib import Path

        path = stack_file(Path(directory), os.environ["MILKWEED_LABEL"], os.getpid())
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
        if _registered:
            os.close(_registered.pop())
        _registered.append(fd)


_registered: list[int] = []
