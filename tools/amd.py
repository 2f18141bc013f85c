"""The toolset `amd`: programs for CUDA on AMD devices."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
from pydantic import Field

from ..runtime.paths import Places
from ..runtime.porting import MADE, Sources, Translation
from .directories import local_directory
from .porting_report import DIFF_LEAST, describe_port, full_diff
from .registry import Call, Text, tool
from .verdicts.rocm_scan import Left, scan

__all__ = ["port_to_rocm"]

# Of it, what is found is told afterwards.
_ALL_S = 33.0
_DIFF_SHOWN = 5000
_DIFFS_KEPT = 20


@tool("amd", destructive=True, idempotent=True)
async def port_to_rocm(
    call: Call,
    path: Annotated[str, Field(description="local folder with the program")],
    dry_run: Annotated[bool, Field(description="only show what would change; false writes it")] = True,
) -> Text:
    """What it takes to run a CUDA program on AMD devices: translates its sources by torch's hipify, shown as
    a diff, and tells what that leaves for you, each with what to do: driver calls, inline PTX, 32 lanes taken
    for granted, packages that are for CUDA alone. Nothing is run on a device."""
    from ..runtime.porting.applying import apply
    from ..runtime.porting.sources import find_sources
    from ..runtime.porting.translating import interpreters, translate

    until = anyio.current_time() + _ALL_S
    folder = Path(local_directory(path, "path"))
    await call.report(0, None, f"reading {folder}")
    sources = await anyio.to_thread.run_sync(find_sources, folder)
    count = sum(one.translatable for one in sources.files)
    await call.report(0, None, f"translating {count} sources")
    result = await translate(sources.files, interpreters(folder, Path.cwd()), until - anyio.current_time())
    left = await anyio.to_thread.run_sync(_what_is_left, sources, result)
    applied = None if dry_run else await anyio.to_thread.run_sync(apply, folder, result.changed)
    diff = full_diff(result.changed)
    kept = ""
    if len(diff) > DIFF_LEAST:
        kept = await anyio.to_thread.run_sync(_keep, folder, diff)
    return Text(describe_port(str(folder), sources, result, left, applied, diff, kept, _DIFF_SHOWN))


def _what_is_left(sources: Sources, result: Translation) -> tuple[Left, ...]:
    """Of each file as it is when it is translated, by the lines of the one that a person edits."""
    after = {one.path: one.after for one in result.changed}
    found: list[Left] = []
    for one in sources.files:
        if one.text.startswith(MADE):
            continue  # it goes with the file that it was made from
        text = after.get(one.path, one.text)
        found += [
            replace(left, line=left.line - 1) if text.startswith(MADE) else left
            for left in scan(one.path, text)
        ]
    return tuple(found)


def _keep(folder: Path, diff: str) -> str:
    """Where the whole diff is; the newest few are kept."""
    place = Places.from_environment().state / "ports"
    place.mkdir(mode=0o700, exist_ok=True)
    file = (
        place / f"{folder.name or 'root'}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.diff"
    )
    file.write_text(diff, encoding="utf-8")
    for old in _oldest(sorted(place.glob("*.diff"), key=lambda one: one.stat().st_mtime)):
        old.unlink(missing_ok=True)
    return str(file)


def _oldest(files: Sequence[Path]) -> Sequence[Path]:
    return files[:-_DIFFS_KEPT]
