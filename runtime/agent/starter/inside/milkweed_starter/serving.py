"""Importing, then waiting and forking. See the package."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from .becoming import Inherited, become
from .files import Files, distribution_of
from .interpreter import offset_of_encoding, reconfigure
from .requests import count_threads, fork_all, receive, refuse_all

__all__ = ["install"]


def install(enter_run: Callable[[], None], loaded: set[str]) -> None:
    """Serves once the interpreter asks about its script.

    Args:
        enter_run: what the hook does for a run.
        loaded: the modules that any Python of this environment has loaded by now.
    """
    channel = socket.socket(fileno=int(os.environ["MILKWEED_STARTER_FD"]))
    channel.set_inheritable(False)
    marker = os.environ["MILKWEED_STARTER_SCRIPT"]

    def hook(path: str) -> Any:
        if path == marker:
            # The interpreter goes on with the list that it began with.
            sys.path_hooks = [entry for entry in sys.path_hooks if entry is not hook]
            _serve(channel, enter_run, loaded)
        raise ImportError

    sys.path_hooks.insert(0, hook)


def _serve(channel: socket.socket, enter_run: Callable[[], None], loaded: set[str]) -> None:
    """Returns in each child, as the run it is to be."""
    started_with = _environment_of_exec()
    files = Files(sys.path)
    try:
        _preload(os.environ["MILKWEED_STARTER_MODULES"].split(","))
        files.note_modules(loaded)
        offset = _settle()
    except Exception as error:
        _say(channel, {"unfit": _in_words(error)})
        os._exit(0)
    added = {name: value for name, value in os.environb.items() if started_with.get(name) != value}
    home = os.getcwd()
    os.chdir("/")  # whatever imports captured is right, and the directory is not held
    inherited = Inherited(files, added, home, offset)
    _say(channel, {"ready": True})
    while True:
        requests = receive(channel)
        if count_threads() != 1:
            os._exit(1)
        # Here and not in the children: what is looked at is copied, and that once.
        changed = files.changed()
        if changed:
            refuse_all(requests, changed, stale=True)
        mine = None if changed else fork_all(requests)
        if mine is not None:
            break
        for request in requests:
            request.close()
    channel.close()
    for request in requests:
        if request is not mine:
            request.close()
    become(mine, inherited, enter_run)


def _in_words(error: Exception) -> str:
    if type(error) is RuntimeError and str(error):
        return str(error)  # as this module says why it refuses
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _preload(names: list[str]) -> None:
    """
    Raises:
        Exception: whatever an import raises; RuntimeError where warm runs would differ from cold ones.
    """
    if distribution_of(sys.modules.get("sitecustomize")) or distribution_of(sys.modules.get("usercustomize")):
        raise RuntimeError("this environment has a sitecustomize of its own")
    if all(importlib.util.find_spec(name) is None for name in names):
        raise RuntimeError(f"this interpreter has no {' or '.join(names)}")
    gc.disable()  # what is freed here would leave holes in pages that children share
    for name in names:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("importing torch has made a GPU context")


def _settle() -> int:
    """Makes this process fit to fork, and tries whether a child would become what it should.

    Returns:
        What `reconfigure` is to know of this interpreter.

    Raises:
        RuntimeError: it would not.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.fstat(1).st_size or os.fstat(2).st_size:
        raise RuntimeError("its imports print something, which only a cold start shows")
    offset = offset_of_encoding()
    gc.collect()
    gc.freeze()
    child = os.fork()  # threads of libraries that know fork (OpenBLAS) end with the first one
    if child == 0:
        _try_out(offset)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"this Python ({sys.version.split()[0]}) does not take a new command line")
    if count_threads() != 1:
        raise RuntimeError("its imports leave threads behind")
    return offset


def _try_out(offset: int) -> None:
    code = 1
    try:
        command = [*sys.orig_argv[:-1], "-c", "pass", "word"]
        before = _state()
        reconfigure(command, offset)
        code = int(_state() != before or sys.argv != ["-c", "word"] or sys.orig_argv != command)
    finally:
        os._exit(code)


def _state() -> tuple[object, ...]:
    known = {name: value for name, value in vars(sys).items() if name not in ("argv", "orig_argv")}
    known["path_importer_cache"] = None
    return (known, tuple(sys.flags), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _say(channel: socket.socket, message: dict[str, object]) -> None:
    try:
        channel.send(json.dumps(message).encode())
    except OSError:
        os._exit(0)


def _environment_of_exec() -> dict[bytes, bytes]:
    with open("/proc/self/environ", "rb") as file:
        pairs = (item.partition(b"=") for item in file.read().split(b"\0") if b"=" in item)
        return {name: value for name, _, value in pairs}
