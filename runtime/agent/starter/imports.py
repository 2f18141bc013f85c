"""What a program imports, as far as its text tells."""

from __future__ import annotations

import re
import sys

__all__ = ["imports_stdlib_alone"]

_IMPORT = re.compile(r"(?:^|[;:])[ \t]*(?:from[ \t]+([\w.]+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_DYNAMIC = re.compile(r"__import__|import_module|\bexec\b|\beval\b|\brunpy\b|\bimport[ \t]*\\")


def imports_stdlib_alone(text: str) -> bool:
    """Whether the text names no other module. False in doubt, and for no text at all."""
    if not text.strip() or _DYNAMIC.search(text):
        return False
    for found in _IMPORT.finditer(text):
        names = (found[1] or found[2] or ".").split(",")
        if any(_top(name) not in sys.stdlib_module_names for name in names):
            return False
    return True


def _top(name: str) -> str:
    """`os` of `os.path as p`."""
    return name.strip().partition(" ")[0].partition(".")[0]
