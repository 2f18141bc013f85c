"""Results for people: tables on a terminal, plain lines elsewhere, JSON on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...tools.registry import Answer, Text

__all__ = ["print_answer", "print_rows"]


def print_answer(answer: Answer, output: str) -> None:
    """A tool's answer: text as it is, a structured one as `field: value` lines."""
    if output == "json":
        content = {"text": answer.text} if isinstance(answer, Text) else answer.content()
        print(json.dumps(content, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))
    elif isinstance(answer, Text):
        print(answer.text)
    else:
        _print_fields(answer.content())


def print_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal; elsewhere a line a row, columns apart by tabs and without a header."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(" ".join(cell.split()) for cell in row).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as RichText

    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(RichText(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console().print(table)


_STYLES = {
    "ready": "green",
    "running": "cyan",
    "succeeded": "green",
    "ok": "green",
    "degraded": "yellow",
    "warning": "yellow",
    "failed": "red",
    "lost": "red",
    "missing": "red",
    "cancelled": "yellow",
    "released": "dim",
}


def _print_fields(content: Mapping[str, Any], indent: str = "") -> None:
    for name, value in content.items():
        if isinstance(value, Mapping):
            print(f"{indent}{name}:")
            _print_fields(value, f"{indent}  ")
        elif isinstance(value, list):
            print(f"{indent}{name}:" + (" none" if not value else ""))
            for item in value:
                line = (
                    ", ".join(f"{key}={_inline(part)}" for key, part in item.items())
                    if isinstance(item, Mapping)
                    else item
                )
                print(f"{indent}  - {line}")
        elif isinstance(value, str) and "\n" in value:
            print(f"{indent}{name}:")
            print("\n".join(f"{indent}  {line}" for line in value.splitlines()))
        else:
            print(f"{indent}{name}: {_inline(value)}")


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
