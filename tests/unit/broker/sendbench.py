"""A scripted log and scripted replication for sends."""

from __future__ import annotations

from collections.abc import Sequence

from messagestore.messages import MessageToStore, PutResult, PutStatus
from messagestore.record import pack_host

RECORD_BYTES = 100


class ScriptedLog:
    """Every message takes 100 bytes."""

    store_host = pack_host("10.0.0.1", 10911)

    def __init__(self) -> None:
        self.batches: list[list[MessageToStore]] = []
        self.end = 0
        self.error: PutStatus | None = None

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        self.batches.append(list(messages))
        return [self._append(message) for message in messages]

    def _append(self, message: MessageToStore) -> PutResult:
        if self.error is not None:
            return PutResult(-1, -1, -1, 0, -1, self.error)
        start, count = self.end, 2 if message.batch else 1
        self.end += RECORD_BYTES * count
        offsets = tuple(range(start, self.end, RECORD_BYTES)) if message.batch else ()
        return PutResult(start, self.end, start // RECORD_BYTES, count, 0, None, offsets)


class ScriptedReplication:
    def __init__(self) -> None:
        self.accepts_sends = True
        self.is_slave = False
        self.enough = True
        self.acked = 0
        self.stored = 0
        self.in_reach = True

    def enough_in_sync(self) -> bool:
        return self.enough

    def acked_end(self) -> int:
        return self.acked

    def stored_end(self) -> int:
        return self.stored

    def followed_end(self) -> int:
        return self.acked

    def reachable(self, end: int) -> bool:
        return self.in_reach
