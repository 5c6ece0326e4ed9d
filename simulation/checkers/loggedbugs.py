"""Collects bugs that product code caught and only logged.

Invariant: while it is attached, every log record of level ERROR with a built-in exception (other than OSError) is kept. A
failed assertion must fail a simulated run, even if the server caught it, answered with code 1, or retried."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mqruntime.serve import is_bug


class LoggedBugs(logging.Handler):
    """`bugs` are the texts of such errors, oldest first."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_bug(error):
            self.bugs.append(f"{record.name} logged {record.getMessage()!r}: {error!r}")

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Within this block, handle the root logger's records. If no other handler reads the log, records below ERROR are not
        created, to save time."""
        root = logging.getLogger()
        level = root.level
        if not root.handlers:
            root.setLevel(logging.ERROR)
        root.addHandler(self)
        try:
            yield
        finally:
            root.removeHandler(self)
            root.setLevel(level)
