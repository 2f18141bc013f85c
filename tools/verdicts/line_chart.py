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
_ROOM = 0.05
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
    """Round numbers between the two, a few."""
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * number for number in range(first, last + 1)]


def _span(values: Sequence[float], spare: float) -> tuple[float, float]:
    """From the lowest to the highest with some room around, which is never none."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = (high - low) * spare
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        room = max(abs(low), abs(high)) * 0.1 or 1.0
    return low - room, high + room


def _panel(name: str, curves: Mapping[str, Curve], x_name: str) -> Iterator[str]:
    points = [(x, y) for curve in curves.values() for x, y in curve if math.isfinite(y)]
    left, last = _span([x for x, _ in points], 0.0)
    low, high = _span([y for _, y in points], _ROOM)
    right, bottom = _WIDTH - _RIGHT, _PANEL - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (last - left)
        up = (y - low) / (high - low)
        return _LEFT + across * (right - _LEFT), bottom - up * (bottom - _TOP)

    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{_text(name)}</text>'
    for y in ticks(low, high):
        _, at = place(left, y)
        yield f'<line class="g" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:.6g}</text>'
    for x in ticks(left, last):
        at, _ = place(x, low)
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
