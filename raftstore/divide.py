"""The boundary between a broker's plain log and its log of Raft mode (upstream: dividedCommitlogOffset), and the
identity of the plain log.

Invariant: members whose plain logs end alike describe them alike, whichever broker closed the log: by its end, the
end of the last record in its last file, and the CRC-32 of the records in that file. Earlier files are assumed to
agree if that one does: they are of one set, whose replicas copy one log. Pure."""

from __future__ import annotations

from typing import NamedTuple

from dledger.storage.keyvalues import parse_key_values, whole_number
from raftstore.queueends import EmptiedQueueEnd, decode_queue_ends, encode_queue_ends

FILE = "divide"
"""In the folder of the member."""
NUMBERS = "dividedCommitlogOffset", "recordsEnd", "check", "gone", "filling", "begins"
QUEUE_ENDS = "queueEnds"


class Divide(NamedTuple):
    at: int
    """End of the plain log, and of its last file."""
    records_end: int
    check: int
    gone: bool = False
    """Nothing of it is left, or it is about to be deleted."""
    filling: bool = False
    """The local copy is void: another member's is being fetched."""
    begins: int = 0
    """Start of the plain log when this was sent."""
    queue_ends: tuple[EmptiedQueueEnd, ...] = ()
    """Starts of the queues when this was sent to an empty member."""

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
