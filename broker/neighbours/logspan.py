"""Where a broker's log begins and ends, as it tells anybody (28); Java answers that, too.

Pure."""

from __future__ import annotations

from typing import NamedTuple

from ha.errors import MasterUnread
from remoting import fastjson
from remoting.command import Body


class LogSpan(NamedTuple):
    """Bytes [begins, ends)."""

    begins: int
    ends: int


def log_span(body: Body | None) -> LogSpan:
    """Of the broker whose runtime information this is. Raises MasterUnread."""
    try:
        table = fastjson.loads(body or b"{}")["table"]
        return LogSpan(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
    except (fastjson.FastJsonError, KeyError, TypeError, ValueError) as error:
        raise MasterUnread(f"its master does not say where its log begins and ends: {error!r}") from error
