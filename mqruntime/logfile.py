"""A log file that is renamed when it has grown, so that its files together stay within a known size.

Invariant: writing never raises, whatever the disk does. Lost lines are counted: the first is reported on standard error, their
number in the file once it can be written again."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from mqruntime.log import fields

FILE_BYTES = 64 * 1024 * 1024
FILES_KEPT = 10


class LogFile(RotatingFileHandler):
    """`path`, then `path.1` (the newest of the old) to `path.<kept>`; each of at most `bytes_max` bytes, 0 for no limit.

    Raises OSError when `path` cannot be opened for appending."""

    def __init__(self, path: Path, *, bytes_max: int = FILE_BYTES, kept: int = FILES_KEPT) -> None:
        super().__init__(
            path, maxBytes=bytes_max, backupCount=kept, encoding="utf-8", errors="backslashreplace"
        )
        self._lines_lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        lost = self._lines_lost
        super().emit(record)
        if lost and self._lines_lost == lost:
            self._lines_lost = 0
            extra = fields(lines=lost)
            super().emit(logging.makeLogRecord({**vars(record), **_WRITABLE_AGAIN, **extra}))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Close the file, which may end with part of a line; the next line opens it again."""
        error = sys.exc_info()[1]
        stream, self.stream = self.stream, None  # type: ignore[assignment] # as RotatingFileHandler does
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.close()
        self._lines_lost += 1
        if self._lines_lost == 1 and sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(
                    f"log file {self.baseFilename}: {error}; lines are lost until it can be written\n"
                )
                sys.stderr.flush()


_WRITABLE_AGAIN = {
    "name": __name__,
    "levelno": logging.WARNING,
    "levelname": "WARNING",
    "msg": "log lines could not be written",
    "args": (),
    "exc_info": None,
}
