"""The divide: the offset where a broker's plain log (the commit log from before Raft mode) ends and its DLedger log begins
(upstream: dividedCommitlogOffset), and the identity of the plain log.

Invariant: plain logs with the same last file have the same description, whichever broker closed them. The description is the
log's end, the end of the last record, and the CRC-32 of the records in the last file. If the last files agree, the earlier
files are assumed to agree too, because all replicas of a set copy one log. Pure."""

from __future__ import annotations

from typing import NamedTuple

from dledger.storage.keyvalues import parse_key_values, whole_number
from raftstore.queueends import EmptiedQueueEnd, decode_queue_ends, encode_queue_ends

FILE = "divide"
"""The name of the file in the member's folder."""
NUMBERS = "dividedCommitlogOffset", "recordsEnd", "check", "gone", "filling", "begins"
QUEUE_ENDS = "queueEnds"


class Divide(NamedTuple):
    at: int
    """End of the plain log, and of its last file."""
    records_end: int
    check: int
    gone: bool = False
    """No file of the plain log is left, or its last file is about to be deleted."""
    filling: bool = False
    """The local copy is incomplete: it is being fetched from another member."""
    begins: int = 0
    """Start of the plain log when this description was sent."""
    queue_ends: tuple[EmptiedQueueEnd, ...] = ()
    """Starts of the queues when this description was sent to an empty member."""

    @property
    def description(self) -> str:
        return f"commitlog up to {self.at}, whose records end at {self.records_end} with CRC {self.check:08x}"


def encode_divide(divide: Divide) -> bytes:
    numbers = dict(zip(NUMBERS, map(int, divide[:-1]), strict=True))
    ends = encode_queue_ends(divide.queue_ends).decode()
    return "".join(f"{key}={value}\n" for key, value in [*numbers.items(), (QUEUE_ENDS, ends)]).encode()


def decode_divide(name: str, data: bytes) -> Divide:
    """Decode the contents of the file `name`. Raises BadKeyValues, QueueEndsUnreadable."""
    values = parse_key_values(name, data)
    at, records_end, check, gone, filling, begins = (
        whole_number(name, values, key, least=0) for key in NUMBERS
    )
    ends = tuple(decode_queue_ends(values.get(QUEUE_ENDS, "").encode()))
    return Divide(at, records_end, check, gone > 0, filling > 0, begins, ends)
