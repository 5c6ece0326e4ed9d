"""Keeps track of stores that were damaged while their brokers were down, until the brokers have started on them.

Invariant: a broker must refuse to start on a log that is damaged below the confirm offset, is missing, or has another log's
epochs. It must start on any other log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ha.errors import EpochFileForeign
from messagestore.checkpoint import FILE, CheckpointDamaged, decode_checkpoint
from messagestore.errors import LogMissing, QueueUnmendable, StoreCorrupted
from messagestore.log.commitlog import FOLDER
from messagestore.record import FIXED_PARTS, decode
from simulation.cluster.looks import broker_on
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

LOG = f"{FOLDER}/"
FOREIGN_EPOCHS = "another broker's epoch file"


@dataclass(frozen=True)
class BitFlip:
    """A flipped bit. `at` is the offset of its byte in the file, and `offset` in the log. Its record is at [record_at,
    record_end) of the file."""

    path: str
    record_at: int
    record_end: int
    at: int
    bit: int
    offset: int
    bad: int = -1

    def flip(self, node: Node) -> BitFlip:
        """Flip the bit; returns its new state."""
        node.disk.flip_bit(self.path, self.at, self.bit)
        content = node.disk.content(self.path) or b""
        return replace(self, bad=content[self.at])

    def is_over(self, node: Node) -> bool:
        content = node.disk.content(self.path)
        return content is None or content[self.at] != self.bad


class DamagedStores:
    """The damaged stores. `done` counts faults, as for all faults."""

    def __init__(self, brokers: list[Node], done: Counter[str]) -> None:
        self.brokers = brokers
        self.done = done
        self.where: dict[str, str] = {}
        """Node name -> the file with a flipped bit, or the folder that is gone, or FOREIGN_EPOCHS."""

        self.flipped: dict[str, BitFlip] = {}
        """Node name -> the flipped bit in an old segment, which a start may or may not read."""

        self.queues: dict[str, str] = {}
        """Node name -> what its queue files lost, until the broker has started. Rebuilding them needs room."""

    def flipped_at(self, name: str) -> int | None:
        """The offset in the log of a flipped bit, or None."""
        bit = self.flipped.get(name)
        return None if bit is None else bit.offset

    def look(self) -> None:
        """Raises Violation for a broker that serves a store that it must refuse."""
        for node in self.brokers:
            if node.name in self.where and broker_on(node) is not None:
                if self.must_be_refused(node):
                    raise Violation(
                        "L5",
                        f"{node.name} serves a log that is damaged or gone, or has other epochs: {self.where[node.name]}",
                    )
                del self.where[node.name]

    def must_be_refused(self, node: Node) -> bool:
        return self.where.get(node.name, "").startswith((LOG, FOREIGN_EPOCHS))

    def cured(self, node: Node) -> bool:
        """Whether this broker refused to start on its damaged store. If it did, the damage is removed here: a flipped bit is
        flipped back, any other damaged store is emptied."""
        bit = self.flipped.get(node.name)
        if bit is not None and isinstance(node.failure, StoreCorrupted | QueueUnmendable | EpochFileForeign):
            bit.flip(node)  # restore it from a copy
            self.done["refused a rotten log"] += 1
            return True
        refusals = StoreCorrupted | QueueUnmendable | LogMissing | EpochFileForeign
        if not self.must_be_refused(node) or not isinstance(node.failure, refusals):
            return False
        foreign = self.where.pop(node.name) == FOREIGN_EPOCHS
        node.disk.wipe()
        self.done["refused a foreign epoch file" if foreign else "refused a damaged log"] += 1
        return True


def vouched_end(node: Node) -> int:
    """The end of the confirmed log according to the checkpoint."""
    try:
        return decode_checkpoint(node.disk.content(FILE)).confirm_phy_offset
    except CheckpointDamaged:  # it died before it wrote another
        return 0


def body_of(record: bytes) -> range:
    """Where the record's body is, whose CRC covers all of its bits."""
    message = decode(record, verify_body=False)
    begin = FIXED_PARTS[(message.sys_flag >> 4) & 3].size
    return range(begin, begin + len(message.body))
