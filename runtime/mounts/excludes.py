"""Which names of a tree hosts do not see: rules in the manner of `.gitignore`, on bytes.

The last rule that fits decides; `!` takes back; `/` at the end: directories only; `/` elsewhere: from the
root; `**` crosses directories. What is in an excluded directory is out, whatever the rules say of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["DEFAULT", "IGNORE_FILE", "Excluded", "Rules"]

_MAGIC = re.compile(rb"[*?\[\\]")

IGNORE_FILE = b".milkweedignore"
"""At the root of a workspace: more rules, after the default ones."""

DEFAULT = (
    b".git/",
    b".hg/",
    b".svn/",
    b".jj/",
    b"__pycache__/",
    b"!**/site-packages/**/__pycache__/",  # an environment without them would compile on every host
    b"!**/dist-packages/**/__pycache__/",
    b"!**/lib/python3*/**/__pycache__/",
    b".mypy_cache/",
    b".pytest_cache/",
    b".ruff_cache/",
    b".hypothesis/",
    b".ipynb_checkpoints/",
    b".DS_Store",
    b".milkweed-token-*",
)


@dataclass(frozen=True, slots=True)
class Excluded:
    """One path that was left out, why (a rule, or what it is), and how much it is; -1: not counted yet."""

    path: bytes
    why: str
    files: int = -1
    size: int = -1


@dataclass(frozen=True, slots=True)
class _Rule:
    text: bytes
    pattern: re.Pattern[bytes]
    on_name: bool
    directories_only: bool
    takes_back: bool
    literal: bytes
    """Its name, where no other name fits; else empty."""

    def fits(self, path: bytes, name: bytes, is_directory: bool) -> bool:
        if self.directories_only and not is_directory:
            return False
        return self.pattern.fullmatch(name if self.on_name else path) is not None


class Rules:
    """Made once, asked for every name of a tree."""

    def __init__(self, lines: Iterable[bytes] = DEFAULT) -> None:
        self._rules = [rule for line in lines if (rule := _parse(line)) is not None]
        excluding = [rule for rule in self._rules if not rule.takes_back]
        self._literal = frozenset(rule.literal for rule in excluding if rule.literal)
        self._names = _any_of([rule for rule in excluding if rule.on_name and not rule.literal])
        self._paths = _any_of([rule for rule in excluding if not rule.on_name])

    def excluding(self, path: bytes, name: bytes, is_directory: bool) -> str | None:
        """The rule that leaves it out, or None."""
        if (
            name not in self._literal
            and (self._names is None or self._names(name) is None)
            and (self._paths is None or self._paths(path) is None)
        ):
            return None
        for rule in reversed(self._rules):
            if rule.fits(path, name, is_directory):
                return None if rule.takes_back else rule.text.decode(errors="backslashreplace")
        return None


def _any_of(rules: list[_Rule]) -> Callable[[bytes], object] | None:
    """What tells quickly that none of them fits."""
    if not rules:
        return None
    return re.compile(b"|".join(b"(?:" + rule.pattern.pattern + b")" for rule in rules), re.DOTALL).fullmatch


def _parse(line: bytes) -> _Rule | None:
    text = line.rstrip(b"\r\n")
    while text.endswith(b" ") and not text.endswith(b"\\ "):
        text = text[:-1]
    if not text or text.startswith(b"#"):
        return None
    rest = text
    takes_back = rest.startswith(b"!")
    rest = rest.removeprefix(b"!")
    directories_only = rest.endswith(b"/")
    rest = rest.rstrip(b"/")
    on_name = b"/" not in rest
    rest = rest.removeprefix(b"/")
    if not rest:
        return None
    try:
        pattern = re.compile(_translated(rest), re.DOTALL)
    except re.error:
        return None
    literal = rest if on_name and not _MAGIC.search(rest) else b""
    return _Rule(text, pattern, on_name, directories_only, takes_back, literal)


def _translated(glob: bytes) -> bytes:
    out, at = b"", 0
    while at < len(glob):
        if glob.startswith(b"**/", at) and (at == 0 or glob[at - 1 : at] == b"/"):
            out, at = out + b"(?:.*/)?", at + 3
        elif glob[at:] == b"**" and (at == 0 or glob[at - 1 : at] == b"/"):
            out, at = out + b".*", at + 2
        elif glob[at : at + 1] == b"*":
            while glob[at : at + 1] == b"*":
                at += 1
            out += b"[^/]*"
        elif glob[at : at + 1] == b"?":
            out, at = out + b"[^/]", at + 1
        elif glob[at : at + 1] == b"[" and (end := glob.find(b"]", at + 2)) > 0:
            inside = glob[at + 1 : end]
            negated = inside[:1] in {b"!", b"^"}
            inside = inside[1:] if negated else inside
            out += b"(?!/)[" + (b"^" if negated else b"") + inside.replace(b"\\", b"\\\\") + b"]"
            at = end + 1
        else:
            if glob[at : at + 1] == b"\\" and at + 1 < len(glob):
                at += 1
            out, at = out + re.escape(glob[at : at + 1]), at + 1
    return out
