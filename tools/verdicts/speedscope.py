"""Profiles as a file for https://www.speedscope.app: its documented format, with shared frames. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.profiling import FoldedStack
from ...runtime.records import Frame

__all__ = ["speedscope"]

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(name: str, profiles: Mapping[str, Sequence[FoldedStack]]) -> dict[str, Any]:
    """The document; each profile has its stacks, with their counts as weights. It opens with the first."""
    frames: dict[Frame, int] = {}

    def number(frame: Frame) -> int:
        return frames.setdefault(frame, len(frames))

    sampled = [
        {
            "type": "sampled",
            "name": title,
            "unit": "none",
            "startValue": 0,
            "endValue": sum(stack.count for stack in stacks),
            "samples": [[number(frame) for frame in stack.frames] for stack in stacks],
            "weights": [stack.count for stack in stacks],
        }
        for title, stacks in profiles.items()
    ]
    return {
        "$schema": _SCHEMA,
        "exporter": "milkweed",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(frame) for frame in frames]},
        "profiles": sampled,
    }


def _frame(frame: Frame) -> dict[str, Any]:
    line = {"line": frame.line} if frame.line > 0 else {}
    return {"name": frame.function, "file": frame.file, **line}
