"""The progress of a resend, so that a killed resend can continue without a gap.

Invariant: no record that ends above `sent_below` was ever sent to the target. The target has acknowledged every record of a
queue that ends at or below `acked[queue]`. So a continued resend can duplicate only records between these two offsets. Pure."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from sparkreplay.resend.errors import ResendLedgerUnusable

VERSION = 2
PURPOSE = ("topic", "target", "namesrv", "queues", "rows", "epochs", "logs")


@dataclass
class SourceProgress:
    """One broker set's log. Offsets are physical; `acked` and `sent_below` are ends, exclusive."""

    done_below: int
    """Every record that begins below this was acknowledged, so a run begins to read here."""
    sent_below: int
    acked: dict[int, int] = field(default_factory=dict)
    """By queue id. For a queue that is absent, nothing above `done_below` is acknowledged."""

    def is_acked(self, queue_id: int, end: int) -> bool:
        return end <= self.acked.get(queue_id, self.done_below)


@dataclass
class Ledger:
    """The request of one resend, and its progress in each source. Counts are over all runs."""

    purpose: dict[str, Any]
    """Facts that must be equal in a later run: topic, target and its name servers, selected rows, and the sources with their
    epochs below the last bound and the marks of their logs."""
    sources: dict[str, SourceProgress] = field(default_factory=dict)
    acknowledged: int = 0
    maybe_twice: int = 0

    def encode(self) -> bytes:
        progress = {
            name: {
                "done_below": source.done_below,
                "sent_below": source.sent_below,
                "acked": {str(queue): end for queue, end in sorted(source.acked.items())},
            }
            for name, source in self.sources.items()
        }
        found = {
            "version": VERSION,
            "purpose": self.purpose,
            "sources": progress,
            "acknowledged": self.acknowledged,
            "maybe_twice": self.maybe_twice,
        }
        return json.dumps(found, indent=1).encode() + b"\n"


def decode_ledger(path: str, data: bytes) -> Ledger:
    """Raises ResendLedgerUnusable for bytes that no resend wrote."""
    try:
        found = json.loads(data)
        if found["version"] != VERSION:
            raise ResendLedgerUnusable(path, f"has version {found['version']}; this program writes {VERSION}")
        purpose = {name: found["purpose"][name] for name in PURPOSE}
        sources = {
            str(name): SourceProgress(
                int(source["done_below"]),
                int(source["sent_below"]),
                {int(queue): int(end) for queue, end in source["acked"].items()},
            )
            for name, source in found["sources"].items()
        }
        if not sources.keys() <= purpose["epochs"].keys() & purpose["logs"].keys():
            raise KeyError("epochs")
        return Ledger(purpose, sources, int(found["acknowledged"]), int(found["maybe_twice"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ResendLedgerUnusable(path, f"is damaged ({error!r})") from error


class Tracker:
    """Follows the rows of one source that are read but not acknowledged yet. They are passed to queues in the log's order, and
    acknowledged in each queue's order."""

    def __init__(self, progress: SourceProgress) -> None:
        self.progress = progress
        self.read_below = progress.done_below
        self._waiting: dict[int, deque[tuple[int, int]]] = {}  # (physical offset, end), oldest first

    def handed(self, queue_id: int, offset: int, end: int) -> None:
        self._waiting.setdefault(queue_id, deque()).append((offset, end))
        self.read_below = offset  # certainly a record's beginning: after its end may be a BLANK

    def acked(self, queue_id: int, count: int = 1) -> None:
        """The oldest `count` rows of the queue were acknowledged."""
        waiting = self._waiting[queue_id]
        for _ in range(count):
            self.progress.acked[queue_id] = waiting.popleft()[1]

    def passed(self, seam: int) -> None:
        """Note that every record below `seam` was passed to a queue or is not selected. A record or a segment begins at
        `seam`."""
        self.read_below = max(self.read_below, seam)

    def settle(self) -> SourceProgress:
        """The current progress, with `done_below` as high as possible."""
        heads = [waiting[0][0] for waiting in self._waiting.values() if waiting]
        self.progress.done_below = max(self.progress.done_below, min(heads, default=self.read_below))
        return self.progress
