"""Shows the progress of a run to a person: steps, lines, tables and meters. Without a terminal it prints plain lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

PLAIN_LINES = 4
"""Lines printed for each meter that cannot be drawn."""
PLAIN_WIDTH = 140


class Meter(Protocol):
    """The progress of one piece of work."""

    def advance(self, done: int) -> None:
        """`done` units are done in total."""
        ...


class DrawnMeter:
    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self.progress = progress
        self.task = progress.add_task(escape(title), total=total)

    def advance(self, done: int) -> None:
        self.progress.update(self.task, completed=done)


class PrintedMeter:
    def __init__(self, narrator: Narrator, title: str, total: int) -> None:
        self.narrator = narrator
        self.title = title
        self.total = total
        self.printed = 0

    def advance(self, done: int) -> None:
        quarter = done * PLAIN_LINES // max(1, self.total)
        if quarter > self.printed:
            self.printed = quarter
            self.narrator.line(f"{self.title}: {done} of {self.total}")


class Narrator:
    """Writes to standard output; every line is flushed at once."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = PLAIN_WIDTH

    def step(self, number: int, title: str) -> None:
        self.console.print(f"\n[bold]{number}. {escape(title)}[/bold]")

    def line(self, text: str, *, style: str = "") -> None:
        self.console.print(f"   {escape(text)}", style=style)

    def good(self, text: str) -> None:
        self.line(text, style="green")

    def bad(self, text: str) -> None:
        self.line(text, style="bold red")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 1))
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(escape(str(value)) for value in row))
        self.console.print(table)

    @contextmanager
    def meter(self, title: str, total: int) -> Iterator[Meter]:
        """Show the progress of one piece of work while the context lasts."""
        if not self.console.is_terminal:
            yield PrintedMeter(self, title, total)
            return
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            yield DrawnMeter(progress, title, total)
