"""What a release would lose, and when that is so much that it is to be confirmed. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..runtime.errors import MilkweedError
from ..runtime.holdings import HeldFile, HostHoldings, is_checkpoint, matters
from ..runtime.mesh import format_ranks
from ..runtime.names import quoted
from .words import counted, size_in_words

__all__ = ["Loss", "describe_held", "loss_of"]

LARGE = 1 << 30
_SHOWN = 8
_NAME_MAX = 120
# A state is another one when this much more would be lost.
_STEP = 1.25


@dataclass(frozen=True, slots=True)
class Loss:
    """`lines` tell it, most important first; `state` is what a plan for it is bound to."""

    lines: tuple[str, ...]
    bytes: int
    is_to_be_confirmed: bool
    state: object


def loss_of(found: Mapping[int, HostHoldings | MilkweedError]) -> Loss:
    known = {host: one for host, one in found.items() if isinstance(one, HostHoldings)}
    total = sum(one.bytes for one in known.values())
    files = [(host, file) for host, one in known.items() for file in one.files]
    checkpoints = [(host, file) for host, file in files if is_checkpoint(file)]
    # What was seen in time is something else each time.
    partial = sorted(host for host, one in known.items() if one.is_partial)
    state = [
        sorted(
            (host, file.path, file.size, file.mtime_ns) for host, file in checkpoints if host not in partial
        ),
        math.floor(math.log(total, _STEP)) if total > LARGE and not partial else 0,
        partial,
    ]
    is_much = bool(checkpoints) or bool(partial) or total > LARGE
    return Loss(tuple(_lines(known)), total, is_much, state)


def _lines(known: Mapping[int, HostHoldings]) -> list[str]:
    """A line a folder, with the hosts that have it; what is beyond is counted."""
    folders: dict[tuple[bool, str], dict[int, list[HeldFile]]] = {}
    for host, one in known.items():
        for file in one.files:
            key = (not is_checkpoint(file), os.path.dirname(file.path))
            folders.setdefault(key, {}).setdefault(host, []).append(file)
    order = sorted(folders, key=lambda key: (key[0], -_size(folders[key]), key[1]))
    lines = [_line(key[1], not key[0], folders[key]) for key in order[:_SHOWN]]
    beyond = [folders[key] for key in order[_SHOWN:]]
    more = sum(len(files) for folder in beyond for files in folder.values())
    more += sum(one.more for one in known.values())
    if more:
        size = sum(one.bytes for one in known.values()) - sum(_size(folders[key]) for key in order[:_SHOWN])
        lines.append(f"{more:,} more files, {size_in_words(size)}")
    if partial := [host for host, one in known.items() if one.is_partial]:
        lines.append(f"and what could not be looked at, or not in time, on hosts {format_ranks(partial)}")
    return lines


def _size(folder: Mapping[int, list[HeldFile]]) -> int:
    return sum(file.size for files in folder.values() for file in files)


def _line(folder: str, is_checkpoints: bool, by_host: Mapping[int, list[HeldFile]]) -> str:
    files = [file for held in by_host.values() for file in held]
    name = os.path.basename(matters(files)[0].path)
    path = quoted(os.path.join(folder, name) if len(files) == 1 else folder + "/", _NAME_MAX)
    what = "checkpoint" if is_checkpoints else "file"
    count = "" if len(files) == 1 else f"{len(files):,} {what}s, "
    kind = "checkpoint, " if is_checkpoints and len(files) == 1 else ""
    hosts = f"host{'s' if len(by_host) > 1 else ''} {format_ranks(by_host)}"
    return f"{path}: {kind}{count}{size_in_words(_size(by_host))} on {hosts}"


def describe_held(found: Mapping[int, HostHoldings | MilkweedError]) -> list[str]:
    """For the status: how much each host has written, where; nothing of those that have written nothing."""
    words = {"workspace": "in the workspace", "scratch": "in scratch folders", "temporary": "in TMPDIR"}
    lines = []
    for host, one in sorted(found.items()):
        if isinstance(one, MilkweedError) or not (one.count or one.is_partial):
            continue
        parts = []
        for place, where in words.items():
            files = [file for file in one.files if file.place == place]
            if files:
                size = size_in_words(sum(file.size for file in files))
                parts.append(f"{counted(len(files), 'file')}, {size} {where}")
        if one.more:
            parts.append(f"{one.more:,} more files")
        if one.is_partial:
            parts.append("and what could not be looked at, or not in time")
        lines.append(f"host {host}: {'; '.join(parts)}")
    return lines
