"""The range of a broker's log, from its runtime information (GET_BROKER_RUNTIME_INFO, 28), which Java brokers return too.

Pure."""

from __future__ import annotations

from typing import NamedTuple

from ha.errors import MasterUnread
from remoting import fastjson
from remoting.command import Body


class LogSpan(NamedTuple):
    """The range [begins, ends) in bytes."""

    begins: int
    ends: int


def log_span(body: Body | None) -> LogSpan:
    """The log range in runtime information. Raises MasterUnread."""
    try:
        table = fastjson.loads(body or b"{}")["table"]
        return LogSpan(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
    except (fastjson.FastJsonError, KeyError, TypeError, ValueError) as error:
        raise MasterUnread(f"the master does not report where its log begins and ends: {error!r}") from error
