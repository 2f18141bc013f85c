"""The work of `plot_metrics`: what ranks tell of their training as lines to read, and as a file of curves."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from ..runtime.errors import InvalidArgument, NotFound
from ..runtime.mesh import format_ranks
from ..runtime.metrics.series import RankMetrics
from ..runtime.records import RunView
from .verdicts.line_chart import Curve, line_chart
from .words import clip

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = ["curves_of", "plot"]

_EVIDENCE_S = 5.0
_MOST_METRICS = 12
_MOST_CURVES = 16
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 24
_NAME_MAX = 60

Panels = Mapping[str, Mapping[str, Curve]]


async def plot(mesh: Mesh, view: RunView, wanted: Sequence[str] | None) -> str:
    """The lines, and the path of the file.

    Raises:
        NotFound: metrics_not_found. InvalidArgument: none of the names asked for is told.
    """
    hosts = await mesh.evidence(view.run, timeout_s=_EVIDENCE_S)
    found = {
        one.rank: one.metrics
        for host in hosts
        for one in host.ranks
        if one.metrics is not None and one.metrics.names
    }
    if not found:
        raise await _nothing(mesh, view)
    panels = curves_of(found, _chosen(found, wanted))
    sources = ", ".join(dict.fromkeys(one.source for one in found.values()))
    head = f"{view.run} ({view.state}): ranks {format_ranks(found)}, from {clip(sources, 120)}"
    file = await anyio.to_thread.run_sync(_write, mesh, view.run, panels)
    left = len(_names(found)) - len(panels)
    more = [f"and {left} more metrics"] if left > 0 and wanted is None else []
    return "\n".join([head, *_lines(panels), *more, file])


async def _nothing(mesh: Mesh, view: RunView) -> NotFound:
    if (await mesh.view()).state == "released":
        cause, step = (
            "of which no metrics were kept: its mesh is released",
            "read_run_output has what it printed",
        )
    else:
        cause, step = (
            "which tells no metrics so far",
            "milkweed.report(step=step, loss=loss) in its loop tells them",
        )
    return NotFound("metrics_not_found", f"{view.run} is a run {cause}", f"{step}.")


def _names(found: Mapping[int, RankMetrics]) -> list[str]:
    """Losses first, as they are what is asked about."""
    every = dict.fromkeys(name for one in found.values() for name in one.names)
    return sorted(every, key=lambda name: "loss" not in name.lower())


def _chosen(found: Mapping[int, RankMetrics], wanted: Sequence[str] | None) -> list[str]:
    known = _names(found)
    if wanted is None:
        return known[:_MOST_METRICS]
    if unknown := [name for name in wanted if name not in known]:
        told = ", ".join(known[:_MOST_METRICS])
        raise InvalidArgument(
            "invalid_argument", f"there is no metric {clip(unknown[0], _NAME_MAX)!r}", f"There are: {told}."
        )
    return list(dict.fromkeys(wanted))[:_MOST_METRICS]


def curves_of(found: Mapping[int, RankMetrics], names: Sequence[str]) -> Panels:
    """By metric, then by ranks: those that tell the same share a curve."""
    panels: dict[str, dict[str, Curve]] = {}
    for name in names:
        ranks: dict[tuple[tuple[float, float], ...], list[int]] = {}
        for rank, one in found.items():
            if curve := _curve(one, name):
                ranks.setdefault(curve, []).append(rank)
        panels[name] = {
            f"rank{'s' if len(same) > 1 else ''} {format_ranks(same)}": curve for curve, same in ranks.items()
        }
    return panels


def _curve(metrics: RankMetrics, name: str) -> tuple[tuple[float, float], ...]:
    """Without steps, the place among what was kept."""
    return tuple(
        (float(number if point.step is None else point.step), point.values[name])
        for number, point in enumerate(metrics.points)
        if name in point.values
    )


def _lines(panels: Panels) -> list[str]:
    """Of each metric the curve of the lowest rank, and how far the others' ends are from it."""
    lines = []
    for name, curves in panels.items():
        label, curve = next(iter(curves.items()))
        finite = [(x, y) for x, y in curve if math.isfinite(y)]
        (first_x, first), (last_x, last) = curve[0], curve[-1]
        words = f"{clip(name, _NAME_MAX)}: {first:.4g} (step {first_x:g}) to {last:.4g} (step {last_x:g})"
        if finite:
            low_x, low = min(finite, key=lambda point: point[1])
            words += f", lowest {low:.4g} (step {low_x:g})" if low != last else ", its lowest"
            words += f"  {_spark([y for _, y in finite])}"
        if len(curves) > 1:
            ends = [other[-1][1] for other in curves.values()]
            words += f"  {label}; at the end of all ranks {min(ends):.4g} to {max(ends):.4g}"
        lines.append(words)
    return lines


def _spark(values: Sequence[float]) -> str:
    """The mean of each of some spans, from low to high."""
    width = min(_SPARK_WIDTH, len(values))
    spans = [values[at * len(values) // width : (at + 1) * len(values) // width] for at in range(width)]
    means = [sum(span) / len(span) for span in spans]
    low, high = min(means), max(means)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((mean - low) * scale)] for mean in means)


def _write(mesh: Mesh, run: str, panels: Panels) -> str:
    drawn = {name: dict(list(curves.items())[:_MOST_CURVES]) for name, curves in panels.items()}
    data = line_chart(f"{run}, {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())}", drawn)
    directory = mesh.profiles
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = _create(directory, f"{run}-metrics-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}", data)
    except OSError as error:
        return f"the plot cannot be written to {directory}: {error.strerror}"
    return f"plot: {path} (any browser), and resource profile://{mesh.id}/{path.name}"


def _create(directory: Path, stem: str, data: str) -> Path:
    for number in count(1):
        path = directory / (f"{stem}.svg" if number == 1 else f"{stem}-{number}.svg")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is always a next number")
