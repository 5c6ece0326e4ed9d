"""Logging of one process: one line an event, `key=value` fields.

Invariant: an event is one line whatever its fields hold; line breaks in them are escaped.

    log = logging.getLogger("broker.replicas")
    log.info("became master", extra=fields(epoch=4, broker_id=2))
    # 2026-01-01T00:00:00.000Z INFO broker.replicas became master epoch=4 broker_id=2"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

FIELDS = "fields"


def fields(**values: Any) -> dict[str, Any]:
    """The `extra` argument of a logging call."""
    return {FIELDS: values}


class LineFormatter(logging.Formatter):
    """`time LEVEL logger message key=value ...`; values with blanks or quotes are quoted as JSON strings."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_time(record), record.levelname, record.name, _escaped(record.getMessage())]
        words += [f"{key}={_quoted(value)}" for key, value in _fields(record, self).items()]
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(_fields(record, self) | line, default=str)


def configure(
    *,
    level: int = logging.INFO,
    as_json: bool = False,
    stream: TextIO | None = None,
    file: logging.Handler | None = None,
) -> None:
    """Send the process' log to `stream` (standard error), or to `file` and then only CRITICAL lines to `stream` too; replaces
    an earlier configuration."""
    handlers: list[logging.Handler] = [logging.StreamHandler(stream or sys.stderr)]
    if file is not None:
        handlers[0].setLevel(logging.CRITICAL)
        handlers.append(file)
    for handler in handlers:
        handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level)


def separate(name: str, file: logging.Handler, *, as_json: bool = False) -> None:
    """Send the lines of one logger to `file` only."""
    file.setFormatter(JsonFormatter() if as_json else LineFormatter())
    logger = logging.getLogger(name)
    logger.handlers[:] = [file]
    logger.propagate = False


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord, formatter: logging.Formatter) -> dict[str, Any]:
    values: dict[str, Any] = dict(getattr(record, FIELDS, {}))
    if record.exc_info:
        values["exception"] = formatter.formatException(record.exc_info)
    return values


def _quoted(value: Any) -> str:
    text = str(value)
    plain = text.isprintable() and not any(char in ' "=' for char in text) and text != ""
    return text if plain else _printable(json.dumps(text, ensure_ascii=False))


def _escaped(text: str) -> str:
    return text if text.isprintable() else _printable(json.dumps(text, ensure_ascii=False)[1:-1])


def _printable(text: str) -> str:
    """With escapes for characters such as the line separator of Unicode, which would begin another line for some readers."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
