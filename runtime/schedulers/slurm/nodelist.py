"""Slurm's lists of nodes: `n[0-2,5],gpu-[01-02]b[1-2],login`, to the names, in their order. Pure."""

from __future__ import annotations

import itertools

__all__ = ["expand"]

MOST_NODES = 65536


def expand(text: str) -> tuple[str, ...]:
    """The names that the list stands for; none for an empty one and for `(null)`.

    Raises:
        ValueError: it is no list of nodes, or one of more than `MOST_NODES`.
    """
    if text in ("", "(null)", "None", "None assigned"):
        return ()
    names: list[str] = []
    for item in _split(text):
        for name in _expand_one(item):
            names.append(name)
            if len(names) > MOST_NODES:
                raise ValueError(f"more than {MOST_NODES} nodes: {text[:80]}")
    return tuple(names)


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    items, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {text[:80]!r}")
        if letter == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    if depth:
        raise ValueError(f"brackets do not match in {text[:80]!r}")
    return [*items, text[start:]]


def _expand_one(item: str) -> itertools.chain[str] | list[str]:
    if not item or any(letter.isspace() for letter in item):
        raise ValueError(f"no node name: {item[:80]!r}")
    before, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    inside, _, after = rest.partition("]")
    tails = list(_expand_one(after)) if after else [""]
    return itertools.chain.from_iterable(
        (f"{before}{number}{tail}" for tail in tails)
        for part in inside.split(",")
        for number in _numbers(part)
    )


def _numbers(part: str) -> list[str]:
    """`3`, or `08-11`, whose numbers have the width of the first."""
    low, dash, high = part.partition("-")
    if not _is_number(low) or (dash and not _is_number(high)):
        raise ValueError(f"no number or range: {part[:40]!r}")
    if not dash:
        return [low]
    first, last = int(low), int(high)
    if not first <= last < first + MOST_NODES:
        raise ValueError(f"no range: {part[:40]!r}")
    width = len(low) if low.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(first, last + 1)]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
