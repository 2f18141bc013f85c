"""What helps with a failure of a run, from its words and how hosts have the client's directories."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from ..runtime.records import MeshView
from .words import clip

__all__ = ["Mender"]

_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NOT_THERE = re.compile(r"(?:FileNotFoundError|NotADirectoryError|No such file or directory).*?'([^'\n]+)'")
_LOST = re.compile(r"Transport endpoint is not connected: '")
_READ_ONLY = "Read-only file system"
_FULL = ("No space left on device", "Disk quota exceeded", "the disk of its output was full")
_FED = ("mount", "copy")
_MOST = 400


class Mender:
    """Made of a mesh. `resolve` gives a path of this machine without symlinks, empty where there is none."""

    def __init__(self, view: MeshView, resolve: Callable[[str], str] | None = None) -> None:
        self._mesh = view.mesh
        self._workspace = view.spec.workspace
        self._left_out = [one.rule for one in view.workspace.left_out]
        self._is_fed = any(tree.mode in _FED for tree in view.workspace.hosts)
        shown = (view.workspace, *(one.tree for one in view.mounts))
        self._is_mounted = any(tree.mode == "mount" for one in shown for tree in one.hosts)
        self._resolve = resolve or _resolved

    def next_step(self, words: str) -> str:
        """The next step after a failure with these words: an exception, or what was printed last.

        Empty where none is known.
        """
        if module := _NO_MODULE.search(words):
            return self._install(module[1].partition(".")[0])
        if missing := _NOT_THERE.search(words):
            return clip(self._show(missing[1]), _MOST)
        if self._is_mounted and _READ_ONLY in words:
            return (
                "What mount_directory shows is read-only for hosts: write to the workspace or $TMPDIR, of"
                " which each host has its own; fetch_files brings it here before the release."
            )
        if any(full in words for full in _FULL):
            first = (
                f"mesh_status(mesh={self._mesh!r}) says what each wrote; options.discard_host_changes of the"
                " next run removes what is in the workspace, a release all; "
            )
            return f"A disk of the hosts is full: {first if self._is_fed else ''}make room there."
        if _LOST.search(words):
            return "A mount that was lost is started again by itself: run it again."
        return ""

    def _install(self, module: str) -> str:
        if not self._is_fed:
            where = "for the interpreter that runs (python -m pip install ...)"
        elif self._resolve(f"{self._workspace}/.venv/bin/python"):
            where = "on this machine, into the workspace's .venv: the next run sees it"
        else:
            where = (
                "on this machine into a .venv of the workspace, or on the hosts (of a .venv made there name"
                " .venv/bin/python: `python` is not it)"
            )
        return f"If {module} is a package: install it {where}."

    def _show(self, path: str) -> str:
        if not self._workspace:
            return ""
        full = os.path.normpath(os.path.join(self._workspace, path))
        real = self._resolve(full)
        if not real:
            return ""
        if PurePosixPath(real).is_relative_to(self._resolve(self._workspace)):
            if not self._is_fed or not PurePosixPath(full).is_relative_to(self._workspace):
                return ""
            return self._show_of_workspace(os.path.relpath(full, self._workspace), os.path.isabs(path))
        source = str(PurePosixPath(real).parent)
        return (
            f"{real} is on this machine and not on the host:"
            f" mount_directory(mesh={self._mesh!r}, source={source!r}) shows it, or take a directory above."
        )

    def _show_of_workspace(self, path: str, is_sure: bool) -> str:
        """`is_sure`: a relative path may be of another working directory."""
        for name in (path, *map(str, PurePosixPath(path).parents)):
            if rule := next((one for one in self._left_out if one.startswith(f"{name} (")), ""):
                return (
                    f"Hosts are not shown {rule} of the workspace:"
                    f" a line !/{name} at the end of .milkweedignore takes back what a rule leaves out."
                )
        if not is_sure:
            return ""
        return (
            f"{path} is in the workspace now:"
            " workspace_left_out of mesh_status tells what hosts are not shown of it."
        )


def _resolved(path: str) -> str:
    return os.path.realpath(path) if os.path.exists(path) else ""
