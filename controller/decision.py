"""The result of a command: a reply, and the events that must be applied for the reply to be true.

Invariant: a decision changes nothing. Its reply may be sent only after all of its events have been applied. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controller.events import Event
from remoting.codes import ResponseCode
from remoting.header import Header


@dataclass(frozen=True, slots=True)
class Decision:
    """A reply, and the events that must be applied before the reply is sent."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = None
    body: bytes | None = None
    events: tuple[Event, ...] = ()
    reason: str | None = None
    """Reason of the election among the events."""
