"""The step that a rank is at by what it told last: a few KB are read, for who asks often."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .json_lines import parse_reported
from .printed import parse_printed
from .reading import metric_files
from .series import MetricPoint

__all__ = ["LATEST_BYTES", "latest_step"]

LATEST_BYTES = 4096


def latest_step(run_directory: Path, label: str, output: bytes) -> int | None:
    """By `milkweed.report`, else by what it printed; None where neither tells of steps.

    Args:
        output: the end of what it printed, which may begin in the midst of a line.
    """
    for path in metric_files(run_directory, label)[:1]:
        step = _last(parse_reported(_end(path)))
        if step is not None:
            return step
    whole = output[output.find(b"\n") + 1 :]
    return _last(parse_printed(whole[: whole.rfind(b"\n") + 1]))


def _last(points: Iterable[MetricPoint]) -> int | None:
    return next((one.step for one in reversed(list(points)) if one.step is not None), None)


def _end(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LATEST_BYTES))
            return file.read(LATEST_BYTES)
    except OSError:
        return b""
