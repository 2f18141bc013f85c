"""What a translation to HIP came to, as `port_to_rocm` tells it: pure functions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ..runtime.names import printable
from ..runtime.porting import Applied, Skipped, Sources, Translated, Translation
from .verdicts.rocm_scan import ADVICE, PACKAGES, Left
from .words import clip, counted

__all__ = ["DIFF_LEAST", "describe_port", "full_diff"]

_PLACES = 4
_KINDS = 16
_SKIPPED = 5
_FILES = 12
_PATH = 80
_LEFT_BYTES = 3500
_REPORT_BYTES = 7000
DIFF_LEAST = 800


def full_diff(changed: Sequence[Translated]) -> str:
    """Unified, of what is not there yet; where a translation has another name, from the one to the other."""
    parts = []
    for one in changed:
        if one.is_there:
            continue
        lines = difflib.unified_diff(
            _lines(one.before),
            _lines(one.after),
            f"a/{printable(one.path)}",
            f"b/{printable(one.target)}",
            n=1,
        )
        parts.append("".join(lines))
    return "".join(parts)


def _lines(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def describe_port(
    folder: str,
    sources: Sources,
    result: Translation,
    left: Sequence[Left],
    applied: Applied | None,
    diff: str,
    diff_file: str,
    diff_shown: int,
) -> str:
    """What is left comes before the diff: it is what somebody has to do."""
    count = sum(one.translatable for one in sources.files)
    kinds = len({one.kind for one in left})
    things = (
        f"{counted(len(left), 'place')} of {counted(kinds, 'kind')} left for you" if left else "nothing left"
    )
    state = "dry run" if applied is None else f"{counted(len(applied.written), 'file')} written"
    new = [one for one in result.changed if not one.is_there]
    before = len(result.changed) - len(new)
    there = f" ({before} there already)" if before else ""
    translated = f"{counted(len(result.changed), 'file')} of {counted(count, 'source')} translated{there}"
    parts = [f"{printable(folder)} ({state}): {translated}, {things}."]
    if not count and not left:
        parts.append("There is no C++ or CUDA in it: a program of torch alone runs on ROCm as it is.")
    if applied is not None:
        parts += _refused(applied)
    parts += _left(left)
    parts += _not_read((*result.failed, *sources.skipped))
    if result.torch:
        parts.append(
            f"By hipify of torch {result.torch} ({result.python}); no device was asked, nothing compiled."
        )
    if any("CUDAExtension" in one.text for one in sources.files if one.path.endswith("setup.py")):
        parts.append("Its setup.py uses CUDAExtension, which translates by itself where torch is for ROCm.")
    room = min(diff_shown, max(DIFF_LEAST, _REPORT_BYTES - sum(len(part.encode()) + 1 for part in parts)))
    parts += _shown(new, diff, diff_file, room)
    if applied is None and new:
        parts.append(f"port_to_rocm(path={folder!r}, dry_run=False) writes them beside the originals.")
    return "\n".join(parts)


def _left(left: Sequence[Left]) -> list[str]:
    """With as many places of each kind as there is room for."""
    for places in (_PLACES, 2, 1, 0):
        lines = _left_with(left, places)
        if sum(len(line.encode()) for line in lines) <= _LEFT_BYTES:
            break
    return lines


def _left_with(left: Sequence[Left], places: int) -> list[str]:
    by_kind: dict[str, list[Left]] = {}
    for one in left:
        by_kind.setdefault(one.kind, []).append(one)
    order = [*ADVICE, *(f"package:{name}" for name in PACKAGES)]
    kinds = sorted(by_kind, key=order.index)
    lines = []
    for kind in kinds[:_KINDS]:
        found = by_kind[kind]
        package = kind.partition(":")[2]
        lines.append(f"- {package or kind}: {PACKAGES[package] if package else ADVICE[kind]}")
        lines += [f"    {_short(one.path)}:{one.line}: {clip(one.excerpt, 80)}" for one in found[:places]]
        if rest := found[places:]:
            where = ", ".join(dict.fromkeys(_short(one.path) for one in rest))
            lines.append(f"    {'and ' if places else ''}{len(rest):,} more, in {clip(where, 100)}")
    if len(kinds) > _KINDS:
        lines.append(f"- and {len(kinds) - _KINDS} kinds more: {clip(', '.join(kinds[_KINDS:]), 200)}")
    return lines


def _short(path: str) -> str:
    path = printable(path)
    return path if len(path) <= _PATH else f"...{path[3 - _PATH :]}"


def _refused(applied: Applied) -> list[str]:
    lines = [f"not written: {_short(one.path)}: {clip(one.why, 100)}" for one in applied.refused[:_SKIPPED]]
    more = len(applied.refused) - _SKIPPED
    return [*lines, *([f"and {more} more not written"] if more > 0 else [])]


def _not_read(skipped: Sequence[Skipped]) -> list[str]:
    if not skipped:
        return []
    named = "; ".join(f"{_short(one.path)} ({clip(one.why, 100)})" for one in skipped[:_SKIPPED])
    more = len(skipped) - _SKIPPED
    return [f"not translated: {clip(named, 600)}" + (f"; and {more} more" if more > 0 else "")]


def _shown(changed: Sequence[Translated], diff: str, file: str, room: int) -> list[str]:
    if not changed:
        return []
    names = [_short(one.path if one.path == one.target else f"{one.path} -> {one.target}") for one in changed]
    more = f" and {len(names) - _FILES} more" if len(names) > _FILES else ""
    head = f"translated: {clip(', '.join(names[:_FILES]), 700)}{more}"
    if len(diff) <= room:
        return [head, diff.rstrip("\n")]
    cut = diff[:room].rpartition("\n")[0]
    shown, whole = cut.count("\n") + 1, diff.count("\n")
    where = f"; all of it: {file}" if file else ""
    return [head, cut, f"[{shown:,} of {whole:,} lines of the diff{where}]"]
