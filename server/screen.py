"""What demonstrations and replays show: panels on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["PlainScreen", "RichScreen", "Screen", "open_screen"]

COLUMNS = ("tool", "calls", "characters", "seconds")
Row = tuple[str, int, int, float]


class Screen(Protocol):
    def heading(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def call(self, text: str) -> None:
        """A call that is about to be made."""
        ...

    def answer(self, text: str, elapsed_s: float, characters: int) -> None:
        """The answer to the last call."""
        ...

    def diff(self, text: str) -> None: ...

    def table(self, rows: Iterable[Row]) -> None:
        """The calls by tool; the last row is their sum."""
        ...


def open_screen(output: TextIO | None = None, *, plain: bool = False) -> Screen:
    """A screen for standard output, or for another stream."""
    output = output or sys.stdout
    return PlainScreen(output) if plain or not output.isatty() else RichScreen(output)


class PlainScreen:
    def __init__(self, output: TextIO) -> None:
        self._output = output

    def heading(self, text: str) -> None:
        self._say(f"\n== {text}")

    def note(self, text: str) -> None:
        self._say(text)

    def call(self, text: str) -> None:
        self._say(f"\n> {text}")

    def answer(self, text: str, elapsed_s: float, characters: int) -> None:
        self._say(f"{text}\n{_cost(elapsed_s, characters)}")

    def diff(self, text: str) -> None:
        self._say(f"\n{text}")

    def table(self, rows: Iterable[Row]) -> None:
        self._say("")
        for cells in [COLUMNS, *_cells(rows)]:
            self._say(f"{cells[0]:<16}{cells[1]:>7}{cells[2]:>12}{cells[3]:>9}")

    def _say(self, text: str) -> None:
        self._output.write(f"{text}\n")
        self._output.flush()


class RichScreen:
    def __init__(self, output: TextIO) -> None:
        from rich.console import Console

        self._console: Console = Console(file=output, highlight=False)
        self._title = ""

    def heading(self, text: str) -> None:
        from rich.rule import Rule
        from rich.text import Text

        self._console.print()
        self._console.print(Rule(Text(text, style="bold"), align="left", style="dim"))

    def note(self, text: str) -> None:
        self._console.print(text, markup=False)

    def call(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style="cyan"))

    def answer(self, text: str, elapsed_s: float, characters: int) -> None:
        from rich.panel import Panel
        from rich.syntax import Syntax
        from rich.text import Text

        is_json = text.startswith("{")
        body = Syntax(text, "json", word_wrap=True, background_color="default") if is_json else Text(text)
        self._console.print(
            Panel(body, subtitle=_cost(elapsed_s, characters), subtitle_align="right", border_style="dim")
        )

    def diff(self, text: str) -> None:
        from rich.syntax import Syntax

        self._console.print(Syntax(text, "diff", word_wrap=True, background_color="default"))

    def table(self, rows: Iterable[Row]) -> None:
        from rich.table import Table

        table = Table(header_style="bold", box=None, pad_edge=False)
        for at, column in enumerate(COLUMNS):
            table.add_column(column, justify="right" if at else "left")
        every = list(_cells(rows))
        for cells in every:
            table.add_row(*cells, style="bold" if cells is every[-1] else "")
        self._console.print()
        self._console.print(table)


def _cost(elapsed_s: float, characters: int) -> str:
    return f"{elapsed_s * 1000:,.0f} ms, {characters:,} characters"


def _cells(rows: Iterable[Row]) -> Iterable[Sequence[str]]:
    return (
        (tool, f"{calls}", f"{characters:,}", f"{elapsed_s:.1f}")
        for tool, calls, characters, elapsed_s in rows
    )
