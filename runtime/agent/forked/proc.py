"""From a forked child of a starter to `python -m milkweed.runtime.proc`."""

from __future__ import annotations

import builtins
import faulthandler
import gc
import os
import sys
import types
from contextlib import suppress

from ..starter.inside.milkweed_starter.becoming import introduce
from ..starter.inside.milkweed_starter.mending import mend
from ..starter.inside.milkweed_starter.requests import Request
from .image import take_image
from .inherited import Inherited
from .plan import read_plan

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
    _kept.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    _register_dumps()
    os.register_at_fork(after_in_child=_register_dumps)
    gc.enable()
    exec(inherited.code, main.__dict__)


def _prepare(request: Request, inherited: Inherited) -> None:
    plan = read_plan(request.payload)
    os.chdir(plan.cwd)
    os.setsid()
    os.dup2(request.output, 1)
    os.dup2(request.output, 2)
    os.close(request.output)
    request.place(plan.fds)
    take_image(plan.image)
    _kept.extend((sys.argv, sys.orig_argv))
    sys.argv = [inherited.spec.origin or inherited.module]
    sys.orig_argv = plan.argv
    # As site does it, an entry of PYTHONPATH is not added again by a .pth file.
    rest = [entry for entry in inherited.path if entry not in plan.path]
    sys.path[:] = [plan.cwd, *plan.path, *rest]
    if plan.image.env.get(b"PYTHONFAULTHANDLER"):
        faulthandler.enable()
    mend(finders=False)  # it would write to much that is shared


def _register_dumps() -> None:
    """As the hook does in a process that was executed."""
    with suppress(Exception):
        name = f"{os.environ['MILKWEED_LABEL']}.stack.{os.getpid()}"
        path = os.path.join(os.environ["MILKWEED_RUN_DIR"], name)
        number = int(os.environ["MILKWEED_DUMP_SIGNAL"])
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
        if _registered:
            os.close(_registered.pop())
        _registered.append(fd)


_registered: list[int] = []
_kept: list[object] = []  # to free what was inherited is to write to its pages
