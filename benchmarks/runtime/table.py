"""The figures as a table: rich on a terminal, tab-separated else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .figures import Figure, spread
from .plan import EVERY, Side

__all__ = ["brief", "row_of", "show"]

COLUMNS = ("measured", "unit", *EVERY, "times better", "target", "verdict", "runs")


def show(figures: Sequence[Figure]) -> None:
    rows = [row_of(figure) for figure in figures]
    _table(rows)
    for note in dict.fromkeys(note for figure in figures for note in _notes(figure)):
        print(note)


def brief(figure: Figure) -> str:
    """One figure in a line."""
    return "  ".join(filter(None, row_of(figure)))


def _notes(figure: Figure) -> list[str]:
    reasons = [f"{side} could not be measured: {why}" for side, why in figure.failed.items()]
    missed = (
        f"{figure.row.title} missed: {figure.row.why}"
        if figure.verdict == "missed" and figure.row.why
        else ""
    )
    return [f"{figure.line}: {note}" for note in (figure.note, missed, *reasons) if note]


def _table(rows: Sequence[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        for row in (COLUMNS, *rows):
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold", box=None, pad_edge=False)
    for at, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if 1 < at < 7 else "left")
    for row in rows:
        style = {"met": "green", "missed": "red", "not measured": "yellow"}.get(row[8])
        table.add_row(*row[:8], f"[{style}]{row[8]}[/]" if style else row[8], row[9])
    Console().print(table)


def row_of(figure: Figure) -> tuple[str, ...]:
    """The cells of a line: medians with their quartiles, the ratio with that of the pairs."""
    row = figure.row
    times, pairs = figure.times(), figure.pairs()
    better = "" if times is None else f"{number(times)} x ({_range(spread(pairs))})"
    targets = [] if row.limit is None else [f"{'>=' if row.more else '<='} {number(row.limit)} {row.unit}"]
    targets += [] if row.times is None else [f"{number(row.times)} x"]
    runs = "/".join(str(len(values)) for values in figure.samples.values())
    targets += [] if row.bare is None else [f"{number(row.bare)} x bare"]
    cells = (_cell(figure, side) for side in EVERY)
    return (
        row.title,
        row.unit,
        *cells,
        better,
        (" or " if row.bare is None else " and ").join(targets),
        figure.verdict,
        runs,
    )


def _cell(figure: Figure, side: Side) -> str:
    values = figure.samples.get(side)
    median = figure.median(side)
    return "-" if not values or median is None else f"{number(median)} ({_range(spread(values))})"


def _range(ends: tuple[float, float]) -> str:
    return f"{number(ends[0])}..{number(ends[1])}"


def number(value: float) -> str:
    """Three figures or so."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"
