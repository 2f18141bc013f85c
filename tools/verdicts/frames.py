"""Which frames are the user's, and how a place in code is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from ...runtime.records import Frame

__all__ = ["is_library", "is_native", "place", "short_path", "split_runs", "without_host"]

_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3[\d.]*/|^<(?!string|stdin|ipython)|^/usr/lib/"
    r"|/milkweed/runtime/|/runtime/agent/hook/"
)
_NATIVE = re.compile(r"\.so(?:\.[\d.]+)?$|^\[|^$")
# A path has few and short parts: bounds that keep the search linear.
_SCRIPT = re.compile(r"(?:/[^\s:\"'/]{1,255}){0,12}/hosts/\d{1,6}/runs/run-\w{1,20}/script(?![\w./-])")
_PACKAGE = re.compile(r".*/(?:(?:site|dist)-packages|lib(?:64)?/python3[\d.]*)/|.*/(?=milkweed/runtime/)")


def without_host(text: str) -> str:
    """A text in which the script of a run is `script`: its path is another one on each host."""
    return _SCRIPT.sub("script", text) if "/hosts/" in text else text


def is_native(file: str) -> bool:
    """Whether a frame's file is a shared object (or nothing that can be named)."""
    return _NATIVE.search(file) is not None or file.endswith((".cpp", ".cc", ".c", ".h", ".hpp"))


def is_library(file: str) -> bool:
    """Whether a file is of Python, an installed package or native code; a virtual environment counts too."""
    return _LIBRARY.search(file) is not None or is_native(file)


def short_path(file: str, workspace: str = "") -> str:
    """A path relative to the workspace or the package directory it is in."""
    file = without_host(file)
    root = workspace.rstrip("/") + "/"
    if is_library(file):
        return _PACKAGE.sub("", file) if not is_native(file) else file.rsplit("/", 1)[-1]
    return file.removeprefix(root) if workspace and file.startswith(root) else file


def place(frame: Frame, workspace: str = "") -> str:
    """`train.py:41 train`."""
    return f"{short_path(frame.file, workspace)}:{frame.line} {frame.function.removesuffix('()')}"


def split_runs(frames: Sequence[Frame]) -> list[tuple[bool, tuple[Frame, ...]]]:
    """Frames in succession that are all of libraries (True) or all the user's (False)."""
    return [(library, tuple(run)) for library, run in groupby(frames, lambda frame: is_library(frame.file))]
