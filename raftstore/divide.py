"""Where a broker's plain log ends and its log of Raft mode begins (upstream: dividedCommitlogOffset), and what the first was.

Invariant: members whose plain logs end alike find the same words for it, whichever broker closed the log: where it ends, where
the last record of its last file does, and the CRC-32 of the records in that file. Earlier files are taken to agree where that
does: they are of one set, whose replicas copy one log. Pure."""

from __future__ import annotations

from typing import NamedTuple

from dledger.storage.keyvalues import parse_key_values, whole_number
from raftstore.queueends import QueueEnd, decode_queue_ends, encode_queue_ends

FILE = "divide"
"""In the folder of the member."""
NUMBERS = "dividedCommitlogOffset", "recordsEnd", "check", "gone", "filling", "begins"
QUEUE_ENDS = "queueEnds"


class Divide(NamedTuple):
    at: int
    """Where the plain log ends, and its last file."""
    records_end: int
    check: int
    gone: bool = False
    """Nothing of it is left, or about to be."""
    filling: bool = False
    """What is there of it is void: another member's is being copied."""
    begins: int = 0
    """Where it began when this was told."""
    queue_ends: tuple[QueueEnd, ...] = ()
    """Where queues began when this was told to a member that had nothing."""

    @property
    def told(self) -> str:
        return f"commitlog up to {self.at}, whose records end at {self.records_end} with CRC {self.check:08x}"


def encode_divide(divide: Divide) -> bytes:
    told = dict(zip(NUMBERS, map(int, divide[:-1]), strict=True))
    ends = encode_queue_ends(divide.queue_ends).decode()
    return "".join(f"{key}={value}\n" for key, value in [*told.items(), (QUEUE_ENDS, ends)]).encode()


def decode_divide(name: str, data: bytes) -> Divide:
    """What stands in the file `name`. Raises BadKeyValues, QueueEndsUnreadable."""
    values = parse_key_values(name, data)
    at, records_end, check, gone, filling, begins = (
        whole_number(name, values, key, least=0) for key in NUMBERS
    )
    ends = tuple(decode_queue_ends(values.get(QUEUE_ENDS, "").encode()))
    return Divide(at, records_end, check, gone > 0, filling > 0, begins, ends)
