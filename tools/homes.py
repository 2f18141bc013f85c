"""Paths of hosts that have the client's directories elsewhere, in the client's own words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ..runtime.records import Frame, MeshView, ProcessStacks, ThreadStack

__all__ = ["Homes"]


class Homes:
    """Made of a mesh; what all hosts have at the client's own path stays as it is."""

    def __init__(self, view: MeshView) -> None:
        trees = [(view.spec.workspace, view.workspace)]
        trees += [(one.spec.source, one.tree) for one in view.mounts]
        self._sources: Mapping[str, str] = {
            tree.path: source
            for source, shown in trees
            for tree in shown.hosts
            if tree.path and tree.mode != "shared" and _is_elsewhere(tree.path, view)
        }
        places = "|".join(map(re.escape, sorted(self._sources, key=len, reverse=True)))
        self._pattern = re.compile(rf"(?:{places})(?=[/\s\"':]|$)") if places else None

    def text(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._sources[found[0]], text)

    def stacks(self, process: ProcessStacks) -> ProcessStacks:
        if self._pattern is None:
            return process
        return replace(process, threads=tuple(map(self._thread, process.threads)))

    def _thread(self, thread: ThreadStack) -> ThreadStack:
        return replace(thread, frames=tuple(map(self._frame, thread.frames)))

    def _frame(self, frame: Frame) -> Frame:
        return replace(frame, file=self.text(frame.file))


def _is_elsewhere(path: str, view: MeshView) -> bool:
    """A path that was asked for is what the user's program knows; one that we chose is nobody's."""
    return path != view.spec.workspace and all(path != one.spec.path for one in view.mounts)
