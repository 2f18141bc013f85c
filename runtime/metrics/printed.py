"""Points in what a program prints for people: `step 12 loss 3.41`, `loss: nan`, the postfix of a bar. Pure.

In doubt a line is left out: a wrong number does more harm than a missing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .json_lines import parse_json_lines
from .series import MetricPoint
from .words import is_metric, is_progress

__all__ = ["parse_printed"]

_LONGEST = 2000
_CONTROL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
# Behind a number: no unit, no part of a longer number, a date or a path.
_END = r"(?![\w])(?!\.\d)(?!,\d)(?![-/:]\d)(?!/)"
_NAME = r"[A-Za-z][\w/.@-]{0,79}"
_PAIR = re.compile(
    rf"(?<![\w/.@-])(?P<name>{_NAME})(?:['\"]?\s{{0,3}}(?P<mark>[:=])\s{{0,8}}|(?P<blank>\s{{1,8}}))"
    rf"(?:(?:tensor\(|np\.float\d\d\()\s?)?(?P<value>{_NUMBER}){_END}",
    re.IGNORECASE,
)
_BECAME = re.compile(
    r"\b(?P<name>[A-Za-z][\w/]*) (?:is|became|was) (?P<value>[-+]?(?:nan|inf))\b", re.IGNORECASE
)
_STEP = re.compile(
    r"(?<![\w/.])(?:global[_ ]?step|train[_ ]?step|step|iteration|iter|itr|it|update|num_updates|batch)"
    r"['\"]?\s{0,3}[:=#]?\s{0,8}\[?\s{0,8}(?P<step>\d{1,15})(?![\w.]|:\d)",
    re.IGNORECASE,
)
_BAR = re.compile(r"(?<![\w/.])(?P<step>\d{1,15})/\d{1,15}\s?\[")
_IN_EPOCH = re.compile(
    r"epoch\W{0,4}\[?\d+(?:/\d+)?\]?\W{0,4}\[\s{0,8}(?P<step>\d{1,15})\s?/\s?\d+\]", re.IGNORECASE
)
_EPOCH = re.compile(
    r"(?<![\w/.])epoch['\"]?\s{0,3}[:=#]?\s{0,8}\[?\s{0,3}(?P<epoch>\d{1,9})(?![\w.]\d)", re.IGNORECASE
)


def parse_printed(data: bytes) -> Iterator[MetricPoint]:
    """One point a line, or a state of a bar; lines of JSON are read as such."""
    quoted = False
    for raw in re.split(rb"[\r\n]", _CONTROL.sub(b"", data)):
        if not raw or len(raw) > _LONGEST:
            continue
        # A traceback quotes the program's own text behind each of these.
        was_quoted, quoted = quoted, raw.lstrip().startswith(b'File "')
        if was_quoted or quoted:
            continue
        if raw.lstrip().startswith(b"{") and (points := list(parse_json_lines(raw))):
            yield from points
        elif (point := _read(raw.decode("utf-8", "replace"))) is not None:
            yield point


def _read(line: str) -> MetricPoint | None:
    step = _step(line)
    values: dict[str, float] = {}
    for found in _PAIR.finditer(line):
        name, text = found["name"], found["value"]
        # `loss 3` alone may be prose; with a mark, a fraction or a step beside it, it is a value.
        clear = found["mark"] or step is not None or not text.lstrip("+-").isdecimal()
        if clear and is_metric(name):
            values.setdefault(name, float(text))
    for found in _BECAME.finditer(line):
        if is_metric(found["name"]):
            values.setdefault(found["name"], float(found["value"]))
    if not values or (step is None and not any(map(is_progress, values))):
        return None
    if epoch := _EPOCH.search(line):
        values["epoch"] = float(epoch["epoch"])
    return MetricPoint(step, None, values)


def _step(line: str) -> int | None:
    for pattern in (_IN_EPOCH, _STEP, _BAR):
        if found := pattern.search(line):
            return int(found["step"])
    return None
