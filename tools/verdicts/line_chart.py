"""Curves as one SVG file: no script, nothing from elsewhere. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

__all__ = ["Curve", "line_chart", "ticks"]

Curve = Sequence[tuple[float, float]]
_Place = Callable[[float, float], tuple[float, float]]

_WIDTH, _PANEL = 760, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 30, 34
_HEAD = 30
_COLOURS = ("#1f6fb4", "#d9601a", "#2e8b46", "#b4308b", "#7a58c1", "#8a6d1d", "#138a8a", "#c23b3b")
_TICKS = 5
_MOST_NAMED = 10
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = "text{font:11px ui-sans-serif,sans-serif}polyline{fill:none;stroke-width:1.6}.g{stroke:#e4e4e4}"


def line_chart(title: str, panels: Mapping[str, Mapping[str, Curve]], *, x_name: str = "step") -> str:
    """A panel for each name with its curves, which the legend beside it tells apart.

    A value that is not finite leaves a gap. A curve of one point is a dot.
    """
    height = _HEAD + _PANEL * len(panels)
    size = f'width="{_WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect {size} fill="#fff"/>',
        f'<text x="8" y="19">{_text(title)}</text>',
    ]
    for number, (name, curves) in enumerate(panels.items()):
        lines += [
            f'<g transform="translate(0,{_HEAD + number * _PANEL})">',
            *_panel(name, curves, x_name),
            "</g>",
        ]
    return "\n".join([*lines, "</svg>\n"])


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from the one below `low` to the one above `high`, a few."""
    if not high > low:
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]


def _panel(name: str, curves: Mapping[str, Curve], x_name: str) -> Iterator[str]:
    points = [(x, y) for curve in curves.values() for x, y in curve if math.isfinite(y)]
    xs = ticks(min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=1.0))
    ys = ticks(min((y for _, y in points), default=0.0), max((y for _, y in points), default=1.0))
    right, bottom = _WIDTH - _RIGHT, _PANEL - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - xs[0]) / (xs[-1] - xs[0])
        up = (y - ys[0]) / (ys[-1] - ys[0])
        return _LEFT + across * (right - _LEFT), bottom - up * (bottom - _TOP)

    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{_text(name)}</text>'
    for y in ys:
        _, at = place(xs[0], y)
        yield f'<line class="g" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:.6g}</text>'
    for x in xs:
        at, _ = place(x, ys[0])
        yield f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{x:.6g}</text>'
    yield f'<text x="{right}" y="{bottom + 30}" text-anchor="end">{_text(x_name)}</text>'
    for number, (label, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        yield from _drawn(curve, place, colour)
        if number < _MOST_NAMED:
            yield f'<text x="{right + 10}" y="{_TOP + 14 * number + 4}" fill="{colour}">{_text(label)}</text>'
    if (more := len(curves) - _MOST_NAMED) > 0:
        yield f'<text x="{right + 10}" y="{_TOP + 14 * _MOST_NAMED + 4}">{more} more</text>'


def _drawn(curve: Curve, place: _Place, colour: str) -> Iterator[str]:
    for part in _parts(curve):
        spots = [place(x, y) for x, y in part]
        if len(spots) == 1:
            yield f'<circle cx="{spots[0][0]:.1f}" cy="{spots[0][1]:.1f}" r="2.5" fill="{colour}"/>'
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            yield f'<polyline stroke="{colour}" points="{path}"/>'


def _parts(curve: Curve) -> Iterator[list[tuple[float, float]]]:
    """What lies between two values that are not finite."""
    part: list[tuple[float, float]] = []
    for x, y in curve:
        if math.isfinite(y):
            part.append((x, y))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _text(words: str) -> str:
    return escape(_CONTROL.sub("?", words))
