"""Decodes message traces: clients' reports on messages that they sent or consumed, in the bodies of the trace topic's messages.

Invariant: a line that is not in upstream's form is left out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

CONTENT, FIELD = "\x01", "\x02"
PUB, SUB_AFTER = "Pub", "SubAfter"


@dataclass(frozen=True, slots=True)
class Trace:
    """One send (Pub) or one consumed message (SubAfter). Times are in ms; 0 if an old client sent none."""

    kind: str
    group: str
    time_ms: int
    cost_ms: int
    success: bool


def traces_in(body: str, message_id: str) -> list[Trace]:
    """The traces of one message in the body of a trace message."""
    found = (_trace(part.split(CONTENT), message_id) for part in body.split(FIELD))
    return [trace for trace in found if trace is not None]


def _trace(line: list[str], message_id: str) -> Trace | None:
    try:
        if line[0] == PUB and line[5] == message_id:
            success = line[13 if len(line) >= 14 else 12]
            return Trace(PUB, line[3], int(line[1]), int(line[10]), success == "true")
        if line[0] == SUB_AFTER and line[2] == message_id:
            named = len(line) >= 9
            return Trace(
                SUB_AFTER,
                line[8] if named else "",
                int(line[7]) if named else 0,
                int(line[3]),
                line[4] == "true",
            )
    except (IndexError, ValueError):
        return None
    return None
