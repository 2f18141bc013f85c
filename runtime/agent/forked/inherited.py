"""What is imported before the forks, and what procs take from it."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import io
import os
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

from ..hook_protocol import HOOK_DIRECTORY
from ..starter.inside.milkweed_starter.files import Files
from ..starter.inside.milkweed_starter.requests import count_threads
from .gathering import codes_of, fill_holes, gather, watched

__all__ = ["Inherited", "import_later", "inherit", "other_file", "settle"]

_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Inherited:
    """Of one process that forks procs `python -m MODULE`: `code` is that of its `__main__`.

    `path` is `sys.path` without what a process's own directory and variables put there.
    """

    module: str
    code: types.CodeType
    spec: ModuleSpec
    files: Files
    path: tuple[str, ...]


_FIRST_ROUNDS = 2
_ROUNDS = 12  # code is specialised when it has run eight times
# Whose code becomes a proc, which cannot be rehearsed.
_BEFORE_MAIN = (
    f"{__package__}.proc",
    f"{__package__}.plan",
    f"{__package__}.image",
    "milkweed.runtime.agent.starter.inside.milkweed_starter.",
)
# What a proc would import for its first actor: of a class that goes by value, or beside `this_host`.
_AT_FIRST_USE = ("cloudpickle", "_uuid", "milkweed.runtime.meshes")


def inherit(module: str, modules: Sequence[str]) -> Inherited:
    """Imports what procs need, and `modules` as far as they are there.

    Raises:
        Exception: whatever an import raises.
    """
    files = Files(sys.path)
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        importlib.import_module(f"{module}.main")
        spec = importlib.util.find_spec(f"{module}.__main__")
    code = None if spec is None or spec.loader is None else spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    if spec is None or code is None:
        raise ImportError(f"there is no module {module}")
    _import((*_AT_FIRST_USE, *modules), files)
    return Inherited(module, code, spec, files, _common_path())


def import_later(inherited: Inherited, modules: Sequence[str]) -> None:
    """Has children find these imported from now on.

    Raises:
        Exception: whatever an import raises; then this process is not fit to fork any more.
    """
    _import(modules, inherited.files)
    _freeze()


def other_file(module: str, file: str) -> str:
    """Another file than this one that the module has come from, or would come from here; empty for none."""
    known = sys.modules.get(module)
    if known is not None:
        found = getattr(known, "__file__", None)
    else:
        spec = importlib.util.find_spec(module)
        found = None if spec is None else spec.origin
    return "" if found == file else str(found)


def _import(modules: Sequence[str], files: Files) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("importing torch has made a GPU context")
    files.note_modules(set())


def settle(inherited: Inherited) -> None:
    """Makes this process fit to fork, with what procs would else make each for itself.

    Raises:
        RuntimeError: its imports left threads behind.
        Exception: whatever a rehearsal raises.
    """
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = _unbuffered(fd, name)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _rehearse(inherited.module)
    _freeze()


def _freeze() -> None:
    gc.collect()
    gc.disable()  # what is freed from now on would leave holes in pages that children share
    child = os.fork()  # threads of libraries that know fork (OpenBLAS) end with the first one
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    if count_threads() != 1:
        raise RuntimeError("its imports leave threads behind")
    fill_holes()
    gc.freeze()


def _rehearse(module: str) -> None:
    """What a proc runs is brought together, and has run so often that the interpreter leaves it as it is."""
    if not hasattr(sys.modules.get(module), "__path__"):
        return
    rehearse = importlib.import_module(f"{module}.rehearsal").rehearse
    with watched() as codes:
        rehearse(_FIRST_ROUNDS)
    for own in (f"{module}.main", *(one for one in sys.modules if one.startswith(_BEFORE_MAIN))):
        codes |= codes_of(sys.modules[own])
    gc.collect()
    fill_holes()
    gather(codes)
    rehearse(_ROUNDS)


def _common_path() -> tuple[str, ...]:
    own = {os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    own |= {os.getcwd(), "", str(HOOK_DIRECTORY)}
    return tuple(entry for entry in sys.path if entry not in own)


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
