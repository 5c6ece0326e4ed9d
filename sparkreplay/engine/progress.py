"""A command's progress on stderr. On a terminal it is a bar with bytes, rows, rate and time left, else a line from time to
time.

Invariant: nothing is written to stdout, and with `quiet` nothing at all."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Protocol, TextIO

LINE_EVERY_S = 5.0


class WorkProgress(Protocol):
    """Call `advance` as work is done; use it as a context."""

    def advance(self, bytes_done: int, rows: int) -> None: ...

    def __enter__(self) -> WorkProgress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress(what: str, bytes_total: int, *, quiet: bool, stream: TextIO = sys.stderr) -> WorkProgress:
    """The progress of reading `bytes_total` of log."""
    if quiet:
        return Silent()
    return Bar(what, bytes_total) if draws(stream) else Lines(what, bytes_total, stream)


def draws(stream: TextIO) -> bool:
    """Whether a bar can be drawn, which needs a terminal of a known type that is not dumb."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class Silent:
    def advance(self, bytes_done: int, rows: int) -> None:
        """Nothing is shown."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was drawn."""


class Lines:
    """Plain lines for logs and pipes. Work of less than a few seconds gets no line."""

    def __init__(self, what: str, bytes_total: int, stream: TextIO) -> None:
        self.what = what
        self.total = bytes_total
        self.stream = stream
        self.bytes = 0
        self.rows = 0
        self.began = self.logged_at = time.monotonic()

    def advance(self, bytes_done: int, rows: int) -> None:
        self.bytes += bytes_done
        self.rows += rows
        now = time.monotonic()
        if now - self.logged_at < LINE_EVERY_S or not self.bytes:
            return
        self.logged_at = now
        rate = self.bytes / (now - self.began)
        left = (self.total - self.bytes) / rate
        print(
            f"{self.what}: {size_text(self.bytes)} of {size_text(self.total)}, {self.rows:,} rows, "
            f"{size_text(rate)}/s, {left:.0f} s left",
            file=self.stream,
            flush=True,
        )

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The command's summary reports the end."""


class Bar:
    """A bar, which is removed at the end."""

    def __init__(self, what: str, bytes_total: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Drawing

        self.drawing = Drawing(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("{task.fields[rows]:,} rows"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.drawing.add_task(what, total=bytes_total, rows=0)
        self.rows = 0

    def advance(self, bytes_done: int, rows: int) -> None:
        self.rows += rows
        self.drawing.update(self.task, advance=bytes_done, rows=self.rows)

    def __enter__(self) -> Bar:
        self.drawing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drawing.stop()


def size_text(size: float) -> str:
    """`12.3 MB`; MB are 10^6 bytes."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
