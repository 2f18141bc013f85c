"""A flame graph as one SVG file, its outermost frames on top: no script, nothing from elsewhere. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from ...runtime.profiling import FoldedStack
from ...runtime.records import Frame
from .frames import is_library, short_path

__all__ = ["flame_graph"]

_WIDTH = 1200.0
_ROW = 17
_TOP = 46
_LETTER = 6.6
_NARROWEST = 0.3
_DEEPEST = 160
_LEGEND = "width: share of samples; orange: your code, blue: libraries; point at a box for its file and share"
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = (
    "text{font:11px ui-monospace,monospace;pointer-events:none}"
    "rect{rx:1}g.f:hover rect{stroke:#000;stroke-width:1}"
)


@dataclass(slots=True)
class _Node:
    """A function at its place in the graph; `line` is where most of its samples are."""

    name: str
    title: str
    library: bool
    count: int = 0
    below: dict[object, _Node] = field(default_factory=dict)


def flame_graph(title: str, parts: Mapping[str, Sequence[FoldedStack]], *, workspace: str = "") -> str:
    """The stacks of all parts; where there are several, each has a box of its own below the first one.

    The title of a box, which a browser shows at the pointer, is its function, file, samples and share.
    """
    root = _Node("all", "all", True)
    for name, stacks in parts.items():
        top = root
        if len(parts) > 1:
            top = root.below.setdefault(name, _Node(name, name, True))
            top.count += sum(stack.count for stack in stacks)
        for stack in stacks:
            root.count += stack.count
            _add(top, stack, workspace)
    boxes = list(_boxes(root, max(1, root.count)))
    height = _TOP + (1 + max((depth for depth, *_ in boxes), default=0)) * _ROW + 8
    size = f'width="{_WIDTH:.0f}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH:.0f} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect {size} fill="#fff"/>',
        f'<text x="8" y="18">{_text(title)}</text>',
        f'<text x="8" y="34" fill="#666">{_LEGEND}</text>',
    ]
    return "\n".join([*lines, *(_box(*box) for box in boxes), "</svg>\n"])


def _add(top: _Node, stack: FoldedStack, workspace: str) -> None:
    node = top
    for frame in stack.frames[:_DEEPEST]:
        key = (frame.function, frame.file)
        below = node.below.get(key)
        if below is None:
            below = node.below[key] = _new(frame, workspace)
        below.count += stack.count
        node = below


def _new(frame: Frame, workspace: str) -> _Node:
    where = short_path(frame.file, workspace)
    return _Node(
        frame.function, f"{frame.function} ({where})" if where else frame.function, is_library(frame.file)
    )


def _boxes(root: _Node, samples: int) -> Iterator[tuple[int, float, float, _Node, float]]:
    """Depth, left edge, width, and share of each; those that would be too narrow to see are left out."""
    waiting: list[tuple[int, float, _Node]] = [(0, 0.0, root)]
    while waiting:
        depth, left, node = waiting.pop()
        share = node.count / samples
        width = share * _WIDTH
        if width < _NARROWEST:
            continue
        yield depth, left, width, node, share
        for below in sorted(node.below.values(), key=lambda one: one.title):
            waiting.append((depth + 1, left, below))
            left += below.count / samples * _WIDTH


def _box(depth: int, left: float, width: float, node: _Node, share: float) -> str:
    top = _TOP + depth * _ROW
    room = int((width - 6) / _LETTER)
    words = node.name if len(node.name) <= room else f"{node.name[: room - 2]}.." if room > 4 else ""
    label = f'<text x="{left + 3:.1f}" y="{top + 12}">{_text(words)}</text>' if words else ""
    hover = _text(f"{node.title}: {node.count:,} samples, {100 * share:.1f} %")
    place = f'x="{left:.1f}" y="{top}" width="{max(width - 0.5, 0.2):.1f}" height="{_ROW - 1}"'
    return f'<g class="f"><title>{hover}</title><rect {place} fill="{_colour(node)}"/>{label}</g>'


def _colour(node: _Node) -> str:
    shade = zlib.crc32(node.title.encode("utf-8", "replace")) % 24
    return f"hsl(212,{38 + shade % 8}%,{76 + shade % 12}%)" if node.library else f"hsl({22 + shade},88%,66%)"


def _text(words: str) -> str:
    return escape(_CONTROL.sub("?", words))
